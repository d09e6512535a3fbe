"""`ablate verify`: every strategy is right, and stands beside every baseline and the floor."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specla.bench.cases.layers import RandomLayers, Truth, relative_rms
from specla.bench.estimate import MIXER_BYTES, mixers_alone
from specla.bench.plan import plan
from specla.bench.settings import model_config
from specla.models.cost import ModelCost
from specla.ops.types import VerifyOutput
from specla.ops.verify.tree import TreeMask
from specla.topology import chain, kary
from tests.bench.ablations import ablate, tiny

COMMAND = "ablate verify"
BASELINES = {"sequential_replay", "naive_batched", "parent_pointer"}
TREES = "sequential_replay,naive_batched,parent_pointer,tree,hybrid,auto"


def test_every_strategy_beside_every_baseline(tmp_path: Path) -> None:
    """On a chain and a tree, batches of one and three, value heads in groups."""
    words = f"topology=chain,kary topology.length=4 topology.nodes=9 engine.verify={TREES},chain,ar workload.batch=1,3"
    ran = ablate(tmp_path, COMMAND, words)
    measured = [cell for cell in ran.document["cells"] if cell["status"] != "not_applicable"]
    assert ran.document["status"] == "passed" and len(measured) == 2 * (7 + 6 + 1)
    for cell in measured:
        own = cell["method"]["verify"]
        assert set(cell["ratio"]) == BASELINES - {own}
        assert 0 < cell["error_rms"] < 2e-6
        assert cell["time_us"]["n"] == 5 and cell["time_us"]["low"] <= cell["time_us"]["high"]
        assert cell["x_floor"] == pytest.approx(cell["time_us"]["median"] / cell["floor_us"])
        assert cell["accepted"] is None
    left = [cell["reason"] for cell in ran.document["cells"] if cell["status"] == "not_applicable"]
    assert left == ["chain verifies chains only, and kary-b2-n9 branches"] * 2


def test_ratios_are_of_the_same_repeat(tmp_path: Path) -> None:
    ran = ablate(tmp_path, COMMAND, "engine.verify=sequential_replay,tree")
    tree, replay = ran.samples("tree"), ran.samples("sequential_replay")
    assert [sample.repeat for sample in tree] == list(range(5))
    assert [sample.baseline_us["sequential_replay"] for sample in tree] == [sample.time_us for sample in replay]
    assert {sample.order for sample in tree} == set(range(4))
    assert set(replay[0].baseline_us) == BASELINES - {"sequential_replay"}


def test_bytes_are_those_of_one_layer(tmp_path: Path) -> None:
    ran = ablate(tmp_path, COMMAND, "topology.length=3 engine.verify=tree,hybrid workload.batch=2 dtype=bfloat16")
    cost = ModelCost.of(tiny(), "bfloat16")
    rows, nodes, state = 2, 4, 4 * 64 * 16
    inputs, outputs, factors = 2 * (2 * 32 + 64) + 2 * 4 * 4, 2 * 64, 4 * (64 + 4)
    assert ran.cell("tree")["bytes"] == rows * (state + nodes * (inputs + outputs + factors))
    assert ran.cell("tree")["bytes"] == cost.one_layer.verify(rows, nodes).total_bytes
    assert ran.cell("hybrid")["floor_us"] == ran.cell("tree")["floor_us"]
    assert any(line.startswith("memory bandwidth by 1 thread: ") for line in ran.lines)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits(tmp_path: Path, dtype: str) -> None:
    """The reference reads the same rounded inputs, so errors are those of float32 arithmetic."""
    ran = ablate(tmp_path, COMMAND, f"topology=kary topology.nodes=6 engine.verify={TREES} dtype={dtype}")
    assert {cell["status"] for cell in ran.document["cells"]} == {"passed"}
    assert max(cell["error_rms"] for cell in ran.document["cells"]) < 2e-6


def test_auto_says_why(tmp_path: Path) -> None:
    cell = ablate(tmp_path, COMMAND, "engine.verify=auto").cell("auto")
    assert cell["why"].startswith("auto: ") and "us" in cell["why"] and "on a chain of 5 nodes, batch 1" in cell["why"]


def test_a_strategy_that_writes_the_state_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = TreeMask.verify

    def writes(self: TreeMask, state: torch.Tensor, *rest: Any) -> VerifyOutput:
        output = right(self, state, *rest)
        state[0, 0, 0, 0] += 1e-3
        return output

    monkeypatch.setattr(TreeMask, "verify", writes)
    ran = ablate(tmp_path, COMMAND, "engine.verify=tree,hybrid")
    assert ran.cell("tree")["reason"] == "AssertionError: tree wrote the state that it verifies on"
    assert ran.cell("hybrid")["status"] == "passed"


def test_the_inputs_are_as_a_layer_makes_them() -> None:
    """Unit keys, decays below zero; as many states as layers; the same again from the same seed."""
    config = tiny()
    with torch.inference_mode():
        one, same, other = (RandomLayers(config, 2, kary(2, 6), torch.float32, "cpu", seed) for seed in (0, 0, 1))
        q, k, v, g, beta = one.layers[1].inputs
        assert k.norm(dim=-1).sub(1).abs().max() < 1e-4 and q.norm(dim=-1).mul(4).sub(1).abs().max() < 1e-3
        assert bool((g < 0).all()) and bool(((beta > 0) & (beta < 1)).all())
        assert (len(one.layers), one.state.shape) == (2, (2, 2, 4, 16, 16))
        assert not torch.equal(one.layers[0].inputs.v, v)
        assert all(torch.equal(a, b) for a, b in zip(one.layers[1].inputs, same.layers[1].inputs, strict=True))
        assert not torch.equal(one.initial, other.initial)
        assert not torch.equal(v, other.layers[1].inputs.v)


def test_the_truth_goes_step_by_step() -> None:
    """Committing in one go or in two is the same; the last output of a path is its state times q."""
    config = tiny()
    with torch.inference_mode():
        layers = RandomLayers(config, 11, chain(3), torch.float32, "cpu", 0)
        truth = Truth(layers, accepted=3)
        assert layers.rows == [0, 1, 3, 4, 6, 7, 9, 10]
        q = layers.layers[0].inputs.q[layers.rows, 3].double().repeat_interleave(2, dim=1)
        last = (truth.state(1) @ q[..., None])[..., 0]
        assert relative_rms(truth.outputs(0)[:, 3], last) < 1e-12
        assert relative_rms(truth.outputs(1)[:, 3], (truth.state(2) @ q[..., None])[..., 0]) < 1e-12


def test_layers_share_mixers_that_would_fill_the_memory() -> None:
    """Of the large shape six of 24 layers in float32; of a small one all, and no vocabulary."""
    large = model_config(plan(COMMAND, ["experiment=null", "model=gdn-1.3b"]).cells[0].settings.model)
    assert mixers_alone(large, 4).num_hidden_layers == 6
    assert mixers_alone(large, 2).num_hidden_layers == 12
    assert mixers_alone(tiny(), 4).num_hidden_layers == 2
    assert ModelCost.of(mixers_alone(large, 4), "float32").weight_bytes <= MIXER_BYTES


@pytest.mark.slow
def test_the_order_that_theory_gives(tmp_path: Path) -> None:
    """On a CPU too: the tree before sequential replay from 8 nodes up, factors before token replay from 2 tokens up."""
    mini = "model=gdn-mini topology=kary topology.nodes=8,16"
    for command, words, baseline in (
        (COMMAND, "engine.verify=tree", "sequential_replay"),
        ("ablate recover", "engine.verify=tree engine.recover=factors measure.accepted=1,3", "replay_tokens"),
    ):
        for cell in ablate(tmp_path, command, f"{mini} {words}").document["cells"]:
            assert cell["ratio"][baseline]["median"] > 1.2, cell["overrides"]
