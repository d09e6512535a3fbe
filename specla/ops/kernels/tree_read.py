"""The tree mask's one read of the state, on tensor cores. `tree` says what is computed.

The state's rows stand in the rows of the products, so outputs come out transposed.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.splits import add_product, halves, product
from specla.ops.kernels.tree_solve import key_product, mixing, path_sums


@triton.jit
def _apply_halves(total, x_high, x_low, high, low):
    """total + x m^T, of the halves of both."""
    total = add_product(total, x_low, tl.trans(high))
    total = add_product(total, x_high, tl.trans(low))
    return add_product(total, x_high, tl.trans(high))


@triton.jit
def _apply_stored(total, x_high, x_low, p_matrix, LOW: tl.constexpr):
    """total + x m^T, with m's halves in memory."""
    return _apply_halves(total, x_high, x_low, tl.load(p_matrix), tl.load(p_matrix + LOW))


@triton.jit
def _read(state_high, state_low, x, EXACT: tl.constexpr):
    """S x^T for a block of keys or queries."""
    if EXACT:
        return add_product(product(state_low, tl.trans(x)), state_high, tl.trans(x))
    x_high, x_low = halves(x, tl.bfloat16)
    small = add_product(product(state_low, tl.trans(x_high)), state_high, tl.trans(x_low))
    return add_product(small, state_high, tl.trans(x_high))


