"""Kernels, too, keep nodes whose inputs are not finite from all but their descendants."""

import pytest
import torch

from specla.ops.kernels.commit import commit_factors
from specla.ops.kernels.launch import Taken
from specla.ops.kernels.parent_pointer import verify_by_parents
from specla.ops.kernels.tree import Tiles, verify_tree
from specla.ops.kernels.walk import Pending, verify_chain, verify_hybrid
from specla.ops.lost import marked
from specla.ops.types import HeadShape, NodeInputs, VerifyOutput
from specla.topology import DraftTree, chain, explicit, kary
from tests.ops.cases import paths, same_bits
from tests.ops.kernels.verification import VALID, Case, draw

SHAPE = HeadShape(1, 1, 16, 16)
ONE_PROGRAM = Tiles(64, 64, 4, 2, None, 4, 64)
COLUMNS_APART = Tiles(16, 16, 2, 3, None, 4, 16)
WIDE = explicit([-1, *[0] * 40, *range(1, 26)])
"""Sixty-six nodes, two levels: the children of nodes of the first launch are in the second."""
ALL = NodeInputs._fields
CASES: list[tuple[str, DraftTree, list[int], tuple[str, ...]]] = [
    ("tree", kary(2, 7), [1, 6], ALL),
    *(("tree", kary(2, 7), [1, 6], (what,)) for what in ALL[1:]),
    ("tree", chain(11), [4], ALL),
    ("tree", chain(11), [4], ("v",)),
    ("reflections", kary(2, 7), [1, 6], ALL),
    ("columns", kary(2, 18), [3, 17], ALL),
    ("tree", WIDE, [2, 30, 65], ALL),
    ("chain", chain(4), [2], ALL),
    ("hybrid", kary(2, 5), [1], ALL),
    ("parents", kary(2, 4), [1], ALL),
]
"""The kernel, the nodes, and which inputs of which of them are not finite."""


def verified(by: str, case: Case) -> VerifyOutput:
    """By the tree mask from marked inputs, by walks from whatever comes."""
    state, inputs, tree, known = case
    if by == "chain":
        return verify_chain(state, inputs, tree, Pending(known, None))
    if by == "hybrid":
        return verify_hybrid(state, inputs, tree, Pending(known, None))
    if by == "parents":
        return verify_by_parents(state, inputs, tree)
    tiles = COLUMNS_APART if by == "columns" else ONE_PROGRAM
    return verify_tree(state, marked(inputs), tree, known, tiles=tiles, reflects=by == "reflections")


@pytest.mark.parametrize(
    ("by", "tree", "hit", "what"), CASES, ids=[f"{by}-{tree.nodes}-{''.join(what)}" for by, tree, _, what in CASES]
)
def test_lost_nodes_stay_apart(
    by: str, tree: DraftTree, hit: list[int], what: tuple[str, ...], device: torch.device
) -> None:
    """One row of two has them; behind a ring where the kernel takes one."""
    ring = None if by in ("columns", "parents") else VALID[:2]
    case = draw(tree, SHAPE, 2, torch.float32, ring)
    clean = verified(by, case.to(device))
    dirty = NodeInputs(*(x.clone() for x in case.inputs))
    for name in what:
        getattr(dirty, name)[0, hit] = torch.inf if what == ("v",) else torch.nan
    found = verified(by, case._replace(inputs=dirty).to(device))
    lost = torch.zeros(2, tree.nodes, dtype=torch.bool, device=device)
    lost[0] = torch.tensor([bool(set(tree.path(node)) & set(hit)) for node in range(tree.nodes)])
    assert same_bits(found.out[~lost], clean.out[~lost])
    assert not found.out[lost].isfinite().flatten(1).all(1).any()
    if found.factors is None or clean.factors is None:
        return
    assert same_bits(found.factors.u[~lost], clean.factors.u[~lost])
    assert torch.equal(found.factors.decay[~lost], clean.factors.decay[~lost])
    # Either makes a commit of it a state that is not finite.
    told = torch.cat((found.factors.u.flatten(2), found.factors.decay), dim=2)
    assert not told[lost].isfinite().all(1).any()


def test_a_commit_reads_its_path_alone(device: torch.device) -> None:
    """A path to a lost node makes a state that is not finite; the path beside it has its bits."""
    tree = kary(2, 7)
    case = draw(tree, SHAPE, 2, torch.float32)
    clean = verify_tree(*case.to(device), tiles=ONE_PROGRAM)
    for x in case.inputs:
        x[:, 1] = torch.nan
    found = verify_tree(*case._replace(inputs=marked(case.inputs)).to(device), tiles=ONE_PROGRAM)
    path, length = (x.to(device) for x in paths([tree] * 2, [5, 4], padding=1))
    states = []
    for output in (clean, found):
        assert output.factors is not None
        states.append(case.state.to(device))
        states[-1] = states[-1].clone()
        commit_factors(states[-1], output.factors, Taken(path, length))
    assert same_bits(states[0][0], states[1][0])
    assert not bool(states[1][1].isfinite().all())
