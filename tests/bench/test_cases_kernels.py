"""How single operations are checked and timed: in turn, long enough, beside every baseline, and only when right."""

import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from specla.bench.cases import KINDS
from specla.bench.cases.kernels import kept_bytes
from specla.bench.cases.layers import RandomLayers
from specla.bench.cases.operation import TOLERANCES, Operation, pair
from specla.bench.cases.timing import Ready, interleave
from specla.bench.clock import Clock, HostClock
from specla.bench.lines import read_records
from specla.bench.settings import MeasureSettings
from specla.models.cost import ModelCost
from specla.ops.recover.factors import CommitFactors
from specla.ops.types import VerifyOutput
from specla.ops.verify.sequential_replay import SequentialReplay
from specla.ops.verify.tree import TreeMask
from specla.report.load import load_runs
from tests.bench.ablations import ablate
from tests.models.cases import tiny_config
from tests.tolerances import RELATIVE_RMS

VERIFY, RECOVER = "ablate verify", "ablate recover"


class FakeClock(Clock):
    """Time passes as the work says."""

    now = 0.0

    def seconds(self, work: Callable[[], object], times: int = 1) -> float:
        before = self.now
        for _ in range(times):
            work()
        return self.now - before

    @property
    def free_bytes(self) -> int:
        return 1 << 40

    @property
    def total_bytes(self) -> int:
        return 1 << 40


class FakeOperation(Operation):
    """Takes as long as it is told, and notes when it ran."""

    def __init__(self, clock: FakeClock, name: str, seconds: float, ran: list[str]) -> None:
        self.clock, self.name, self.lasts, self.ran, self.restored = clock, name, seconds, ran, 0

    @property
    def calls(self) -> int:
        return 2

    def restore(self) -> None:
        self.restored += 1
        self.ran.append(self.name)

    def run(self) -> None:
        self.clock.now += self.lasts

    def error(self) -> float:
        return 0.0


def test_samples_last_long_enough_and_take_turns() -> None:
    clock, ran, ticks = FakeClock("cpu"), list[str](), []
    lasting = {"short": 0.0001, "middle": 0.003, "long": 0.02}
    operations = [FakeOperation(clock, name, seconds, ran) for name, seconds in lasting.items()]
    measure = MeasureSettings(repeats=6, warmup=2, sample_ms=5.0)
    with clock.stopwatches() as stopwatch:
        ready = [Ready(operation, stopwatch(operation.run)) for operation in operations]
        timings = interleave(ready, measure, lambda: ticks.append(clock.now))
    assert len(ticks) == 8
    for taken, seconds in zip(timings, lasting.values(), strict=True):
        assert [one.time_us for one in taken] == pytest.approx([seconds * 1e6 / 2] * 6)
        assert [taken[i].order for i in range(3)] != [taken[0].order] * 3
    assert [sorted(taken[repeat].order for taken in timings) for repeat in range(6)] == [[0, 1, 2]] * 6
    # Two passes too few were taken once, in the first warm-up repeat; from then on a sample is one try.
    assert [operation.restored for operation in operations] == [9, 9, 8]
    assert ran[-6:] == ["middle", "long", "short", "long", "short", "middle"]
    last = [now - before for before, now in pairwise(ticks)]
    assert min(last) > 2 * 0.005 + 0.02


def test_the_table_of_tolerances_is_that_of_the_tests() -> None:
    assert TOLERANCES["verify"]["float32"] == RELATIVE_RMS["verify"]
    assert TOLERANCES["recover"]["float32"] == RELATIVE_RMS["commit"]
    again, cached = pair("tree", "replay_tokens"), pair("tree", "factors")
    assert KINDS[RECOVER].tolerance(again, "bfloat16") > KINDS[RECOVER].tolerance(cached, "bfloat16")
    assert KINDS[VERIFY].tolerance(again, "bfloat16") == TOLERANCES["verify"]["bfloat16"]


