"""Of the faults that users of other engines met (tests/test_peer_faults.py), the one that only kernels can have."""

import torch

from specla.ops.kernels.tree import Tiles, verify_tree
from specla.ops.reference import reference_verify
from specla.ops.types import HeadShape, NodeInputs, TreeTensors
from specla.topology import chain
from tests.ops.cases import node_inputs, random_state, shared
from tests.tolerances import assert_close


def test_06_two_nodes_read_two_nodes(device: torch.device) -> None:
    """Products on tensor cores take sixteen rows, of which two nodes fill two: what lies behind them is NaN.

    Tried with: `b_n` and `b_v` of `read_kernel`, and `b_k` of `solve_kernel`, loaded without their masks.
    """
    generator = torch.Generator().manual_seed(6)
    shape, tree = HeadShape(1, 1, 16, 16), chain(1)
    inputs, state = node_inputs(1, 2, shape, generator), random_state(1, shape, generator)
    truth = reference_verify(state.double(), inputs, shared(tree))
    behind = (torch.cat((x, torch.full((1, 14, *x.shape[2:]), torch.nan)), dim=1)[:, :2] for x in inputs)
    there = NodeInputs(*(x.to(device) for x in behind))
    found = verify_tree(
        state.to(device), there, TreeTensors.from_tree(tree, device), tiles=Tiles(16, 16, 2, 2, None, 4, 16)
    )
    assert found.factors is not None and truth.factors is not None
    assert_close(found.out.cpu(), truth.out, "verify_split")
    assert_close(found.factors.u.cpu(), truth.factors.u, "verify_split")
