"""`ablate recover`: one commit, by every way to recover, from any verification."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specla.bench.cases.layers import RandomLayers, Truth
from specla.bench.cases.operation import Given, pair
from specla.bench.cases.recover import Commit
from specla.bench.plan import plan
from specla.ops.recover.factors import CommitFactors
from specla.ops.recover.snapshot import Snapshot
from specla.topology import kary
from tests.bench.ablations import ablate, tiny

COMMAND = "ablate recover"
RECOVERS = "replay_tokens,replay_cached,snapshot,factors"
BASELINES = {"replay_tokens", "replay_cached", "snapshot"}


def test_every_strategy_at_every_length(tmp_path: Path) -> None:
    words = f"topology.length=3 engine.verify=chain engine.recover={RECOVERS} measure.accepted=0,1,3 workload.batch=2"
    ran = ablate(tmp_path, COMMAND, words)
    assert ran.document["status"] == "passed" and len(ran.document["cells"]) == 12
    for cell in ran.document["cells"]:
        assert set(cell["ratio"]) == BASELINES - {cell["method"]["recover"]}
        assert 0 < cell["error_rms"] < 1e-6
        state, window, factors = 4 * 64 * 16, 4 * 3 * 128, 4 * (32 + 64 + 4)
        assert cell["bytes"] == 2 * (2 * state + 2 * window + (cell["accepted"] + 1) * factors)


def test_a_tree_takes_its_deepest_path_and_a_silent_snapshot(tmp_path: Path) -> None:
    words = "topology=kary topology.nodes=9 engine.verify=tree,hybrid,auto engine.recover=replay_tokens,factors"
    ran = ablate(tmp_path, COMMAND, words)
    assert ran.document["status"] == "passed"
    for cell in ran.document["cells"]:
        assert cell["accepted"] == 3 and set(cell["ratio"]) == BASELINES - {cell["method"]["recover"]}
    assert ran.cell("auto", "factors")["why"].startswith("auto: ")
    assert {cell["method"]["recover"] for cell in ran.document["cells"]} == {"replay_tokens", "factors"}


def test_a_baseline_is_the_one_of_the_same_verification(tmp_path: Path) -> None:
    ran = ablate(tmp_path, COMMAND, "engine.verify=chain,tree engine.recover=replay_cached,factors")
    for verify in ("chain", "tree"):
        own = [sample.time_us for sample in ran.samples(verify, "replay_cached")]
        assert [sample.baseline_us["replay_cached"] for sample in ran.samples(verify, "factors")] == own


def test_sixteen_bits(tmp_path: Path) -> None:
    words = f"topology=kary topology.nodes=6 engine.verify=tree,parent_pointer engine.recover={RECOVERS} dtype=bfloat16"
    ran = ablate(tmp_path, COMMAND, words)
    done = [cell for cell in ran.document["cells"] if cell["status"] != "not_applicable"]
    assert [cell["status"] for cell in done] == ["passed"] * 4
    assert all(cell["error_rms"] < (1e-2 if cell["method"]["recover"] == "replay_tokens" else 1e-6) for cell in done)


def test_a_commit_that_forgets_a_token_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CommitFactors.commit

    def short(self: CommitFactors, state: torch.Tensor, record: Any, path: torch.Tensor, length: torch.Tensor) -> None:
        right(self, state, record, path, length - 1)

    monkeypatch.setattr(CommitFactors, "commit", short)
    ran = ablate(tmp_path, COMMAND, f"engine.verify=chain engine.recover={RECOVERS}")
    factors = ran.cell("chain", "factors")
    assert factors["status"] == "failed" and factors["error_rms"] > 1e-3 and factors["ratio"] == {}
    assert all(ran.cell("chain", name)["status"] == "passed" for name in BASELINES)


def test_a_snapshot_of_another_node_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Snapshot.commit
    monkeypatch.setattr(
        Snapshot,
        "commit",
        lambda self, state, record, path, length: right(self, state, record, path - path.sign(), length),
    )
    ran = ablate(tmp_path, COMMAND, "engine.verify=chain engine.recover=snapshot,factors")
    assert ran.cell("chain", "snapshot")["status"] == "failed"
    assert set(ran.cell("chain", "factors")["ratio"]) == BASELINES - {"snapshot"}


def test_what_commits_later_belongs_to_defer(tmp_path: Path) -> None:
    cells = plan(COMMAND, ["experiment=null", "engine.recover=factors_deferred,factors_lazy"]).cells
    assert all(cell.status == "not_applicable" and "ablate defer" in cell.reason for cell in cells)


def test_a_run_commits_state_and_window_of_every_layer() -> None:
    config = tiny()
    with torch.inference_mode():
        layers = RandomLayers(config, 2, kary(2, 9), torch.float32, "cpu", 0)
        given = Given(layers, Truth(layers, 2), accepted=2)
        states = []
        for engine in (pair("tree", "factors"), pair("tree", "replay_tokens"), pair("parent_pointer", "snapshot")):
            operation = Commit(given, engine)
            operation.restore()
            operation.run()
            states.append(layers.state.clone())
            for window, layer in zip(layers.windows, layers.layers, strict=True):
                assert torch.equal(window, layer.raw[:, list(layers.path_nodes(2))])
        assert layers.path_nodes(2) == (0, 1, 3)
        assert all(torch.allclose(states[0], state, atol=1e-5) for state in states[1:])
        assert not torch.allclose(states[0], layers.initial, atol=1e-2)
        operation.restore()
        assert torch.equal(layers.state, layers.initial)
