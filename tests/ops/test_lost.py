"""Rejected nodes whose inputs are not finite touch nothing but their descendants, whatever verifies and recovers."""

import pytest
import torch
from torch import Tensor

from specla.models.layers import GatedDeltaNet
from specla.ops import pairs
from specla.ops.types import NodeInputs
from specla.topology import DraftTree, chain
from tests.models.cases import tiny_config
from tests.ops.cases import GROUPED, node_inputs, paths, random_state, random_tree, same_bits, shared
from tests.ops.steps import make, step

PAIRS = [(verify, recover) for verify, recovers in pairs.RECOVERS_WITH.items() for recover in recovers]
BATCH = 3


def poisoned(inputs: NodeInputs, nodes: Tensor, parts: tuple[int, ...], value: float) -> NodeInputs:
    """The inputs with `value` in some parts of the nodes [B, T] bool; minus infinity in g is no decay but a wipe."""
    held = NodeInputs(*(x.clone() for x in inputs))
    for part in parts:
        held[part][nodes] = torch.nan if part == 3 and value < 0 else value
    return held


def run(
    verify: str, recover: str, tree: DraftTree, inputs: NodeInputs, state: Tensor, ends: list[int]
) -> tuple[Tensor, Tensor]:
    """Outputs of one verification, and the state that the paths to `ends` commit."""
    verifier, recoverer, layer = make(verify, recover, tree.depth + 1)
    state = state.clone()
    out, record = step(verifier, recoverer, layer, state, inputs, tree)
    recoverer.commit(state, record, *paths([tree] * BATCH, ends, padding=tree.nodes - 1))
    recoverer.flush(state)
    return out, state


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(("verify", "recover"), PAIRS)
def test_lost_nodes_stay_apart(verify: str, recover: str, value: float) -> None:
    """All of a node's inputs, as a NaN embedding makes them, or one of them alone: v that overflows."""
    generator = torch.Generator().manual_seed(11)
    for nodes, parts in ((9, (0, 1, 2, 3, 4)), (17, (1,)), (6, (2,)), (12, (3,)), (24, (4,))):
        tree = random_tree(nodes, generator)
        tree = {"ar": chain(0), "chain": chain(nodes - 1)}.get(verify, tree)
        inputs, state = node_inputs(BATCH, tree.nodes, GROUPED, generator), random_state(BATCH, GROUPED, generator)
        hit = torch.rand(BATCH, tree.nodes, generator=generator) < 0.2
        hit[0, -1], hit[1:, 0] = True, verify == "ar"
        seen = shared(tree).path_sums.bool() & hit[:, None]
        lost = seen.any(2)
        ends = torch.randint(-1, tree.nodes, (BATCH,), generator=generator).tolist()
        clean, committed = run(verify, recover, tree, inputs, state, ends)
        out, after = run(verify, recover, tree, poisoned(inputs, hit, parts, value), state, ends)
        assert same_bits(out[~lost], clean[~lost])
        assert not out[lost].isfinite().flatten(1).all(1).any()
        for row, end in enumerate(ends):
            if end >= 0 and bool(lost[row, end]):
                assert not bool(after[row].isfinite().all())
            else:
                assert same_bits(after[row], committed[row])


@pytest.mark.parametrize("recover", ["factors_deferred", "factors_lazy"])
@pytest.mark.parametrize("verify", ["chain", "tree", "hybrid"])
def test_what_was_committed_stays_lost(verify: str, recover: str) -> None:
    """An accepted node with NaN loses the row for good, as decoding token by token does; other rows go on."""
    generator = torch.Generator().manual_seed(12)
    tree = chain(3)
    verifier, recoverer, layer = make(verify, recover, 4, ring=12)
    state = random_state(2, GROUPED, generator)
    for _ in range(3):
        inputs = node_inputs(2, 4, GROUPED, generator)
        hit = torch.tensor([[False, True, False, False], [False, False, False, True]])
        out, record = step(verifier, recoverer, layer, state, poisoned(inputs, hit, (0, 1, 2, 3, 4), torch.nan), tree)
        recoverer.commit(state, record, *paths([tree] * 2, [1, 2]))
        assert out[1, :3].isfinite().all()
    assert out[0].isnan().flatten(1).any(1).all()
    recoverer.flush(state)
    assert state[1].isfinite().all() and not bool(state[0].isfinite().all())


def test_an_overflow_of_finite_inputs_is_nobody_elses_fault() -> None:
    """No input to blame: what the products made is returned."""
    generator = torch.Generator().manual_seed(13)
    inputs, state = node_inputs(BATCH, 3, GROUPED, generator), random_state(BATCH, GROUPED, generator)
    out, _ = run("tree", "factors", chain(2), inputs._replace(v=inputs.v * 3e38), state, [0] * BATCH)
    assert not bool(out.isfinite().all())


def test_padding_of_a_prompt_may_embed_nan() -> None:
    """What stands left of a shorter prompt is replaced: weighed by zero, NaN would reach the state."""
    torch.manual_seed(0)
    config = tiny_config()
    mixer = GatedDeltaNet(config).eval()
    x = torch.randn(2, 5, config.hidden_size)
    valid = torch.tensor([[False, False, True, True, True], [True] * 5])
    with torch.inference_mode():
        wanted, state = mixer.sequence(x, None, valid)
        x[0, :2] = torch.nan
        out, found = mixer.sequence(x, None, valid)
    assert torch.equal(out[valid], wanted[valid])
    assert torch.equal(found.recurrent, state.recurrent) and torch.equal(found.window, state.window)
