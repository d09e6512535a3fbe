"""When cells are profiled, which, and what their parts must move. Kernels are faked: there is no GPU here."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specla.bench.kernel_times import KernelTime, read_profiles
from specla.bench.measure import Method
from specla.bench.on_device import DeviceMethod
from specla.bench.plan import plan
from specla.bench.profiler import CYCLES, cycle_bytes, kernel_times
from specla.bench.record import Status
from specla.engine.recovery import Recovery
from specla.models.cost import ModelCost
from tests.bench.ablations import Ran, ablate, tiny

WORDS = "drafter=oracle drafter.alpha=0.7 topology.length=2 workload.prompts=1 workload.max_new_tokens=12"
FAKE = (KernelTime("walk_kernel", "delta rule", 2.0, 3.5),)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods that replay on a CPU, and in order what was timed, replayed and profiled."""
    asked: list[str] = []
    timed = Method.time

    def time(self: Method, item: Any) -> Any:
        asked.append("timed")
        return timed(self, item)

    def replay(self: Method, item: Any, cycles: int) -> Callable[[], object]:
        return lambda: asked.append(f"replayed {cycles} of {self.cell.method.verify}")

    def fake(work: Callable[[], object], cycles: int, settle: Callable[[], object]) -> tuple[KernelTime, ...]:
        asked.append("profiled")
        work()
        return FAKE

    monkeypatch.setattr(Method, "replays", True)
    monkeypatch.setattr(Method, "time", time)
    monkeypatch.setattr(Method, "replay", replay)
    monkeypatch.setattr("specla.bench.profiler.kernel_times", fake)
    return asked


def measured(folder: Path, verify: str = "tree,hybrid") -> Ran:
    return ablate(folder, "bench e2e", f"{WORDS} engine.verify={verify}")


def test_ar_and_a_method_of_every_block_are_profiled_when_all_was_timed(tmp_path: Path, asked: list[str]) -> None:
    ran = measured(tmp_path)
    after = asked[max(i for i, what in enumerate(asked) if what == "timed") + 1 :]
    each = [[f"replayed {CYCLES} of {name}", "profiled", f"replayed {CYCLES} of {name}"] for name in ("ar", "tree")]
    assert after == each[0] + each[1] and asked.count("profiled") == 2
    ar, tree = read_profiles(ran.path / "profile.json")
    by_name = {record.fingerprint: record.method.verify for record in ran.records}
    assert [by_name[one.fingerprint] for one in (ar, tree)] == ["ar", "tree"]
    assert (ar.nodes, tree.nodes, ar.batch, ar.cycles, ar.kernels) == (1, 3, 1, CYCLES, FAKE)
    assert tree.label.startswith("tree oracle") and tree.words and tree.time_us > 0
    assert set(ar.bytes) == {"products", "delta rule", "inputs", "commit"}
    assert "profiling the kernels of 2 cells" in ran.lines and ran.ticks == ran.units


def test_a_profiler_that_does_not_work_is_one_line_and_fails_nothing(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such library\nand more")

    monkeypatch.setattr("specla.bench.profiler.kernel_times", broken)
    ran = measured(tmp_path)
    assert {record.status for record in ran.records} == {Status.PASSED}
    (told,) = [line for line in ran.lines if line.startswith("no profile of ")]
    assert told.startswith("no profile of ar ") and ", tree oracle" in told
    assert told.endswith(": RuntimeError: no such library") and not (ran.path / "profile.json").exists()


def test_no_cpu_is_profiled(tmp_path: Path) -> None:
    ran = measured(tmp_path, "tree")
    assert not (ran.path / "profile.json").exists() and not [line for line in ran.lines if "profil" in line]


def test_a_drafter_that_is_a_network_leaves_bytes_unknown(tmp_path: Path, asked: list[str]) -> None:
    words = f"{WORDS} engine.verify=tree drafter.cost=aligned"
    ran = ablate(tmp_path, "bench e2e", words)
    rows = json.loads((ran.path / "profile.json").read_text())
    assert [bool(row["bytes"]) for row in rows] == [True, False]


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_device_goes_on_where_it_stopped(adaptive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["model=gdn-tiny", "device=cpu", *WORDS.split(), "engine.verify=tree", f"engine.adaptive={adaptive}"]
    cell = plan("bench e2e", words).cells[-1]
    subject: Any = SimpleNamespace(model=SimpleNamespace(device=torch.device("cpu")))
    method, begun = DeviceMethod(cell, subject), list[list[int]]()

    def engine(self: DeviceMethod, item: Any) -> Any:
        begun.append([])
        return SimpleNamespace(advance=begun[-1].append)

    monkeypatch.setattr(DeviceMethod, "engine", engine)
    assert method.replays is not adaptive
    item: Any = None
    replay = method.replay(item, 3)
    replay()
    replay()
    assert begun == [[3, 3]]


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_the_profiler_itself_needs_a_gpu() -> None:
    with pytest.raises(Exception, match=r"No activities|saw no kernel"):
        kernel_times(lambda: None, 1, lambda: None)


def test_bytes_follow_the_way_to_commit() -> None:
    cost = ModelCost.of(tiny(), "bfloat16")

    def of(name: str, ring: int = 16) -> dict[str, int]:
        return cycle_bytes(cost, 2, 4, 4, Recovery(name, ring), 3.0)

    at_once, deferred, lazy, replay = (of(n) for n in ("factors", "factors_deferred", "factors_lazy", "replay_cached"))
    assert {one["products"] for one in (at_once, deferred, lazy)} == {cost.weight_read_bytes}
    assert at_once["delta rule"] == cost.verify(2, 4).total_bytes
    assert at_once["commit"] == cost.commit(2, 3).total_bytes + 2 * 2 * cost.window_bytes
    assert deferred["delta rule"] == cost.verify(2, 4, known=3, writes_state=True).total_bytes
    assert deferred["commit"] == 2 * 2 * (3 * cost.factor_bytes + cost.window_bytes)
    # 0, 3, ..., 12 are known in turn, and a ring of 16 is folded with what lies in it when four more might not fit.
    known = [(12, False), (15, True), (3, False), (6, False)]
    each = [cost.verify(2, 4, known=used, writes_state=folds).total_bytes for used, folds in known]
    assert lazy["delta rule"] == sum(each) // 4 and lazy["commit"] == deferred["commit"]
    assert replay["delta rule"] == cost.verify(2, 4, leaves_factors=False).total_bytes
