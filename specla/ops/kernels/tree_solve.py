"""The triangle of a tree's head, solved: M, N and what known factors add. `tree` says what they are.

(I + B)^-1 is found by forward substitution, level by level of the tree in flat ones; in deep ones by halves, the
inverse of a triangle from those of its upper and lower levels. All matrices on the way are products of the recurrence's
own transitions: none grows, however alike the keys.

Lost nodes (`specla.ops.lost`) are told by G, which is NaN. Their rows of the triangle, P and P' are zeros: exp(G)
makes their outputs NaN, and G itself what they commit.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.splits import halves, product, product_of_halves, split_product

OWN = tl.constexpr(2.0**12)
READ = tl.constexpr(2.0**15)
"""What M and P, and what N and P', are scaled by in float16. M is no larger than 7 in any tree of 64 nodes, N and P'
have the queries' K^-1/2 in them; float16 ends at 65,504."""


@triton.jit
def _inverse_by_level(lower, identity, DEPTH: tl.constexpr):
    """Columns of (I + lower)^-1, those of `identity` [BT, BC], a level of the tree after the other."""
    high, low = halves(lower, tl.float16)
    inverse = identity
    for _ in tl.static_range(0, DEPTH):
        inverse = identity - product_of_halves(high, low, inverse, tl.float16, False)
    return inverse