def test_a_wrong_strategy_fails_and_has_no_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = TreeMask.verify

    def wrong(self: TreeMask, *inputs: Any) -> VerifyOutput:
        out, factors, states = right(self, *inputs)
        return VerifyOutput(out * 1.00001, factors, states)

    monkeypatch.setattr(TreeMask, "verify", wrong)
    ran = ablate(tmp_path, VERIFY, "engine.verify=tree,hybrid")
    tree, hybrid = ran.cell("tree"), ran.cell("hybrid")
    assert (tree["status"], tree["ratio"], tree["time_us"], tree["x_floor"]) == ("failed", {}, None, None)
    assert tree["error_rms"] == pytest.approx(1e-5, rel=0.1)
    assert tree["reason"].startswith("relative RMS error 1.0e-05 against the reference, where 2e-06 is allowed")
    assert hybrid["status"] == "passed" and set(hybrid["ratio"]) == set(KINDS[VERIFY].baselines)
    assert ran.document["status"] == "failed"
    assert ran.samples("tree") == []


def test_what_is_no_number_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = TreeMask.verify
    monkeypatch.setattr(
        TreeMask, "verify", lambda self, *inputs: right(self, *inputs)._replace(out=inputs[1].v.float() * float("nan"))
    )
    cell = ablate(tmp_path, VERIFY, "engine.verify=tree").cell("tree")
    assert cell["status"] == "failed" and cell["error_rms"] is None and "inf" in cell["reason"]


def test_a_wrong_baseline_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequentialReplay, "verify", _returns_v(SequentialReplay.verify))
    ran = ablate(tmp_path, VERIFY, "engine.verify=tree")
    assert set(ran.cell("tree")["ratio"]) == {"naive_batched", "parent_pointer"}
    assert any("the baseline sequential_replay + replay_tokens is left out: relative RMS" in line for line in ran.lines)
    assert ran.document["status"] == "passed"


def test_a_slow_strategy_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CommitFactors.commit

    def slow(self: CommitFactors, *inputs: Any) -> None:
        time.sleep(0.004)
        right(self, *inputs)

    before = ablate(tmp_path / "before", RECOVER, "engine.verify=tree engine.recover=factors")
    monkeypatch.setattr(CommitFactors, "commit", slow)
    after = ablate(tmp_path / "after", RECOVER, "engine.verify=tree engine.recover=factors")
    fast, slowed = before.cell("tree"), after.cell("tree")
    assert slowed["time_us"]["median"] > 4000 > fast["time_us"]["median"]
    assert slowed["ratio"]["replay_tokens"]["high"] < 1 < fast["ratio"]["replay_tokens"]["median"]
    assert all(sample.time_us > 4000 for sample in after.samples("tree"))


def test_an_error_of_one_strategy_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: TreeMask, *inputs: Any) -> VerifyOutput:
        raise RuntimeError("no such tile\nand more")

    monkeypatch.setattr(TreeMask, "verify", broken)
    ran = ablate(tmp_path, VERIFY, "engine.verify=tree,hybrid")
    assert ran.cell("tree")["reason"] == "RuntimeError: no such tile"
    assert ran.cell("hybrid")["status"] == "passed"


def test_inputs_that_cannot_be_made_fail_their_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(config: object, batch: int, *rest: Any) -> None:
        if batch == 2:
            raise RuntimeError("out of memory")
        return RandomLayers(config, batch, *rest)  # type: ignore[return-value,arg-type]

    monkeypatch.setattr("specla.bench.cases.kernels.RandomLayers", none_left)
    ran = ablate(tmp_path, VERIFY, "engine.verify=tree workload.batch=1,2")
    assert ran.cell("tree", batch=1)["status"] == "passed"
    assert ran.cell("tree", batch=2)["reason"] == "RuntimeError: out of memory"
    assert ran.ticks == ran.units


