"""Products of a few rows on tensor cores: the weight's rows stand in the rows of the products.

A program has blocks of its weight on their way into shared memory before it waits for x. Where a launch would have too
few programs, several share a row of the weight, and whoever comes last adds up what they found.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents


@triton.jit
def _wait():
    """`gdc_wait` that returns zero: what adds it to an address cannot be moved before it."""
    code: tl.constexpr = "griddepcontrol.wait; mov.b32 $0, 0;"
    return tl.inline_asm_elementwise(code, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def _scale(p_x, squares, rows, epsilon, M, K: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr):
    """1 / RMS of every row, [BM]: from the sums that the stream's producer left, or from the rows themselves."""
    if squares is not None:
        o_tile = tl.arange(0, triton.next_power_of_2(TILES))
        mask = rows[:, None] & (o_tile < TILES)[None, :]
        p_squares = squares + tl.arange(0, BM)[:, None] * TILES + o_tile[None, :]
        b_sum = tl.sum(tl.load(p_squares, mask=mask, other=0), axis=1)
    else:
        b_sum = tl.zeros([BM], tl.float32)
        for i_k in range(0, K, BK):
            o_k = i_k + tl.arange(0, BK)
            mask = rows[:, None] & (o_k < K)[None, :]
            b_x = tl.load(p_x + o_k[None, :], mask=mask, other=0).to(tl.float32)
            b_sum += tl.sum(b_x * b_x, axis=1)
    return tl.rsqrt(b_sum / K + epsilon)


@triton.jit
def _rows_of_x(p_x, o_k, mask, K: tl.constexpr, EVEN: tl.constexpr):
    """x [BM, BK]."""
    return tl.load(p_x + o_k[None, :], mask=mask if EVEN else mask & (o_k < K)[None, :], other=0)


@triton.jit
def _norm_of(norm_weight, o_k, mask, K: tl.constexpr, EVEN: tl.constexpr, BM: tl.constexpr):
    """The norm's weight for every row, [BM, BK], as x lies: what is one row would have to change places."""
    zeros = tl.zeros([BM, 1], tl.int32)
    return tl.load(norm_weight + zeros + o_k[None, :], mask=mask if EVEN else mask & (o_k < K)[None, :], other=0)


