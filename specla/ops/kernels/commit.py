"""A commit from compact factors in one launch, the convolution's window included (paper, section 5.1).

A row that commits nothing keeps its bits: no program of it writes.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.checks import check_factors, check_path, check_state
from specla.ops.kernels.launch import Taken, block_of, overlapped, strided
from specla.ops.kernels.splits import scaled_halves, written
from specla.ops.kernels.window import CHANNELS, move_window, window_of, window_programs
from specla.ops.types import Factors, Moving


@triton.jit(do_not_specialize=["T", "L", "rows"])
def _factors_kernel(
    p_state,
    p_k,
    p_u,
    p_decay,
    p_path,
    p_length,
    p_window,
    p_raw,
    T,
    L,
    rows,
    k_row,
    k_node,
    u_row,
    u_node,
    raw_row,
    raw_node,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    W: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    BL: tl.constexpr,
    BC: tl.constexpr,
    EXACT: tl.constexpr,
    REFLECTS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """S <- exp(G_a) S + sum over the path of exp(G_a - G_j) u_j k_j^T, for BV rows of one head's state."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = (i_bh // HV).to(tl.int64), i_bh % HV
    p_path += i_b % rows * L
    length = tl.load(p_length + i_b % rows)
    if length > 0:
        if i_v >= V // BV:
            p_window += i_b * (W - 1) * C
            move_window(p_window, p_raw + i_b * raw_row, p_path, length, (i_v - V // BV) * HV + i_h, raw_node, C, W, BC)
        else:
            o_l, o_v, o_k = tl.arange(0, BL), i_v * BV + tl.arange(0, BV), tl.arange(0, BK)
            inside = o_k < K
            # The state is on its way before all that it is weighed with.
            p_s = p_state + (i_bh.to(tl.int64) * V + o_v[:, None]) * K + o_k[None, :]
            b_s = tl.load(p_s, mask=inside[None, :], other=0.0)
            on_path = o_l < length
            nodes = tl.load(p_path + o_l, mask=on_path, other=0)
            p_path_u = p_u + i_b * u_row + i_h * V + nodes[None, :] * u_node + o_v[:, None]
            b_u = tl.load(p_path_u, mask=on_path[None, :], other=0.0)
            p_path_k = p_k + i_b * k_row + (i_h // (HV // H)) * K + nodes[:, None] * k_node + o_k[None, :]
            b_k = tl.load(p_path_k, mask=on_path[:, None] & inside[None, :], other=0.0)
            decay = tl.load(p_decay + i_b * T * HV + i_h + nodes * HV, mask=on_path, other=0.0)
            # G falls along a path: the newest is the least.
            total = tl.min(decay, axis=0)
            weight = tl.where(on_path, tl.exp((total - decay).to(tl.float32)), 0.0)
            high, low, down = scaled_halves(b_u * weight[None, :], REFLECTS)
            b_s = tl.exp(total.to(tl.float32)) * b_s + written(high, low, down, b_k, EXACT, REFLECTS)
            tl.store(p_s, b_s, mask=inside[None, :])


class Tiles(NamedTuple):
    """How a commit is cut up: rows of the state in a block, with all of their columns, and warps."""

    values: int
    warps: int


def tiles_for(heads: int) -> Tiles:
    """What was measured to be fast on an H200 for so many value heads in a batch (K = V = 256)."""
    return Tiles(16 if 32 < heads < 256 else 32, 4)


def commit_factors(
    state: Tensor,
    factors: Factors,
    taken: Taken,
    moving: Moving | None = None,
    tiles: Tiles | None = None,
    *,
    reflects: bool = False,
) -> None:
    """Take the accepted factors into `state` [B, HV, V, K] float32, in place.

    Args:
        state: contiguous.
        factors: of the T nodes; decays in float64.
        taken: the path.
        moving: the convolution's window, moved along in the same launch.
        tiles: None for what was measured to be fast.
        reflects: whether write strengths may exceed 1 (`RecoverStrategy.reflects`).

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    check_state(state)
    check_factors("", state, factors)
    check_path(state.shape[0], taken.path, taken.length)
    batch, value_heads, value_size, key_size = state.shape
    window, raw = window_of(moving, state)
    path, length = taken.path.contiguous(), taken.length.contiguous()
    k, u, decay = strided(factors.k), strided(factors.u), factors.decay.double().contiguous()
    tiles = tiles or tiles_for(batch * value_heads)
    values = block_of(value_size, tiles.values)
    _factors_kernel[(value_size // values + window_programs(window, value_heads), batch * value_heads)](
        state, k.data, u.data, decay, path, length, window, raw,
        decay.shape[1], path.shape[1], path.shape[0], k.row, k.node, u.row, u.node, raw.stride(0), raw.stride(1),
        H=k.data.shape[2], HV=value_heads, K=key_size, V=value_size, C=window.shape[2], W=window.shape[1] + 1,
        BK=triton.next_power_of_2(key_size), BV=values, BL=max(16, triton.next_power_of_2(path.shape[1])), BC=CHANNELS,
        EXACT=k.data.dtype == torch.bfloat16, REFLECTS=reflects, num_warps=tiles.warps, **overlapped(state),
    )  # fmt: skip
