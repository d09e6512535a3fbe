"""The oracle itself: node by node against the closed form of the tree mask, and its parts against each other."""

import pytest
import torch

from specla.ops.reference import reference_commit, reference_commit_factors, reference_verify
from specla.ops.types import Factors, Known
from tests.ops.cases import GROUPED, ODD, known_factors, node_inputs, paths, random_state, random_tree, shared
from tests.tolerances import relative_rms

FLOAT64 = 1e-12


@pytest.mark.parametrize("nodes", [1, 7, 20])
def test_matches_the_closed_form(nodes: int) -> None:
    generator = torch.Generator().manual_seed(nodes)
    tree = shared(random_tree(nodes, generator))
    inputs = node_inputs(1, nodes, ODD, generator)
    state = random_state(1, ODD, generator).double()
    found = reference_verify(state.clone(), inputs, tree)
    assert found.factors is not None
    mask = tree.ancestors[0].double()
    q, k = inputs.q[0, :, 0].double(), inputs.k[0, :, 0].double()
    for head in range(ODD.value_heads):
        v, g, b = (x[0, :, head].double() for x in (inputs.v, inputs.g, inputs.beta))
        path = mask + torch.eye(nodes, dtype=torch.float64)
        total = path @ g
        ratio = (total[:, None] - total).where(path > 0, -torch.inf).exp()
        lower = b[:, None] * mask * ratio * (k @ k.T)
        target = b[:, None] * (v - total.exp()[:, None] * (k @ state[0, head].T))
        u = torch.linalg.solve(torch.eye(nodes) + lower, target)
        out = total.exp()[:, None] * (q @ state[0, head].T) + (path * ratio * (q @ k.T)) @ u
        assert relative_rms(found.factors.u[0, :, head], u) < FLOAT64
        assert relative_rms(found.out[0, :, head], out) < FLOAT64
        assert relative_rms(found.factors.decay[0, :, head], total) < FLOAT64


def test_commits_agree_with_the_state_of_the_node() -> None:
    generator = torch.Generator().manual_seed(0)
    tree = random_tree(15, generator)
    inputs = node_inputs(4, 15, GROUPED, generator)
    state = random_state(4, GROUPED, generator).double()
    found = reference_verify(state.clone(), inputs, shared(tree))
    assert found.factors is not None and found.states is not None
    ends = [14, 0, -1, 9]
    path, length = paths([tree] * 4, ends)
    replayed = reference_commit(state, inputs, path, length)
    multiplied = reference_commit_factors(state, found.factors, path, length)
    for row, end in enumerate(ends):
        wanted = found.states[row, end] if end >= 0 else state[row]
        assert relative_rms(replayed[row], wanted) < FLOAT64
        assert relative_rms(multiplied[row], wanted) < FLOAT64


def test_known_factors_equal_a_committed_state() -> None:
    generator = torch.Generator().manual_seed(1)
    tree = shared(random_tree(9, generator))
    before, inputs = (node_inputs(3, nodes, GROUPED, generator) for nodes in (4, 9))
    valid = torch.tensor([[True, True, True, True], [True, True, False, False], [False] * 4])
    state = random_state(3, GROUPED, generator).double()
    line = shared(random_tree(4, generator, reach=1))
    first = reference_verify(state.clone(), before, line)
    assert first.factors is not None
    committed = reference_commit(state, before, torch.arange(4).repeat(3, 1), valid.sum(1))
    wanted = reference_verify(committed.clone(), inputs, tree)
    fold = torch.tensor([False, True, True])
    held = state.clone()
    found = reference_verify(held, inputs, tree, Known(first.factors, valid), fold)
    assert relative_rms(found.out, wanted.out) < FLOAT64
    assert relative_rms(held[1:], committed[1:]) < FLOAT64
    assert torch.equal(held[0], state[0])
    assert found.factors is not None and wanted.factors is not None
    assert relative_rms(found.factors.decay[0], wanted.factors.decay[0] + first.factors.decay[0, 3]) < FLOAT64
    assert relative_rms(found.factors.decay[1:], wanted.factors.decay[1:]) < FLOAT64


def test_known_padding_is_never_read() -> None:
    generator = torch.Generator().manual_seed(2)
    valid = torch.tensor([[False, True, False, True]])
    known = known_factors(valid, ODD, generator)
    tight = Known(Factors(*(x[:, valid[0]] for x in known.factors)), torch.ones(1, 2, dtype=torch.bool))
    tree, inputs = shared(random_tree(3, generator)), node_inputs(1, 3, ODD, generator)
    state = random_state(1, ODD, generator).double()
    loose, packed = (reference_verify(state.clone(), inputs, tree, part) for part in (known, tight))
    assert torch.equal(loose.out, packed.out)
