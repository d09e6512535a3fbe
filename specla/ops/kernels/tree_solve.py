"""The triangle of a tree's head, solved: M, N and what known factors add. `tree` says what they are.

(I + B)^-1 is found by halves, which is forward substitution by blocks: the inverse of a triangle from those of its two
halves, upper and lower levels of the tree. So a tree takes as many steps as its depth has digits. All matrices on the way
are products of the recurrence's own transitions: none grows, however alike the keys.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.splits import halves, product, split_product


@triton.jit
def _inverse(lower, depth, LEVELS: tl.constexpr):
    """(I + lower)^-1 [BT, BT], joined from nodes of 1, 2, 4, ... depths at a time, up to 2^LEVELS; `depth` is [BT].

    Only ancestors have entries in a row, and they are less deep: nodes of the same depth know nothing of each other.
    """
    o_t = tl.arange(0, lower.shape[0])
    pair = depth[:, None] // 2 == depth[None, :] // 2
    inverse = tl.where(o_t[:, None] == o_t[None, :], 1.0, 0.0) - tl.where(pair, lower, 0.0)
    for level in tl.static_range(1, LEVELS):
        block = depth // (1 << level)
        between = (block[:, None] // 2 == block[None, :] // 2) & (block[:, None] != block[None, :])
        step = split_product(tl.where(between, lower, 0.0), inverse, tl.float16)
        inverse -= split_product(inverse, step, tl.float16)
    return inverse


@triton.jit
def mixing(keys, queries, decay, beta, ancestor, depth, LEVELS: tl.constexpr):
    """(M, N) of a head from K K^T, Q K^T, G (float64), b and the ancestor mask."""
    o_t = tl.arange(0, keys.shape[0])
    related = ancestor | (o_t[:, None] == o_t[None, :])
    # Masked before the exponential: unrelated nodes may differ by anything.
    ratio = tl.exp(tl.where(related, decay[:, None] - decay[None, :], float("-inf")).to(tl.float32))
    inverse = _inverse(tl.where(ancestor, beta[:, None] * ratio * keys, 0.0), depth, LEVELS)
    # Queries are scaled by K^-1/2: float16 halves of what is this small would lose digits.
    weight = split_product(ratio * queries * 1024.0, inverse, tl.float16) * (1.0 / 1024.0)
    return inverse * beta[None, :], weight * beta[None, :]


@triton.jit
def path_sums(p_g, ancestor, o_t, T: tl.constexpr, HV: tl.constexpr):
    """G of a head's nodes, [BT] float64."""
    g = tl.load(p_g + o_t * HV, mask=o_t < T, other=0.0).to(tl.float64)
    related = ancestor | (o_t[:, None] == o_t[None, :])
    return tl.sum(tl.where(related, g[None, :], 0.0), axis=1)


@triton.jit
def _store_halves(p_out, x, LOW: tl.constexpr):
    """Both halves of x, low ones LOW elements after the high ones."""
    high, low = halves(x, tl.bfloat16)
    tl.store(p_out, high)
    tl.store(p_out + LOW, low)


@triton.jit
def key_product(a, b, EXACT: tl.constexpr):
    """a b for keys and queries: 16-bit operands as they are, others in halves."""
    if EXACT:
        return product(a, b)
    return split_product(a, b, tl.bfloat16)


