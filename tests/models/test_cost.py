"""Costs against figures worked out by hand, published ones, and the bytes of real tensors."""

import dataclasses
from pathlib import Path

import pytest
import torch
import yaml

from specla.errors import SpeclaError
from specla.models.checkpoint import random_model
from specla.models.config import GatedDeltaNetConfig
from specla.models.cost import ModelCost, Traffic
from specla.models.state import DecodeState
from specla.ops.types import TreeTensors
from specla.ops.verify.tree import TreeMask
from specla.topology import kary

CONF = Path(__file__).parents[2] / "conf" / "model"
MIB = 2**20


def shape(name: str) -> GatedDeltaNetConfig:
    raw = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    known = {field.name for field in dataclasses.fields(GatedDeltaNetConfig)}
    return GatedDeltaNetConfig(**{key: value for key, value in raw.items() if key in known})


def published(dtype: str = "bfloat16") -> ModelCost:
    return ModelCost.of(shape("gdn-1.3b"), dtype)


def test_published_model_has_its_parameters_and_weights() -> None:
    cost = published()
    assert cost.config.parameters == 1_466_343_808
    # 24 layers hold 8 of A_log and of dt_bias, float32 each.
    assert cost.weight_bytes == 2 * 1_466_343_808 + 24 * 16 * 2
    assert published("float32").weight_bytes == 4 * 1_466_343_808
    # One step does not read the embedding table, 32000 x 2048.
    assert cost.weight_read_bytes == cost.weight_bytes - 2 * 32_000 * 2048
    assert cost.weight_read_bytes == pytest.approx(2.8e9, rel=0.01)


def test_published_model_holds_two_mib_of_state_a_layer() -> None:
    assert published().one_layer.state_bytes == 2 * MIB
    assert published().state_bytes == published("float32").state_bytes == 48 * MIB
    # Three columns of 3 x 2048 channels; a cache of four float32 columns takes 2.25 MiB.
    assert published().window_bytes == 24 * 3 * 6144 * 2
    assert published("float32").window_bytes * 4 / 3 == 2.25 * MIB


def test_default_shape_of_fla_is_smaller_with_more_state() -> None:
    cost = ModelCost.of(shape("gdn-1.3b-fla"), "bfloat16")
    assert cost.config.parameters == pytest.approx(1.387e9, rel=1e-3)
    assert cost.state_bytes == 63 * MIB


def test_autoregressive_step_at_batch_128_moves_its_state_twice() -> None:
    cost = published()
    moved = cost.step(128, 1).total_bytes - cost.step(128, 1, writes_state=False).total_bytes
    assert 2 * moved == 2 * 128 * 48 * MIB == pytest.approx(12.9e9, rel=2e-3)


@pytest.mark.parametrize(("dtype", "a_node"), [("bfloat16", 772), ("float32", 1028)])
def test_factors_of_one_head_of_128(dtype: str, a_node: int) -> None:
    one_head = dataclasses.replace(
        shape("gdn-tiny"), num_hidden_layers=1, num_heads=1, num_v_heads=1, head_dim=128, hidden_size=128
    )
    cost = ModelCost.of(one_head, dtype)
    assert cost.factor_bytes == a_node
    assert cost.new_factor_bytes == 4 * 128 + 4
    assert cost.state_bytes == 65_536


def test_verification_of_fifteen_nodes_by_hand() -> None:
    layer = published().one_layer
    state, inputs = 2 * MIB, 3 * 2048 * 2 + 2 * 8 * 4
    outputs, kept = 2048 * 2, 2048 * 4 + 8 * 4
    assert layer.verify(32, 15) == Traffic(32 * (state + 15 * inputs), 32 * 15 * (outputs + kept))
    bare = layer.verify(32, 15, writes_state=True, leaves_factors=False)
    assert bare == Traffic(32 * (state + 15 * inputs), 32 * (15 * outputs + state))
    # The state alone takes 15.8 us to read on the H200 of the notes, and all bytes about 19.
    assert Traffic(32 * state).floor_us(4.26e12, 4.0e12) == pytest.approx(15.8, abs=0.1)
    assert layer.verify(32, 15).floor_us(4.26e12, 4.0e12) == pytest.approx(19.2, abs=0.5)


def test_known_factors_and_commits_read_whole_factors() -> None:
    layer = published().one_layer
    factors = 2048 * 2 + 2048 * 4 + 8 * 4
    more = layer.verify(4, 2, known=5).read_bytes - layer.verify(4, 2).read_bytes
    assert more == 4 * 5 * factors
    assert layer.commit(4, 3) == Traffic(4 * (2 * MIB + 3 * factors), 4 * 2 * MIB)