@triton.jit
def small_kernel(
    p_state,
    p_q,
    p_k,
    p_v,
    p_g,
    p_beta,
    p_ancestor,
    p_depth,
    p_decay,
    p_out,
    p_u,
    q_row,
    q_node,
    k_row,
    k_node,
    v_row,
    v_node,
    ancestor_row,
    depth_row,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    T: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    FLAT: tl.constexpr,
    DEPTH: tl.constexpr,
    EXACT: tl.constexpr,
    KEYS_EXACT: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """A small tree in one launch: every program solves its head's triangle, then takes its rows of the state through."""
    if OVERLAP:
        gdc_wait()
        if OVERLAP == 2:
            gdc_launch_dependents()
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = i_bh // HV, i_bh % HV
    o_t, o_v = tl.arange(0, BT), i_v * BV + tl.arange(0, BV)
    nodes = o_t < T
    o_gate = i_b * T * HV + i_h + o_t * HV
    p_ancestor += i_b.to(tl.int64) * ancestor_row + o_t[:, None] * T + o_t[None, :]
    p_v += i_b.to(tl.int64) * v_row + i_h * V + o_t[None, :] * v_node + o_v[:, None]
    # What the end needs is on its way before the loop.
    b_v = tl.load(p_v, mask=nodes[None, :], other=0.0).to(tl.float32)
    ancestor = tl.load(p_ancestor, mask=nodes[:, None] & nodes[None, :], other=0) != 0
    depth = tl.load(p_depth + i_b * depth_row + o_t, mask=nodes, other=0).to(tl.int32)
    beta = tl.load(p_beta + o_gate, mask=nodes, other=0.0)
    g = tl.load(p_g + o_gate, mask=nodes, other=0.0)

    p_q += i_b.to(tl.int64) * q_row + (i_h // (HV // H)) * K
    p_k += i_b.to(tl.int64) * k_row + (i_h // (HV // H)) * K
    p_state += (i_bh.to(tl.int64) * V + o_v[:, None]) * K
    read_k, read_q = tl.zeros([BV, BT], tl.float32), tl.zeros([BV, BT], tl.float32)
    keys, queries = tl.zeros([BT, BT], tl.float32), tl.zeros([BT, BT], tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_s = tl.load(p_state + o_k[None, :])
        b_k = tl.load(p_k + o_t[:, None] * k_node + o_k[None, :], mask=nodes[:, None], other=0.0)
        b_q = tl.load(p_q + o_t[:, None] * q_node + o_k[None, :], mask=nodes[:, None], other=0.0)
        s_high, s_low = halves(b_s, tl.bfloat16)
        read_k += _read(s_high, s_low, b_k, EXACT)
        read_q += _read(s_high, s_low, b_q, EXACT)
        keys += key_product(b_k, tl.trans(b_k), KEYS_EXACT)
        queries += key_product(b_q, tl.trans(b_k), KEYS_EXACT)
    decay = path_sums(g, ancestor)
    own, read = mixing(keys, queries, decay, beta, ancestor, depth, o_t, FLAT, DEPTH)
    own_high, own_low = halves(own * beta[None, :], tl.bfloat16)
    read_high, read_low = halves(read * beta[None, :], tl.bfloat16)
    grown = tl.exp(decay.to(tl.float32))[None, :]
    x_high, x_low = halves(b_v - read_k * grown, tl.bfloat16)
    out = _apply_halves(read_q * grown, x_high, x_low, read_high, read_low)
    b_u = _apply_halves(tl.zeros([BV, BT], tl.float32), x_high, x_low, own_high, own_low)
    tl.store(p_decay + o_gate, decay, mask=nodes & (i_v == 0))
    o_out = ((i_b.to(tl.int64) * T + o_t[None, :]) * HV + i_h) * V + o_v[:, None]
    tl.store(p_u + o_out, b_u, mask=nodes[None, :])
    tl.store(p_out + o_out, out, mask=nodes[None, :])


@triton.jit
def read_kernel(
    p_state,
    p_q,
    p_k,
    p_v,
    p_known_u,
    p_valid,
    p_decay,
    p_mixing,
    p_pending,
    p_out,
    p_u,
    q_row,
    q_node,
    k_row,
    k_node,
    v_row,
    v_node,
    out_row,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    T: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    R: tl.constexpr,
    BR: tl.constexpr,
    EXACT: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Outputs and corrections of all nodes for BV rows of one head's state, which stand in the products' rows."""
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = i_bh // HV, i_bh % HV
    o_t, o_v = tl.arange(0, BT), i_v * BV + tl.arange(0, BV)
    nodes = o_t < T
    p_q += i_b.to(tl.int64) * q_row + (i_h // (HV // H)) * K
    p_k += i_b.to(tl.int64) * k_row + (i_h // (HV // H)) * K
    p_state += (i_bh.to(tl.int64) * V + o_v[:, None]) * K
    read_k, read_q = tl.zeros([BV, BT], tl.float32), tl.zeros([BV, BT], tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_s = tl.load(p_state + o_k[None, :])
        b_k = tl.load(p_k + o_t[:, None] * k_node + o_k[None, :], mask=nodes[:, None], other=0.0)
        b_q = tl.load(p_q + o_t[:, None] * q_node + o_k[None, :], mask=nodes[:, None], other=0.0)
        s_high, s_low = halves(b_s, tl.bfloat16)
        # Summed outside the products: one still under way when the loop turned would lose its operand's registers.
        read_k += _read(s_high, s_low, b_k, EXACT)
        read_q += _read(s_high, s_low, b_q, EXACT)

    p_v += i_b.to(tl.int64) * v_row + i_h * V + o_t[None, :] * v_node + o_v[:, None]
    b_v = tl.load(p_v, mask=nodes[None, :], other=0.0).to(tl.float32)
    p_decay += i_b.to(tl.int64) * T * HV + i_h + o_t * HV
    if OVERLAP:
        gdc_wait()
        if OVERLAP == 2:
            gdc_launch_dependents()
    decay = tl.load(p_decay, mask=nodes, other=0.0)
    grown = tl.exp(decay.to(tl.float32))[None, :]
    left, out = b_v - read_k * grown, read_q * grown
    if R > 0:
        o_r = tl.arange(0, BR)
        p_known_u += (i_b.to(tl.int64) * R * HV + i_h) * V + o_r[None, :] * (HV * V) + o_v[:, None]
        held = tl.load(p_valid + i_b * R + o_r, mask=o_r < R, other=0) != 0
        known_high, known_low = halves(tl.load(p_known_u, mask=held[None, :], other=0.0), tl.bfloat16)
        p_pending += i_bh.to(tl.int64) * (4 * BT * BR) + o_t[:, None] * BR + o_r[None, :]
        left -= _apply_stored(tl.zeros([BV, BT], tl.float32), known_high, known_low, p_pending, BT * BR)
        out = _apply_stored(out, known_high, known_low, p_pending + 2 * BT * BR, BT * BR)
    x_high, x_low = halves(left, tl.bfloat16)
    p_mixing += i_bh.to(tl.int64) * (4 * BT * BT) + o_t[:, None] * BT + o_t[None, :]
    b_u = _apply_stored(tl.zeros([BV, BT], tl.float32), x_high, x_low, p_mixing, BT * BT)
    out = _apply_stored(out, x_high, x_low, p_mixing + 2 * BT * BT, BT * BT)
    o_out = i_b.to(tl.int64) * out_row + (o_t[None, :] * HV + i_h) * V + o_v[:, None]
    tl.store(p_u + o_out, b_u, mask=nodes[None, :])
    tl.store(p_out + o_out, out, mask=nodes[None, :])
