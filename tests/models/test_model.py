"""The three ways to run a model agree, whatever is padded, cut into segments or packed; and the chunked delta rule."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from specla.engine.recovery import EngineRecovery
from specla.models import gated_deltanet
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.state import DecodeState
from specla.ops import prefill
from specla.ops.chunk import chunk_gated_delta_rule, chunk_outputs
from specla.ops.types import HeadShape, TreeTensors
from specla.ops.verify import get_verify
from specla.topology import chain
from tests.models.cases import VARIANTS, prompts, raw_model, tiny_model, tokens
from tests.ops.cases import GROUPED, PLAIN, node_inputs, random_state
from tests.tolerances import assert_close

LENGTHS = (1, 3, 4, 63, 64, 65, 130)


def assert_same_state(state: DecodeState, wanted: DecodeState) -> None:
    assert torch.equal(state.lengths, wanted.lengths)
    assert_close(state.recurrent, wanted.recurrent, "model")
    assert_close(state.window, wanted.window, "model")


def by_single_tokens(model: GatedDeltaNetLM, ids: Tensor) -> tuple[Tensor, DecodeState]:
    """Hidden states of every token and the state after the last, by decoding steps from the empty state."""
    state = DecodeState.empty(model.config, len(ids), model.dtype, model.device)
    recovery = EngineRecovery("in_place", model, state, longest=1)
    path, length = torch.zeros(len(ids), 1, dtype=torch.int64), torch.ones(len(ids), dtype=torch.int64)
    root, found = TreeTensors.from_tree(chain(0), width=model.config.conv_size), []
    for token in ids.split(1, dim=1):
        hidden, records = model.forward_nodes(token, root, recovery.layers(), get_verify("ar"))
        recovery.commit(records, path, length)
        state.lengths += 1
        found.append(hidden)
    return torch.cat(found, dim=1), state


@pytest.mark.parametrize("changes", [*VARIANTS.values(), {"conv_size": 3}, {"conv_size": 5}])
@torch.inference_mode()
def test_sequence_prefill_and_steps_agree(changes: dict[str, Any]) -> None:
    model, ids = tiny_model(**changes), tokens(2, 70)
    whole = model(ids)
    last, state = model.prefill(ids)
    stepped, walked = by_single_tokens(model, ids)
    assert_close(last, whole[:, -1], "model")
    assert_close(stepped, whole, "model")
    assert_same_state(walked, state)


@pytest.mark.parametrize("length", [1, 3, 4, 63, 64, 65, 128])
@torch.inference_mode()
def test_nodes_of_a_chain_are_the_tokens_of_a_sequence(length: int) -> None:
    """A prompt's end run as the nodes of a chain, on the state of its beginning."""
    model, ids = tiny_model(num_v_heads=4), tokens(2, 7 + length)
    _, state = model.prefill(ids[:, :7])
    layers = EngineRecovery("factors", model, state, longest=length).layers()
    hidden, _ = model.forward_nodes(ids[:, 7:], TreeTensors.from_tree(chain(length - 1)), layers, get_verify("tree"))
    assert_close(hidden, model(ids)[:, 7:], "model")


@pytest.mark.parametrize("changes", [{}, {"conv_bias": True, "num_v_heads": 4}])
@torch.inference_mode()
def test_padding_leaves_no_trace(changes: dict[str, Any]) -> None:
    """Prompts of every length around the window and the chunk, padded on the left with a token that means something."""
    model, rows = tiny_model(**changes), prompts(*LENGTHS)
    longest = max(LENGTHS)
    ids = torch.tensor([[5] * (longest - len(row)) + row for row in rows])
    valid = torch.arange(longest) >= longest - torch.tensor(LENGTHS)[:, None]
    last, state = model.prefill(ids, valid)
    assert state.lengths.tolist() == list(LENGTHS)
    for i, row in enumerate(rows):
        alone, wanted = model.prefill(torch.tensor([row]))
        assert_close(last[i], alone[0], "model")
        mine = DecodeState(state.recurrent[:, i : i + 1], state.window[:, i : i + 1], state.lengths[i : i + 1])
        assert_same_state(mine, wanted)
        assert not bool(wanted.window[:, :, : max(0, 3 - len(row))].any())


