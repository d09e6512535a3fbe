"""Trees that the host does not know, from who is whose parent."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.errors import SpeclaError
from specla.ops.growth import NOBODY
from specla.ops.kernels.checks import expect, expect_filled
from specla.ops.kernels.launch import overlapped
from specla.ops.types import TreeTensors

EMPTY: tl.constexpr = tl.constexpr(NOBODY)


def lay(ids: Tensor, parents: Tensor, width: int, levels: int | None = None) -> TreeTensors:
    """Drafts as a tree for each row; the host does not know it.

    Args:
        ids: [B, T] int64, identities, parents before their children.
        parents: [B, T] int64, identities; one that is not among `ids` is the committed state.
        width: W, of the short convolution.
        levels: no node is deeper, the committed state's children being at 0; None where nothing is known.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    expect_filled("identities", ids, 2)
    expect("identities", ids, ids.shape, (torch.int64,), ids)
    expect("parents", parents, ids.shape, (torch.int64,), ids)
    if not ids.is_contiguous() or not parents.is_contiguous():
        raise SpeclaError("identities that do not lie side by side: the kernel takes contiguous tensors")
    batch, nodes = ids.shape
    places, depths = torch.empty_like(ids), torch.empty_like(ids)
    ancestors = torch.empty(batch, nodes, nodes, dtype=torch.bool, device=ids.device)
    taps = ids.new_empty(batch, nodes, width - 1)
    _lay_kernel[nodes, batch](
        *(ids, parents, places, depths, ancestors.view(torch.int8), taps),
        T=nodes,
        W=width,
        BT=triton.next_power_of_2(nodes),
        num_warps=1,
        **overlapped(ids),
    )
    return TreeTensors((), places, depths, ancestors, taps, levels)


@triton.jit
def _lay_kernel(
    p_id,
    p_parent,
    p_place,
    p_depth,
    p_ancestor,
    p_tap,
    T: tl.constexpr,
    W: tl.constexpr,
    BT: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One node: up to the committed state, by identities."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_t, i_b, o_t = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, BT)
    i_n, inside = i_b * T + i_t, o_t < T
    b_id = tl.load(p_id + i_b * T + o_t, mask=inside, other=EMPTY)
    parent = tl.min(tl.where(b_id == tl.load(p_parent + i_n), o_t, BT), axis=0)
    tl.store(p_place + i_n, tl.where(parent < T, parent, -1).to(tl.int64))
    above, depth = inside & (o_t < 0), 0
    while parent < T:
        above = above | (o_t == parent)
        # The newest ancestors are among what the convolution reads.
        tl.store(p_tap + i_n * (W - 1) + (W - 2 - depth), parent.to(tl.int64), mask=depth < W - 1)
        depth += 1
        parent = tl.min(tl.where(b_id == tl.load(p_parent + i_b * T + parent), o_t, BT), axis=0)
    for i in tl.static_range(W - 1):
        tl.store(p_tap + i_n * (W - 1) + i, depth + i - (W - 1), mask=i < W - 1 - depth)
    tl.store(p_depth + i_n, depth)
    tl.store(p_ancestor + i_n * T + o_t, above.to(tl.int8), mask=inside)