def test_a_step_is_its_weights_its_windows_and_its_layers() -> None:
    cost = published()
    rule = cost.verify(2, 5, writes_state=True)
    assert rule == Traffic(*(24 * x for x in dataclasses.astuple(cost.one_layer.verify(2, 5, writes_state=True))))
    step = cost.step(2, 5)
    rows = 2 * 5 * 2048 * 2
    assert step.read_bytes == cost.weight_read_bytes + rule.read_bytes + 2 * cost.window_bytes + rows
    assert step.written_bytes == rule.written_bytes + 2 * cost.window_bytes
    # Plain decoding works in place and leaves no factors; a lazy ring does not touch the state.
    assert cost.step(1, 1).written_bytes == cost.window_bytes + cost.output_bytes + cost.state_bytes
    assert cost.step(1, 5, writes_state=False).written_bytes == step.written_bytes / 2 - cost.state_bytes
    # Sixteen nodes are nearly free at batch 1, where weights are most of it.
    assert cost.step(1, 16).total_bytes < 1.02 * cost.step(1, 1).total_bytes


def test_operations_by_hand() -> None:
    tiny = ModelCost.of(shape("gdn-tiny"), "float32")
    # Per layer q, k (32 wide), v, gate (64), a, b (4), the way out (64 x 64), the MLP's three; then the head.
    products = 2 * (64 * (32 + 32 + 64 + 64 + 4 + 4) + 64 * 64 + 3 * 64 * 128) + 256 * 64
    state = 64 * 16
    one = 2 * products + 2 * (2 * 4 * 128) + 2 * (4 * state + 2 * state) + 2 * 2 * (32 + 64)
    assert tiny.step_flops(1, 1) == one
    assert tiny.step_flops(3, 1) == 3 * one
    assert tiny.step_flops(1, 1, committed=0) == one - 2 * 2 * state
    # The matrix products of the published model: two operations a weight, embeddings aside.
    assert published().step_flops(1, 1) == pytest.approx(2 * (1_466_343_808 - 32_000 * 2048), rel=0.03)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["gdn-tiny", "gdn-tiny-untied"])
def test_bytes_are_those_of_real_tensors(name: str, dtype: torch.dtype) -> None:
    config = dataclasses.replace(shape("gdn-tiny"), tie_word_embeddings=name == "gdn-tiny")
    cost = ModelCost.of(config, dtype)
    model = random_model(config, dtype)
    assert cost.weight_bytes == sum(parameter.nbytes for parameter in model.parameters())
    table = model.model.embeddings.weight.nbytes
    assert cost.weight_read_bytes == cost.weight_bytes - (0 if config.tie_word_embeddings else table)

    batch, tree = 3, kary(2, 7)
    state = DecodeState.empty(config, batch, dtype, model.device)
    assert batch * cost.state_bytes == state.recurrent.nbytes
    assert batch * cost.window_bytes == state.window.nbytes
    assert cost.held_bytes(batch) == cost.weight_bytes + state.bytes

    mixer, places = model.blocks[0].attn, torch.zeros(batch, tree.nodes, config.hidden_size, dtype=dtype)
    raw, _, a, b = mixer.project(places)
    inputs = mixer.delta_inputs(raw, a, b)
    layer, nodes = cost.one_layer, batch * tree.nodes
    assert nodes * layer.input_bytes == sum(x.nbytes for x in inputs)
    output = TreeMask().verify(state.recurrent[0], inputs, TreeTensors.from_tree(tree))
    assert nodes * layer.output_bytes == output.out.to(dtype).nbytes
    factors = output.factors
    assert factors is not None
    assert nodes * layer.factor_bytes == factors.k.nbytes + factors.u.nbytes + factors.decay.float().nbytes


def test_floor_takes_writes_at_the_speed_of_copies() -> None:
    assert Traffic(10**9).floor_us(2e9, 1e9) == pytest.approx(0.5e6)
    assert Traffic(10**9, 10**9).floor_us(2e9, 1e9) == pytest.approx(2e6)
    assert Traffic(3 * 10**9, 10**9).floor_us(2e9, 1e9) == pytest.approx(3e6)
    assert Traffic(0, 10**9).floor_us(2e9, 1e9) == pytest.approx(1e6)


def test_unknown_dtype_is_refused_by_name() -> None:
    with pytest.raises(SpeclaError, match="dtype=float64: no model runs in it; use float32, float16, bfloat16"):
        ModelCost.of(shape("gdn-tiny"), torch.float64)
