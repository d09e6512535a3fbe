"""Accepted factors put into a ring in one launch, the convolution's window included: the commit of `factors_lazy`."""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.checks import check_path, check_ring
from specla.ops.kernels.launch import Taken, overlapped, strided
from specla.ops.kernels.window import CHANNELS, move_window, window_of
from specla.ops.types import Factors, Filled, Moving

SIZE = 512
"""Numbers of a factor that a program copies."""


@triton.jit
def _copy_factor(p_ring, p_new, p_path, base, length, ring_node, new_node, o_x, inside):
    """The path's factors, a place each from `base` on."""
    for place in range(0, length):
        node = tl.load(p_path + place)
        tl.store(
            p_ring + (base + place) * ring_node + o_x, tl.load(p_new + node * new_node + o_x, mask=inside), mask=inside
        )


@triton.jit(do_not_specialize=["T", "L", "R", "rows", "longest"])
def _append_kernel(
    p_ring_k,
    p_ring_u,
    p_ring_decay,
    p_k,
    p_u,
    p_decay,
    p_count,
    p_fold,
    p_new_count,
    p_new_fold,
    p_path,
    p_length,
    p_window,
    p_raw,
    T,
    L,
    R,
    rows,
    longest,
    k_row,
    k_node,
    u_row,
    u_node,
    raw_row,
    raw_node,
    KEYS: tl.constexpr,
    VALUES: tl.constexpr,
    HEADS: tl.constexpr,
    C: tl.constexpr,
    W: tl.constexpr,
    BX: tl.constexpr,
    BH: tl.constexpr,
    BC: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Some numbers of a row's factors: keys first, then u, then decays and the counts, then the window's channels."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_x, i_b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    p_path += i_b % rows * L
    length = tl.load(p_length + i_b % rows)
    # What was folded by the verification that made these factors is in the ring no more.
    base = tl.where(tl.load(p_fold + i_b) != 0, 0, tl.load(p_count + i_b))
    keys: tl.constexpr = (KEYS + BX - 1) // BX
    values: tl.constexpr = (VALUES + BX - 1) // BX
    if i_x < keys:
        o_x = i_x * BX + tl.arange(0, BX)
        p_ring_k += i_b * R * KEYS
        _copy_factor(p_ring_k, p_k + i_b * k_row, p_path, base, length, KEYS, k_node, o_x, o_x < KEYS)
    elif i_x < keys + values:
        o_x = (i_x - keys) * BX + tl.arange(0, BX)
        p_ring_u += i_b * R * VALUES
        _copy_factor(p_ring_u, p_u + i_b * u_row, p_path, base, length, VALUES, u_node, o_x, o_x < VALUES)
    elif i_x == keys + values:
        o_h = tl.arange(0, BH)
        p_ring_decay += i_b * R * HEADS
        _copy_factor(p_ring_decay, p_decay + i_b * T * HEADS, p_path, base, length, HEADS, HEADS, o_h, o_h < HEADS)
        tl.store(p_new_count + i_b, base + length)
        tl.store(p_new_fold + i_b, (base + length + longest > R).to(tl.int8))
    elif length > 0:
        p_window += i_b * (W - 1) * C
        move_window(p_window, p_raw + i_b * raw_row, p_path, length, i_x - keys - values - 1, raw_node, C, W, BC)


def append(
    ring: Factors,
    factors: Factors,
    taken: Taken,
    filled: Filled,
    longest: int,
    moving: Moving | None = None,
    after: Filled | None = None,
) -> Filled:
    """Put the accepted factors of every row behind those that its ring holds.

    Args:
        ring: R places, written in place.
        factors: of the T nodes.
        taken: the path.
        filled: before.
        longest: the most nodes that a step commits: a ring without room for so many folds next.
        moving: the convolution's window, moved along in the same launch.
        after: where it is put how full the rings are now; None for new memory. That of `filled` will do where every
            row has just folded: otherwise programs of this launch still read it.

    Returns:
        How full the rings are now.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    check_ring(ring, factors, filled)
    check_path(ring.k.shape[0], taken.path, taken.length)
    path, length = taken.path.contiguous(), taken.length.contiguous()
    window, raw = window_of(moving, ring.k)
    k, u, decay = strided(factors.k), strided(factors.u), factors.decay.double().contiguous()
    after = after or Filled(torch.empty_like(filled.used), torch.empty_like(filled.fold))
    batch, places = ring.k.shape[:2]
    keys, values, heads = ring.k[0, 0].numel(), ring.u[0, 0].numel(), decay.shape[2]
    programs = triton.cdiv(keys, SIZE) + triton.cdiv(values, SIZE) + 1 + triton.cdiv(window.shape[2], CHANNELS)
    _append_kernel[(programs, batch)](
        *ring, k.data, u.data, decay, filled.used, filled.fold.view(torch.int8),
        after.used, after.fold.view(torch.int8), path, length, window, raw,
        decay.shape[1], path.shape[1], places, path.shape[0], longest,
        k.row, k.node, u.row, u.node, raw.stride(0), raw.stride(1),
        KEYS=keys, VALUES=values, HEADS=heads, C=window.shape[2], W=window.shape[1] + 1,
        BX=SIZE, BH=triton.next_power_of_2(heads), BC=CHANNELS, num_warps=4, **overlapped(path),
    )  # fmt: skip
    return after
