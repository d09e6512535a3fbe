"""The tree mask's one read of the state, on tensor cores. `tree` says what is computed.

The state's rows stand in the rows of the products, so outputs come out transposed.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.splits import add_product, add_product_of_halves, halves, product, scaled_halves, written
from specla.ops.kernels.tree_solve import OWN, READ


@triton.jit
def _mixed(x_high, x_low, down, p_matrix, LOW: tl.constexpr, REFLECTS: tl.constexpr):
    """(x m^T, x n^T) of `scaled_halves` of x and halves of two matrices in memory, their rows in turn.

    With REFLECTS m is there times OWN, and n times READ.
    """
    high, low = tl.load(p_matrix), tl.load(p_matrix + LOW)
    small = add_product(product(x_low, tl.trans(high)), x_high, tl.trans(low))
    own, read = _pairs(add_product(small, x_high, tl.trans(high)))
    if REFLECTS:
        own, read = own * (down * (1.0 / OWN))[:, None], read * (down * (1.0 / READ))[:, None]
    return own, read


@triton.jit
def _fold_factors(b_u, p_decay, held, REFLECTS: tl.constexpr):
    """(what the state keeps, `scaled_halves` of weighted u [BV, BR]) of a fold of the places that are held."""
    decay = tl.load(p_decay, mask=held, other=0.0)
    # G falls along a path: the newest is the least.
    total = tl.min(decay, axis=0)
    weight = tl.where(held, tl.exp((total - decay).to(tl.float32)), 0.0)
    high, low, down = scaled_halves(b_u * weight[None, :], REFLECTS)
    return tl.exp(total.to(tl.float32)), high, low, down


@triton.jit
def _pairs(x):
    """(even, odd) columns of x."""
    return tl.split(tl.reshape(x, [x.shape[0], x.shape[1] // 2, 2]))


@triton.jit
def _sweep(
    p_state,
    p_nodes,
    nodes,
    known,
    K: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    EXACT: tl.constexpr,
    FOLD: tl.constexpr,
    REFLECTS: tl.constexpr,
):
    """S K^T and S Q^T of all nodes in turn, [BV, 2 BT], in one pass over BV rows of the state.

    With FOLD these take `known` factors in on the way, S <- keep S + U_r^T K_r, and go back where it `stores`:
    a row that has nothing to take in keeps its bits.
    """
    p_known_k, keep, known_high, known_low, known_down, held, stores = known
    read = tl.zeros([BV, 2 * BT], tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        b_s = tl.load(p_state + o_k[None, :])
        b_n = tl.load(p_nodes + o_k[None, :], mask=nodes[:, None], other=0.0)
        if FOLD:
            b_r = tl.load(p_known_k + o_k[None, :], mask=held[:, None], other=0.0)
            b_s = keep * b_s + written(known_high, known_low, known_down, b_r, EXACT, REFLECTS)
            tl.store(p_state + o_k[None, :], b_s, mask=stores)
        s_high, s_low = halves(b_s, tl.bfloat16)
        read = add_product_of_halves(read, s_high, s_low, tl.trans(b_n), tl.bfloat16, EXACT)
    return read


@triton.jit(do_not_specialize=["T", "R"])
def read_kernel(
    p_state,
    p_q,
    p_k,
    p_v,
    p_known_k,
    p_known_u,
    p_known_decay,
    p_known_nodes,
    p_known_valid,
    p_fold,
    p_decay,
    p_mixing,
    p_pending,
    p_out,
    p_u,
    T,
    R,
    q_row,
    q_node,
    k_row,
    k_node,
    v_row,
    v_node,
    out_row,
    known_nodes,
    known_k_row,
    known_k_node,
    known_u_row,
    known_u_node,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    KNOWN: tl.constexpr,
    INDEXED: tl.constexpr,
    COUNTED: tl.constexpr,
    FOLDS: tl.constexpr,
    ALL_FOLD: tl.constexpr,
    BR: tl.constexpr,
    EXACT: tl.constexpr,
    REFLECTS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Outputs and corrections of all nodes for BV rows of one head's state, which stand in the products' rows."""
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = i_bh // HV, i_bh % HV
    o_t, o_v = tl.arange(0, BT), i_v * BV + tl.arange(0, BV)
    nodes = o_t < T
    # The keys and queries of all nodes in turn: one product serves both.
    o_row = tl.arange(0, 2 * BT)
    o_n = o_row // 2
    p_q += i_b.to(tl.int64) * q_row + (i_h // (HV // H)) * K
    p_k += i_b.to(tl.int64) * k_row + (i_h // (HV // H)) * K
    is_key = (o_row % 2 == 0)[:, None]
    p_nodes = tl.where(is_key, p_k + o_n[:, None] * k_node, p_q + o_n[:, None] * q_node)
    p_state += (i_bh.to(tl.int64) * V + o_v[:, None]) * K
    o_r = tl.arange(0, BR)
    held = o_r < R
    half: tl.constexpr = tl.float16 if REFLECTS else tl.bfloat16
    known_high, known_low, known_down = tl.zeros([BV, BR], half), tl.zeros([BV, BR], half), o_v * 1.0
    keep = 1.0
    fold_high, fold_low, fold_down = known_high, known_low, known_down
    if KNOWN:
        o_place = o_r.to(tl.int64)
        if INDEXED:
            o_place = tl.load(p_known_nodes + i_b * R + o_r, mask=held, other=0)
        if COUNTED:
            held = o_r < tl.load(p_known_valid + i_b)
        else:
            held = tl.load(p_known_valid + i_b * R + o_r, mask=held, other=0) != 0
        p_known_u += i_b.to(tl.int64) * known_u_row + i_h * V + o_place[None, :] * known_u_node + o_v[:, None]
        b_r = tl.load(p_known_u, mask=held[None, :], other=0.0)
        if FOLDS or ALL_FOLD:
            p_known_decay += (i_b.to(tl.int64) * known_nodes + o_place) * HV + i_h
            keep, fold_high, fold_low, fold_down = _fold_factors(b_r, p_known_decay, held, REFLECTS)
        known_high, known_low, known_down = scaled_halves(b_r, REFLECTS)
        p_known_k += i_b.to(tl.int64) * known_k_row + (i_h // (HV // H)) * K + o_place[:, None] * known_k_node
    known = (p_known_k, keep, fold_high, fold_low, fold_down, held, tl.sum(held.to(tl.int32), axis=0) > 0)
    loads = o_n < T
    if ALL_FOLD:
        read = _sweep(p_state, p_nodes, loads, known, K, BT, BK, BV, EXACT, True, REFLECTS)
    elif FOLDS:
        if tl.load(p_fold + i_b) != 0:
            read = _sweep(p_state, p_nodes, loads, known, K, BT, BK, BV, EXACT, True, REFLECTS)
        else:
            read = _sweep(p_state, p_nodes, loads, known, K, BT, BK, BV, EXACT, False, REFLECTS)
    else:
        read = _sweep(p_state, p_nodes, loads, known, K, BT, BK, BV, EXACT, False, REFLECTS)
    read_k, read_q = _pairs(read)
    p_v += i_b.to(tl.int64) * v_row + i_h * V + o_t[None, :] * v_node + o_v[:, None]
    b_v = tl.load(p_v, mask=nodes[None, :], other=0.0).to(tl.float32)
    p_decay += i_b.to(tl.int64) * T * HV + i_h + o_t * HV
    if OVERLAP:
        gdc_wait()
        if BT < 64:  # Where registers are short, it made a few more of them spill.
            gdc_launch_dependents()
    decay = tl.load(p_decay, mask=nodes, other=0.0)
    grown = tl.exp(decay.to(tl.float32))[None, :]
    # Negative, as M and N are stored: ptxas 12.8 takes a sum of tensor cores for zero where its sign is turned.
    # X of a lost node (`specla.ops.lost`), which G tells, is zero: in M and N all others have zeros for it.
    left, out = tl.where(grown == grown, read_k * grown - b_v, 0.0), read_q * grown
    if KNOWN and not ALL_FOLD:
        p_pending += i_bh.to(tl.int64) * (4 * BT * BR) + o_row[:, None] * BR + o_r[None, :]
        from_k, from_q = _mixed(known_high, known_low, known_down, p_pending, 2 * BT * BR, REFLECTS)
        left, out = left + from_k, out + from_q
    x_high, x_low, down = scaled_halves(left, REFLECTS)
    p_mixing += i_bh.to(tl.int64) * (4 * BT * BT) + o_row[:, None] * BT + o_t[None, :]
    b_u, mixed = _mixed(x_high, x_low, down, p_mixing, 2 * BT * BT, REFLECTS)
    o_out = i_b.to(tl.int64) * out_row + (o_t[None, :] * HV + i_h) * V + o_v[:, None]
    tl.store(p_u + o_out, b_u, mask=nodes[None, :])
    tl.store(p_out + o_out, out + mixed, mask=nodes[None, :])
