"""Products of one row, without tensor cores: every thread multiplies what it has loaded.

A program takes a few whole rows of the weight, and all of them are in its registers or on their way before it waits
for x: programs of a launch, and of the launch behind it, are so small that a multiprocessor holds many.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _blocks(p_row, o_k, K: tl.constexpr):
    """One row of x, or a norm's weight, in blocks of [1, BK]: so it lies as the weight's rows do."""
    blocks = ()  # type: tuple[tl.tensor, ...]
    for i in tl.static_range(triton.cdiv(K, o_k.shape[1])):
        o_x = i * o_k.shape[1] + o_k
        blocks += (tl.load(p_row + o_x, mask=o_x < K, other=0),)
    return blocks


@triton.jit
def _normed(blocks, weights, epsilon, K: tl.constexpr):
    """The row after its norm, rounded once."""
    b_square = tl.zeros(blocks[0].shape, tl.float32)
    for i in tl.static_range(len(blocks)):
        b_square += blocks[i].to(tl.float32) * blocks[i].to(tl.float32)
    scale = tl.rsqrt(tl.sum(b_square) / K + epsilon)
    normed = ()  # type: tuple[tl.tensor, ...]
    for i in tl.static_range(len(blocks)):
        b_x = blocks[i].to(tl.float32) * scale * weights[i].to(tl.float32)
        normed += (b_x.to(blocks[i].dtype),)
    return normed


@triton.jit
def vector_kernel(
    x,
    weight,
    norm_weight,
    residual,
    y,
    normed,
    epsilon,
    N: tl.constexpr,
    K: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GATED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row of x times BN rows of the weight; of a gated pair BN / 2 of each, in turn. N counts what is stored."""
    i_n = tl.program_id(0)
    o_row, o_k = tl.arange(0, BN), tl.arange(0, BK)[None, :]
    # Rows beyond the last read it again: their products are not stored.
    if GATED:
        o_n = tl.minimum(i_n * (BN // 2) + o_row // 2, N - 1) + (o_row % 2) * N
    else:
        o_n = tl.minimum(i_n * BN + o_row, N - 1)
    p_weight = weight + o_n.to(tl.int64)[:, None] * K
    held = ()  # type: tuple[tl.tensor, ...]
    for i in tl.static_range(triton.cdiv(K, BK)):
        if K % BK == 0:
            held += (tl.load(p_weight + i * BK + o_k),)
        else:
            held += (tl.load(p_weight + i * BK + o_k, mask=i * BK + o_k < K, other=0),)
    if norm_weight is not None:
        norm_weights = _blocks(norm_weight, o_k, K)
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
    blocks = _blocks(x, o_k, K)
    if norm_weight is not None:
        blocks = _normed(blocks, norm_weights, epsilon, K)
        if normed is not None:
            for i in tl.static_range(triton.cdiv(K, BK)):
                o_x = i * BK + o_k
                tl.store(normed + o_x, blocks[i], mask=(o_x < K) & (i_n == 0))
    b_sum = tl.zeros([BN, BK], tl.float32)
    for i in tl.static_range(triton.cdiv(K, BK)):
        b_sum += held[i].to(tl.float32) * blocks[i].to(tl.float32)
    b_y = tl.sum(b_sum, axis=1)
    kind: tl.constexpr = y.dtype.element_ty
    if GATED:
        o_y = i_n * (BN // 2) + tl.arange(0, BN // 2)
        b_gate, b_up = tl.split(tl.reshape(b_y, [BN // 2, 2]))
        # Rounded where the torch form rounds: both products, the gate, and what comes of them.
        b_gate = b_gate.to(kind).to(tl.float32)
        b_gate = (b_gate / (1 + tl.exp(-b_gate))).to(kind).to(tl.float32)
        b_y = b_gate * b_up.to(kind).to(tl.float32)
    else:
        o_y = i_n * BN + o_row
    b_y = b_y.to(kind)
    if residual is not None:
        b_y = (b_y.to(tl.float32) + tl.load(residual + o_y, mask=o_y < N, other=0).to(tl.float32)).to(kind)
    tl.store(y + o_y, b_y, mask=o_y < N)