def test_a_state_per_node_that_does_not_fit_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostClock, "free_bytes", 80_000)
    words = "topology=kary topology.nodes=8 engine.verify=chain,tree,parent_pointer engine.recover=snapshot,factors"
    ran = ablate(tmp_path, RECOVER, words)
    reason = ran.cell("parent_pointer", "snapshot")["reason"]
    assert reason == "a state per node takes 0.0 GiB, and 0.0 GiB are free"
    assert set(ran.cell("tree", "factors")["ratio"]) == {"replay_tokens", "replay_cached"}
    # One layer's states fit: a verification drops them before the next.
    monkeypatch.setattr(HostClock, "free_bytes", 60_000)
    verified = ablate(tmp_path, VERIFY, "topology=kary topology.nodes=8 engine.verify=parent_pointer")
    assert verified.cell("parent_pointer")["status"] == "passed"


def test_too_few_repeats_are_inconclusive(tmp_path: Path) -> None:
    cell = ablate(tmp_path, VERIFY, "engine.verify=tree measure.repeats=4").cell("tree")
    assert (cell["status"], cell["ratio"]["sequential_replay"]["low"]) == ("inconclusive", None)
    assert cell["ratio"]["sequential_replay"]["median"] > 0


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    words = "topology.length=2,3 engine.verify=sequential_replay,tree"

    def interrupt(line: str) -> None:
        if "chain-l3, batch" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ablate(tmp_path, VERIFY, words, interrupt)
    folder = next(tmp_path.iterdir())
    first = read_records(folder / "records.jsonl").records
    assert [r.status.value for r in first if r.samples] == ["passed", "passed"]
    rest = ablate(tmp_path, VERIFY, words)
    assert rest.ticks == rest.units == 4 + 5
    assert "2 of 4 cells were measured earlier with the same code and inputs: kept" in rest.lines
    assert rest.document["status"] == "passed"
    again = ablate(tmp_path, VERIFY, words)
    assert again.units == again.ticks == 0 and again.document["cells"] == rest.document["cells"]


def test_an_interrupt_while_measuring_again_keeps_what_there_was(tmp_path: Path) -> None:
    words = "topology.length=2,3 engine.verify=sequential_replay,tree"
    first = ablate(tmp_path, VERIFY, words)

    def interrupt(line: str) -> None:
        if "chain-l3, batch" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ablate(tmp_path, VERIFY, words, interrupt, resume=False)
    summary = json.loads((first.path / "summary.json").read_text())
    assert summary["status"] == "passed" and len(summary["cells"]) == 4
    kept = [cell for cell in summary["cells"] if cell in first.document["cells"]]
    assert [cell["method"]["topology"] for cell in kept] == ["chain-l3", "chain-l3"]
    loaded = load_runs([first.path])
    assert not loaded.partial and list(loaded.cells.status) == ["passed"] * 4
    assert ablate(tmp_path, VERIFY, words).ticks == 0


def test_a_baseline_that_has_its_figures_is_timed_again_as_a_silent_partner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "engine.verify=sequential_replay,tree"
    monkeypatch.setattr(TreeMask, "verify", _returns_v(TreeMask.verify))
    failed = ablate(tmp_path, VERIFY, words)
    assert (failed.cell("tree")["status"], failed.cell("sequential_replay")["status"]) == ("failed", "passed")
    monkeypatch.undo()
    mended = ablate(tmp_path, VERIFY, words)
    assert mended.samples("sequential_replay") == failed.samples("sequential_replay")
    assert mended.cell("tree")["ratio"]["sequential_replay"]["n"] == 5


def test_what_a_draft_token_keeps() -> None:
    cost = ModelCost.of(tiny_config(), "float32").one_layer
    kept = {name: kept_bytes(cost, name) for name in ("replay_tokens", "replay_cached", "snapshot", "factors")}
    config = cost.config
    raw = 4 * config.conv_dim
    assert kept["snapshot"] == 4 * config.value_dim * config.head_dim + raw
    assert kept["factors"] == 4 * (config.key_dim + config.value_dim + config.num_v_heads) + raw
    assert kept["replay_tokens"] == 4 * config.hidden_size + raw


def _returns_v(right: Callable[..., VerifyOutput]) -> Callable[..., VerifyOutput]:
    """A verification whose outputs are the values that went in."""
    return lambda self, state, inputs, *rest: right(self, state, inputs, *rest)._replace(out=inputs.v.float())
