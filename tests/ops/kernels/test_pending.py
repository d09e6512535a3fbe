"""Committed factors that the state does not hold: known beside it, or folded into it by what verifies on it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specla.ops.reference import reference_verify
from specla.ops.types import Factors, Fold, HeadShape, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.topology import DraftTree, chain, kary
from tests.ops.cases import known_factors, node_inputs, random_state
from tests.tolerances import assert_close

SHAPE = HeadShape(1, 2, 32, 16)
COUNTS = [5, 0, 2]
"""Of the rows: a full ring, an empty one, some."""
SOME: list[bool] = [True, True, False]
KINDS = ("bank", "count", "mask")
Verify = Callable[[Tensor, NodeInputs, TreeTensors, Known, Fold], VerifyOutput]


def masked_tree(state: Tensor, inputs: NodeInputs, tree: TreeTensors, known: Known, fold: Fold) -> VerifyOutput:
    from specla.ops.kernels.tree import verify_tree

    return verify_tree(state, inputs, tree, known, fold)


def chained(state: Tensor, inputs: NodeInputs, tree: TreeTensors, known: Known, fold: Fold) -> VerifyOutput:
    from specla.ops.kernels.walk import Pending, verify_chain

    return verify_chain(state, inputs, tree, Pending(known, fold))


def in_waves(state: Tensor, inputs: NodeInputs, tree: TreeTensors, known: Known, fold: Fold) -> VerifyOutput:
    from specla.ops.kernels.walk import Pending, verify_hybrid

    return verify_hybrid(state, inputs, tree, Pending(known, fold))


VERIFICATIONS: dict[str, tuple[Verify, DraftTree, str]] = {
    "tree": (masked_tree, kary(2, 7), "verify_split"),
    "large": (masked_tree, kary(2, 66), "verify_split"),
    "chain": (chained, chain(2), "verify"),
    "hybrid": (in_waves, kary(2, 5), "verify"),
}


def pending(kind: str, dtype: torch.dtype, generator: torch.Generator) -> Known:
    """Factors as each recovery keeps them; what is not held is not a number."""
    places = max(COUNTS)
    valid = torch.arange(places) < torch.tensor(COUNTS)[:, None]
    known = known_factors(valid, SHAPE, generator, dtype)
    if kind == "mask":
        return known
    if kind == "count":
        return Known(known.factors, torch.tensor(COUNTS))
    # A bank of eight nodes, in which the path's stand in other places.
    order = torch.stack([torch.randperm(8, generator=generator)[:places] for _ in COUNTS])
    bank = []
    for x in known.factors:
        spread = torch.full((len(COUNTS), 8, *x.shape[2:]), torch.nan, dtype=x.dtype)
        for row, nodes in enumerate(order):
            spread[row, nodes] = x[row]
        bank.append(spread)
    return Known(Factors(*bank), torch.tensor(COUNTS), order)


def on(device: torch.device, known: Known) -> Known:
    """The same there."""
    nodes = None if known.nodes is None else known.nodes.to(device)
    return Known(Factors(*(x.to(device) for x in known.factors)), known.valid.to(device), nodes)


FEW = [("bank", True), ("count", SOME), ("mask", None)]
CASES = [(name, kind, fold) for name in ("tree", "chain") for kind in KINDS for fold in (None, True, SOME)]
CASES += [(name, kind, fold) for name in ("large", "hybrid") for kind, fold in FEW]


@pytest.mark.parametrize(("name", "kind", "fold"), CASES)
def test_pending(
    name: str, kind: str, fold: bool | list[bool] | None, dtype: torch.dtype, device: torch.device
) -> None:
    verify, shape, entry = VERIFICATIONS[name]
    generator = torch.Generator().manual_seed(11)
    inputs, state = node_inputs(3, shape.nodes, SHAPE, generator, dtype), random_state(3, SHAPE, generator)
    known, tree = pending(kind, dtype, generator), TreeTensors.from_tree(shape)
    rows = torch.tensor(fold) if isinstance(fold, list) else fold
    folded = state.double()
    truth = reference_verify(folded, inputs, tree, known, rows)
    live, moved = state.to(device), NodeInputs(*(x.to(device) for x in inputs))
    there = rows.to(device) if isinstance(rows, Tensor) else rows
    found = verify(live, moved, TreeTensors.from_tree(shape, device), on(device, known), there)
    assert found.factors is not None and truth.factors is not None
    assert_close(found.out.cpu(), truth.out, entry)
    assert_close(found.factors.u.cpu(), truth.factors.u, entry)
    assert_close(found.factors.decay.cpu(), truth.factors.decay, "decay")
    assert_close(live.cpu(), folded, entry.replace("verify", "commit"))
    # A row that has nothing to take in, or does not fold, keeps its bits.
    for row, count in enumerate(COUNTS):
        folds = fold is True or (isinstance(fold, list) and fold[row])
        if not folds or not count:
            assert torch.equal(live[row].cpu(), state[row])