@triton.jit
def _finish(
    b_y, residual, y, left, i_n, o_m, M, N, stride_residual, BM: tl.constexpr, BN: tl.constexpr, GATED: tl.constexpr
):
    """Round, gate or add, store; `left` takes the squares of what is stored, summed over the program's columns."""
    kind: tl.constexpr = y.dtype.element_ty
    if GATED:
        o_n = i_n * (BN // 2) + tl.arange(0, BN // 2)
        b_gate, b_up = tl.split(tl.permute(tl.reshape(b_y, [BN // 2, 2, BM]), [0, 2, 1]))
        # Rounded where the torch form rounds: both products, the gate, and what comes of them.
        b_gate = b_gate.to(kind).to(tl.float32)
        b_gate = (b_gate / (1 + tl.exp(-b_gate))).to(kind).to(tl.float32)
        b_y = b_gate * b_up.to(kind).to(tl.float32)
    else:
        o_n = i_n * BN + tl.arange(0, BN)
    mask = (o_n < N)[:, None] & (o_m < M)[None, :]
    b_y = b_y.to(kind)
    if residual is not None:
        p_residual = residual + o_m[None, :] * stride_residual + o_n[:, None]
        b_y = (b_y.to(tl.float32) + tl.load(p_residual, mask=mask, other=0).to(tl.float32)).to(kind)
    tl.store(y + o_m[None, :] * N + o_n[:, None], b_y, mask=mask)
    if left is not None:
        b_wide = tl.where(mask, b_y.to(tl.float32), 0.0)
        tl.store(left + o_m * tl.num_programs(0) + i_n, tl.sum(b_wide * b_wide, axis=0), mask=o_m < M)


@triton.jit(do_not_specialize=["M"])
def matrix_kernel(
    x,
    weight,
    norm_weight,
    squares,
    residual,
    y,
    normed,
    left,
    partials,
    counters,
    epsilon,
    M,
    stride_x,
    stride_residual,
    N: tl.constexpr,
    K: tl.constexpr,
    TILES: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    GATED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """BN rows of the weight, one part of SPLIT of its columns; of a gated pair BN / 2 of each, in turn.

    N counts what is stored.
    """
    i_n, i_part = tl.program_id(0), tl.program_id(1)
    BLOCKS: tl.constexpr = triton.cdiv(triton.cdiv(K, SPLIT), BK)
    EVEN: tl.constexpr = BLOCKS * BK * SPLIT == K
    first = i_part * (BLOCKS * BK)
    o_row = tl.arange(0, BN)
    # Rows beyond the last read it again: their products are not stored.
    if GATED:
        o_n = tl.minimum(i_n * (BN // 2) + o_row // 2, N - 1) + (o_row % 2) * N
    else:
        o_n = tl.minimum(i_n * BN + o_row, N - 1)
    p_weight = weight + o_n.to(tl.int64)[:, None] * K
    if OVERLAP:
        gdc_launch_dependents()
    o_m = tl.arange(0, BM)
    rows = o_m < M
    p_x = x + o_m.to(tl.int64)[:, None] * stride_x
    b_scale = tl.zeros([BM], tl.float32)
    b_x = tl.zeros([BM, BK], x.dtype.element_ty)
    b_next = b_x
    if norm_weight is not None:
        b_norm = tl.zeros([BM, BK], norm_weight.dtype.element_ty)
    b_y = tl.zeros([BN, BM], tl.float32)
    # One round more than blocks: the first has no x to multiply, so that it waits for x while blocks of the weight,
    # which wait for nothing, are on their way already.
    for i_k in range(0, BLOCKS + 1):
        o_k = first + (i_k - 1) * BK + tl.arange(0, BK)
        some = i_k > 0
        if EVEN:
            b_weight = tl.load(p_weight + o_k[None, :], mask=some, other=0)
        else:
            b_weight = tl.load(p_weight + o_k[None, :], mask=some & (o_k < K)[None, :], other=0)
        b_now = b_x
        if norm_weight is not None:
            # Rounded once.
            b_now = (b_x.to(tl.float32) * b_scale[:, None] * b_norm.to(tl.float32)).to(b_x.dtype)
        b_x = b_next
        if i_k == 0:
            if OVERLAP:
                # Times 16: the compiler shall go on knowing that x is aligned.
                p_x += 16 * _wait()
            b_x = _rows_of_x(p_x, o_k + BK, rows[:, None], K, EVEN)
            if norm_weight is not None:
                b_scale = _scale(p_x, squares, rows, epsilon, M, K, BM, BK, TILES)
        # Two rounds before it is multiplied.
        b_next = _rows_of_x(p_x, o_k + 2 * BK, rows[:, None] & (i_k < BLOCKS - 1), K, EVEN)
        if norm_weight is not None:
            b_norm = _norm_of(norm_weight, o_k + BK, rows[:, None] & (i_k < BLOCKS), K, EVEN, BM)
        b_y = tl.dot(b_weight, tl.trans(b_now), b_y, input_precision="ieee")
        if normed is not None:
            # Block by block another program's: one alone would end late.
            mine = some & ((i_k - 1) % tl.num_programs(0) == i_n)
            tl.store(normed + o_m[:, None] * K + o_k[None, :], b_now, mask=(mine & rows)[:, None] & (o_k < K)[None, :])
    if SPLIT == 1:
        _finish(b_y, residual, y, left, i_n, o_m, M, N, stride_residual, BM, BN, GATED)
    else:
        o_part = tl.arange(0, BN)[:, None] * BM + o_m[None, :]
        p_part = partials + i_n * (SPLIT * BN * BM) + o_part
        tl.store(p_part + i_part * (BN * BM), b_y)
        # All of the program's stores come before its sign that they are there.
        tl.debug_barrier()
        if tl.atomic_add(counters + i_n, 1, sem="acq_rel", scope="gpu") == SPLIT - 1:
            # Whoever comes last adds in one order, so the sum has the same bits every time.
            b_y = tl.zeros([BN, BM], tl.float32)
            for i in tl.static_range(SPLIT):
                b_y += tl.load(p_part + i * (BN * BM), cache_modifier=".cg")
            tl.store(counters + i_n, 0)
            _finish(b_y, residual, y, left, i_n, o_m, M, N, stride_residual, BM, BN, GATED)