@pytest.mark.parametrize("segment", [1, 2, 3, 64, 100])
@torch.inference_mode()
def test_segments_equal_one_go(segment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny_model(num_v_heads=4), tokens(3, 130)
    valid = torch.arange(130) >= torch.tensor([0, 1, 128])[:, None]
    wanted = model.prefill(ids), model.prefill(ids, valid)
    monkeypatch.setattr(gated_deltanet, "PREFILL_SEGMENT", segment)
    for (last, state), mask in zip(wanted, (None, valid), strict=True):
        cut, found = model.prefill(ids, mask)
        assert_close(cut, last, "model")
        assert_same_state(found, state)


@pytest.mark.gpu
@torch.inference_mode()
def test_prompts_of_32k_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """By flash-linear-attention's kernels in segments, against the chunk form in torch; rows of different lengths."""
    model = tiny_model(dtype=torch.bfloat16, head_dim=64, hidden_size=256, num_v_heads=4).to("cuda").prepare()
    ids = tokens(2, 32_768).cuda()
    valid = torch.arange(32_768, device="cuda") >= torch.tensor([0, 12_767], device="cuda")[:, None]
    last, state = model.prefill(ids, valid)
    assert state.lengths.tolist() == [32_768, 20_001]
    monkeypatch.setattr(prefill, "LONG", 1 << 30)
    expected, wanted = model.prefill(ids, valid)
    assert_close(state.recurrent, wanted.recurrent, "prefill_half")
    assert_close(last, expected, "prefill_half")


@torch.inference_mode()
def test_extend_goes_on_where_prefill_stopped() -> None:
    model, ids = tiny_model(), tokens(2, 20)
    last, wanted = model.prefill(ids)
    _, state = model.prefill(ids[:, :13])
    hidden = model.extend(ids[:, 13:], state)
    assert_close(hidden[:, -1], last, "model")
    assert_same_state(state, wanted)


@pytest.mark.parametrize("changes", VARIANTS.values())
def test_packing_changes_nothing(changes: dict[str, Any]) -> None:
    """At few rows and at many, between which libraries change their ways."""
    model, texts = raw_model(**changes), [tokens(1, 1), tokens(2, 9), tokens(3, 30)]
    names = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.inference_mode():
        wanted = [model.logits(model(ids)) for ids in texts]
        model.prepare()
        for ids, logits in zip(texts, wanted, strict=True):
            assert_close(model.logits(model(ids)), logits, "model")
    assert all(torch.equal(tensor, names[name]) for name, tensor in model.state_dict().items())
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_bfloat16_keeps_its_state_in_float32() -> None:
    model = tiny_model(dtype=torch.bfloat16)
    with torch.inference_mode():
        hidden, state = model.prefill(tokens(1, 9))
    assert hidden.dtype == state.window.dtype == torch.bfloat16
    assert state.recurrent.dtype == torch.float32
    assert model.blocks[0].attn.A_log.dtype == torch.float32


def naive(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The delta rule token by token, in the inputs' dtype; differentiable."""
    groups = v.shape[2] // q.shape[2]
    q, k = q.repeat_interleave(groups, dim=2), k.repeat_interleave(groups, dim=2)
    outputs = []
    for t in range(q.shape[1]):
        state = g[:, t].exp()[..., None, None] * state
        seen = (state @ k[:, t, :, :, None])[..., 0]
        u = beta[:, t, :, None] * (v[:, t] - seen)
        state = state + u[..., :, None] * k[:, t, :, None, :]
        outputs.append((state @ q[:, t, :, :, None])[..., 0])
    return torch.stack(outputs, dim=1), state


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("shape", "started"), list(itertools.product([PLAIN, GROUPED], [False, True])))
def test_chunks_equal_the_recurrence(length: int, shape: HeadShape, started: bool) -> None:
    generator = torch.Generator().manual_seed(length)
    inputs = node_inputs(2, length, shape, generator)
    state = random_state(2, shape, generator)
    before = state.clone()
    out, after = chunk_gated_delta_rule(*inputs, state=state if started else None)
    start = state.double() if started else torch.zeros_like(state).double()
    wanted, wanted_state = naive(*(x.double() for x in inputs), start)
    assert_close(out, wanted, "chunk")
    assert_close(after, wanted_state, "chunk")
    assert torch.equal(chunk_outputs(*inputs, state=state if started else None), out)
    assert torch.equal(state, before)


@pytest.mark.parametrize("chunk_size", [1, 16, 64])
def test_gradients_of_chunks(chunk_size: int) -> None:
    """Of every input and of the state, against autograd through the recurrence in float64."""
    generator = torch.Generator().manual_seed(3)
    length, shape = 70, HeadShape(2, 4, 8, 12)
    inputs, state = node_inputs(2, length, shape, generator), random_state(2, shape, generator)
    into_out = torch.randn(2, length, 4, 12, generator=generator)
    into_state = torch.randn(2, 4, 12, 8, generator=generator)
    leaves = [x.clone().requires_grad_() for x in (*inputs, state)]
    truths = [x.double().requires_grad_() for x in (*inputs, state)]
    out, after = chunk_gated_delta_rule(*leaves, chunk_size=chunk_size)
    ((out * into_out).sum() + (after * into_state).sum()).backward()
    wanted, wanted_state = naive(*truths)
    ((wanted * into_out).sum() + (wanted_state * into_state).sum()).backward()
    for leaf, truth in zip(leaves, truths, strict=True):
        assert leaf.grad is not None and truth.grad is not None
        assert_close(leaf.grad, truth.grad, "chunk_gradient")


def test_chunks_stay_finite_where_decay_is_extreme() -> None:
    """exp of a positive difference would overflow above the diagonal, in the result and in its gradient."""
    inputs = node_inputs(1, 70, PLAIN, torch.Generator().manual_seed(4))
    g = torch.full_like(inputs.g, -80.0).requires_grad_()
    out, state = chunk_gated_delta_rule(*inputs._replace(g=g))
    (out.sum() + state.sum()).backward()
    wanted, _ = naive(*(x.double().detach() for x in inputs._replace(g=g)), torch.zeros(1, 2, 16, 16).double())
    assert_close(out.detach(), wanted, "chunk")
    assert g.grad is not None and bool(g.grad.isfinite().all())


def test_small_differences_of_large_sums_of_decay() -> None:
    """Tokens that wipe the state, then ordinary ones in the same chunk: their weights are differences of large sums."""
    generator = torch.Generator().manual_seed(6)
    inputs = node_inputs(1, 128, PLAIN, generator)
    wipes = torch.arange(128)[None, :, None] % 64 < 20
    inputs = inputs._replace(g=torch.where(wipes, -100 * torch.rand(1, 128, 2, generator=generator), inputs.g * 1e-2))
    out, state = chunk_gated_delta_rule(*inputs)
    wanted, wanted_state = naive(*(x.double() for x in inputs), torch.zeros(1, 2, 16, 16).double())
    assert_close(out, wanted, "chunk")
    assert_close(state, wanted_state, "chunk")


def test_half_precision_training_does_not_round_the_state() -> None:
    inputs = node_inputs(1, 40, PLAIN, torch.Generator().manual_seed(5))
    wanted = chunk_gated_delta_rule(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        found = chunk_gated_delta_rule(*inputs)
    assert all(torch.equal(x, y) for x, y in zip(found, wanted, strict=True))