@triton.jit
def _inverse_by_halves(lower, identity, depth, DEPTH: tl.constexpr):
    """(I + lower)^-1 [BT, BT]: 1, 2, 4, ... levels of the tree are joined at a time."""
    inverse = identity - tl.where(depth[:, None] // 2 == depth[None, :] // 2, lower, 0.0)
    for level in tl.static_range(1, 7):
        if DEPTH >> level > 0:
            block = depth // (1 << level)
            between = (block[:, None] // 2 == block[None, :] // 2) & (block[:, None] != block[None, :])
            step = split_product(tl.where(between, lower, 0.0), inverse, tl.float16)
            inverse -= split_product(inverse, step, tl.float16)
    return inverse


@triton.jit
def decay_ratio(decay, since, related):
    """exp(G_i - G_j) in float32 where related, else 0, from float64 sums [n] and [m].

    Of two parts each, since float64 differences would take twice the registers. Masked before the exponential:
    unrelated nodes may differ by anything.
    """
    high, since_high = decay.to(tl.float32), since.to(tl.float32)
    low = (decay - high.to(tl.float64)).to(tl.float32)
    since_low = (since - since_high.to(tl.float64)).to(tl.float32)
    difference = (high[:, None] - since_high[None, :]) + (low[:, None] - since_low[None, :])
    return tl.exp(tl.where(related, difference, float("-inf")))


@triton.jit
def mixing(keys, queries, decay, beta, ancestor, depth, column, FLAT: tl.constexpr, DEPTH: tl.constexpr):
    """Columns [BC] of (M, N) of a head, before they are scaled by b.

    Only ancestors have entries in a row of B, and they are less deep. So a level of the tree follows from those above
    it, which takes the fewest products in FLAT trees, and lets columns go to programs of their own.

    Args:
        keys, queries: K K^T and Q K^T, [BT, BT] float32.
        decay: [BT] float64, G.
        beta, depth: [BT].
        ancestor: [BT, BT], the mask.
        column: [BC], which ones; all of them where the tree is not FLAT.
    """
    o_t = tl.arange(0, keys.shape[0])
    related = (ancestor | (o_t[:, None] == o_t[None, :])) & (decay == decay)[:, None]
    ratio = decay_ratio(decay, decay, related)
    lower = tl.where(ancestor, beta[:, None] * ratio * keys, 0.0)
    identity = tl.where(o_t[:, None] == column[None, :], 1.0, 0.0)
    if FLAT:  # noqa: SIM108
        inverse = _inverse_by_level(lower, identity, DEPTH)
    else:
        inverse = _inverse_by_halves(lower, identity, depth, DEPTH)
    # Queries are scaled by K^-1/2: float16 halves of what is this small would lose digits.
    return inverse, split_product(ratio * queries * 1024.0, inverse, tl.float16) * (1.0 / 1024.0)


@triton.jit
def path_sums(g, ancestor):
    """G of a head's nodes, [BT] float64, from g."""
    o_t = tl.arange(0, g.shape[0])
    related = ancestor | (o_t[:, None] == o_t[None, :])
    return tl.sum(tl.where(related, g.to(tl.float64)[None, :], 0.0), axis=1)


@triton.jit
def _store_halves(p_out, x, LOW: tl.constexpr, SCALE: tl.constexpr, REFLECTS: tl.constexpr):
    """Both halves of x, low ones LOW elements after the high ones; with REFLECTS float16 ones of x times SCALE."""
    if REFLECTS:
        high, low = halves(x * SCALE, tl.float16)
    else:
        high, low = halves(x, tl.bfloat16)
    tl.store(p_out, high)
    tl.store(p_out + LOW, low)


@triton.jit
def key_product(a, b):
    """a b for keys and queries: 16-bit operands as they are, others in halves."""
    if a.dtype != tl.float32:
        return product(a, b)
    # Repeated keys reflect: 2^-17 of their products would grow node by node. Scaled, since their elements are small.
    return split_product(a * 32.0, b * 32.0, tl.float16) * (1.0 / 1024.0)


@triton.jit(do_not_specialize=["T", "R"])
def solve_kernel(
    p_q,
    p_k,
    p_g,
    p_beta,
    p_ancestor,
    p_depth,
    p_known_k,
    p_known_decay,
    p_known_nodes,
    p_known_mask,
    p_fold,
    p_decay,
    p_mixing,
    p_pending,
    T,
    R,
    q_row,
    q_node,
    k_row,
    k_node,
    ancestor_row,
    ancestor_node,
    depth_row,
    mask_row,
    mask_node,
    known_nodes,
    known_row,
    known_node,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    BT: tl.constexpr,
    BC: tl.constexpr,
    BK: tl.constexpr,
    KNOWN: tl.constexpr,
    INDEXED: tl.constexpr,
    COUNTED: tl.constexpr,
    FOLDS: tl.constexpr,
    BR: tl.constexpr,
    FLAT: tl.constexpr,
    DEPTH: tl.constexpr,
    SUMMED: tl.constexpr,
    REFLECTS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """BC columns of M and N of a value head, what its known factors add, and decays that are not SUMMED yet."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_bh, i_c = tl.program_id(0), tl.program_id(1)
    i_b, i_h = i_bh // HV, i_bh % HV
    o_t, o_r = tl.arange(0, BT), tl.arange(0, BR)
    nodes, places = o_t < T, o_r < R
    o_place = o_r.to(tl.int64)
    if INDEXED:
        o_place = tl.load(p_known_nodes + i_b * R + o_r, mask=places, other=0)
    p_q += i_b.to(tl.int64) * q_row + (i_h // (HV // H)) * K
    p_k += i_b.to(tl.int64) * k_row + (i_h // (HV // H)) * K
    p_known_k += i_b.to(tl.int64) * known_row + (i_h // (HV // H)) * K + o_place[:, None] * known_node
    # What follows the loop is on its way before it.
    p_ancestor += i_b.to(tl.int64) * ancestor_row + o_t[:, None] * ancestor_node + o_t[None, :]
    ancestor = tl.load(p_ancestor, mask=nodes[:, None] & nodes[None, :], other=0) != 0
    depth = tl.load(p_depth + i_b * depth_row + o_t, mask=nodes, other=0).to(tl.int32)
    o_gate = i_b.to(tl.int64) * T * HV + i_h + o_t * HV
    beta = tl.load(p_beta + o_gate, mask=nodes, other=0.0)
    p_decay += o_gate
    if SUMMED:
        decay = tl.load(p_decay, mask=nodes, other=0.0)
    else:
        g = tl.load(p_g + o_gate, mask=nodes, other=0.0)
    keys, queries = tl.zeros([BT, BT], tl.float32), tl.zeros([BT, BT], tl.float32)
    known_keys, known_queries = tl.zeros([BT, BR], tl.float32), tl.zeros([BT, BR], tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_k = tl.load(p_k + o_t[:, None] * k_node + o_k[None, :], mask=nodes[:, None], other=0.0)
        b_q = tl.load(p_q + o_t[:, None] * q_node + o_k[None, :], mask=nodes[:, None], other=0.0)
        keys += key_product(b_k, tl.trans(b_k))
        queries += key_product(b_q, tl.trans(b_k))
        if KNOWN:
            b_r = tl.load(p_known_k + o_k[None, :], mask=places[:, None], other=0.0)
            known_keys += key_product(b_k, tl.trans(b_r))
            known_queries += key_product(b_q, tl.trans(b_r))

    if not SUMMED:
        # Both gates mark.
        decay = path_sums(g + (beta - beta), ancestor)
    if KNOWN:
        p_known_decay += i_b.to(tl.int64) * known_nodes * HV + i_h + o_place * HV
        known_decay = tl.load(p_known_decay, mask=places, other=0.0)
        if COUNTED:
            mask = nodes[:, None] & (o_r < tl.load(p_known_mask + i_b))[None, :]
        else:
            p_known_mask += i_b.to(tl.int64) * mask_row + o_t[:, None] * mask_node + o_r[None, :]
            mask = tl.load(p_known_mask, mask=nodes[:, None] & places[None, :], other=0) != 0
        if FOLDS:
            # What the state takes in by the same launch is not known beside it any more.
            mask = mask & (tl.load(p_fold + i_b) == 0)
        if not SUMMED:
            # G falls along a path: the newest known factor is the least.
            decay += tl.min(tl.min(tl.where(mask, known_decay[None, :], 0.0), axis=1), axis=0)
        mask = mask & (decay == decay)[:, None]
        ratio = decay_ratio(decay, known_decay, mask)
        p_pending += i_bh.to(tl.int64) * (4 * BT * BR) + 2 * o_t[:, None] * BR + o_r[None, :]
        # Every program of the head stores the same. Padding may hold anything: replaced, not weighed by zero.
        _store_halves(p_pending, tl.where(mask, ratio * known_keys, 0.0), 2 * BT * BR, OWN, REFLECTS)
        _store_halves(p_pending + BR, tl.where(mask, ratio * known_queries, 0.0), 2 * BT * BR, READ, REFLECTS)
    if not SUMMED:
        tl.store(p_decay, decay, mask=nodes & (i_c == 0))
    column = i_c * BC + tl.arange(0, BC)
    strength = tl.load(p_beta + i_b.to(tl.int64) * T * HV + i_h + column * HV, mask=column < T, other=0.0)
    beta, strength = tl.where(beta == beta, beta, 0.0), tl.where(strength == strength, strength, 0.0)
    own, read = mixing(keys, queries, decay, beta, ancestor, depth, column, FLAT, DEPTH)
    p_mixing += i_bh.to(tl.int64) * (4 * BT * BT) + 2 * o_t[:, None] * BT + column[None, :]
    # `read_kernel` has X negative.
    _store_halves(p_mixing, own * -strength[None, :], 2 * BT * BT, OWN, REFLECTS)
    _store_halves(p_mixing + BT, read * -strength[None, :], 2 * BT * BT, READ, REFLECTS)