@triton.jit
def solve_kernel(
    p_q,
    p_k,
    p_g,
    p_beta,
    p_ancestor,
    p_depth,
    p_known_k,
    p_known_decay,
    p_known_mask,
    p_decay,
    p_mixing,
    p_pending,
    q_row,
    q_node,
    k_row,
    k_node,
    ancestor_row,
    ancestor_node,
    depth_row,
    mask_row,
    mask_node,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    T: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
    R: tl.constexpr,
    BR: tl.constexpr,
    LEVELS: tl.constexpr,
    SUMMED: tl.constexpr,
    EXACT: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """M and N of every value head, and what its known factors add; decays too, where they are not SUMMED already."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_bh = tl.program_id(0)
    i_b, i_h = i_bh // HV, i_bh % HV
    o_t, o_r = tl.arange(0, BT), tl.arange(0, BR)
    nodes, places = o_t < T, o_r < R
    p_q += i_b.to(tl.int64) * q_row + (i_h // (HV // H)) * K
    p_k += i_b.to(tl.int64) * k_row + (i_h // (HV // H)) * K
    p_known_k += (i_b.to(tl.int64) * R * H + i_h // (HV // H)) * K
    keys, queries = tl.zeros([BT, BT], tl.float32), tl.zeros([BT, BT], tl.float32)
    known_keys, known_queries = tl.zeros([BT, BR], tl.float32), tl.zeros([BT, BR], tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_k = tl.load(p_k + o_t[:, None] * k_node + o_k[None, :], mask=nodes[:, None], other=0.0)
        b_q = tl.load(p_q + o_t[:, None] * q_node + o_k[None, :], mask=nodes[:, None], other=0.0)
        keys += key_product(b_k, tl.trans(b_k), EXACT)
        queries += key_product(b_q, tl.trans(b_k), EXACT)
        if R > 0:
            b_r = tl.load(p_known_k + o_r[:, None] * (H * K) + o_k[None, :], mask=places[:, None], other=0.0)
            known_keys += key_product(b_k, tl.trans(b_r), EXACT)
            known_queries += key_product(b_q, tl.trans(b_r), EXACT)

    p_ancestor += i_b.to(tl.int64) * ancestor_row + o_t[:, None] * ancestor_node + o_t[None, :]
    ancestor = tl.load(p_ancestor, mask=nodes[:, None] & nodes[None, :], other=0) != 0
    depth = tl.load(p_depth + i_b * depth_row + o_t, mask=nodes, other=0).to(tl.int32)
    beta = tl.load(p_beta + i_b.to(tl.int64) * T * HV + i_h + o_t * HV, mask=nodes, other=0.0)
    p_decay += i_b.to(tl.int64) * T * HV + i_h + o_t * HV
    if SUMMED:
        decay = tl.load(p_decay, mask=nodes, other=0.0)
    else:
        decay = path_sums(p_g + i_b.to(tl.int64) * T * HV + i_h, ancestor, o_t, T, HV)
    if R > 0:
        p_known_decay += i_b.to(tl.int64) * R * HV + i_h + o_r * HV
        p_known_mask += i_b.to(tl.int64) * mask_row + o_t[:, None] * mask_node + o_r[None, :]
        mask = tl.load(p_known_mask, mask=nodes[:, None] & places[None, :], other=0) != 0
        known_decay = tl.load(p_known_decay, mask=places, other=0.0)
        if not SUMMED:
            # G falls along a path: the newest known factor is the least.
            decay += tl.min(tl.min(tl.where(mask, known_decay[None, :], 0.0), axis=1), axis=0)
        ratio = tl.exp(tl.where(mask, decay[:, None] - known_decay[None, :], float("-inf")).to(tl.float32))
        p_pending += i_bh.to(tl.int64) * (4 * BT * BR) + o_t[:, None] * BR + o_r[None, :]
        # Padding may hold anything: replaced, not weighed by zero.
        _store_halves(p_pending, tl.where(mask, ratio * known_keys, 0.0), BT * BR)
        _store_halves(p_pending + 2 * BT * BR, tl.where(mask, ratio * known_queries, 0.0), BT * BR)
    if not SUMMED:
        tl.store(p_decay, decay, mask=nodes)
    own, read = mixing(keys, queries, decay, beta, ancestor, depth, LEVELS)
    p_mixing += i_bh.to(tl.int64) * (4 * BT * BT) + o_t[:, None] * BT + o_t[None, :]
    _store_halves(p_mixing, own, BT * BT)
    _store_halves(p_mixing + 2 * BT * BT, read, BT * BT)
