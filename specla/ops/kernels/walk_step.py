"""State-resident walks: a program holds some rows of one state on chip and takes a chain of nodes through them.

One kernel serves all that walk (paper, sections 4.1 and 4.3): `chain` is one chain from the committed state; `hybrid`
runs the chains of a wave in one launch, from boundary states that earlier waves stored; a decode step is a chain of one
node. The inputs of the next node are on their way while a node is computed. Outputs come out of the parent's state,

    o = exp(g) S_p q + (k . q) u,

so that one pass over the state serves k and q.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def load_node(
    p_q,
    p_k,
    p_v,
    p_g,
    p_beta,
    node,
    q_node,
    k_node,
    v_node,
    o_k,
    o_v,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
):
    """(q, k, v, g, b) of a node of the row and head that the pointers are at, in float32, zero beyond K and V."""
    b_q = tl.load(p_q + node * q_node + o_k, mask=o_k < K, other=0.0).to(tl.float32)
    b_k = tl.load(p_k + node * k_node + o_k, mask=o_k < K, other=0.0).to(tl.float32)
    b_v = tl.load(p_v + node * v_node + o_v, mask=o_v < V, other=0.0).to(tl.float32)
    return b_q, b_k, b_v, tl.load(p_g + node * HV), tl.load(p_beta + node * HV)


@triton.jit
def delta_step(b_s, b_q, b_k, b_v, g, beta):
    """(state after the node [BV, BK], its output and its correction [BV]) from the state before it."""
    keep = tl.exp(g)
    read_k = tl.sum(b_s * b_k[None, :], axis=1)
    read_q = tl.sum(b_s * b_q[None, :], axis=1)
    b_u = beta * (b_v - keep * read_k)
    b_o = keep * read_q + tl.sum(b_k * b_q, axis=0) * b_u
    return keep * b_s + b_u[:, None] * b_k[None, :], b_o, b_u


@triton.jit
def take_known(
    b_s,
    p_s,
    inside,
    folds,
    count,
    p_k,
    p_u,
    p_decay,
    p_nodes,
    p_valid,
    o_k,
    o_v,
    k_node,
    u_node,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    BR: tl.constexpr,
    INDEXED: tl.constexpr,
    COUNTED: tl.constexpr,
):
    """(a state with its known factors taken in, G that it stands at): on chip, and in memory where it folds them."""
    o_r = tl.arange(0, BR)
    held = o_r < count
    if not COUNTED:
        held = tl.load(p_valid + o_r, mask=held, other=0) != 0
    place = o_r.to(tl.int64)
    if INDEXED:
        place = tl.load(p_nodes + o_r, mask=held, other=0)
    # G falls along a path: the newest is the least.
    total = tl.min(tl.load(p_decay + place * HV, mask=held, other=0.0), axis=0)
    b_s *= tl.exp(total.to(tl.float32))
    for r in range(0, count):
        valid = True
        if not COUNTED:
            valid = tl.load(p_valid + r) != 0
        if valid:
            node = r
            if INDEXED:
                node = tl.load(p_nodes + r)
            weight = tl.exp((total - tl.load(p_decay + node * HV)).to(tl.float32))
            b_k = tl.load(p_k + node * k_node + o_k, mask=o_k < K, other=0.0).to(tl.float32)
            b_u = tl.load(p_u + node * u_node + o_v, mask=o_v < V, other=0.0) * weight
            b_s += b_u[:, None] * b_k[None, :]
    # A row that has nothing to take in keeps its bits.
    tl.store(p_s, b_s, mask=inside & folds & (tl.sum(held.to(tl.int32), axis=0) > 0))
    return b_s, tl.where(folds, 0.0, total)


@triton.jit
def _begin(EARLY: tl.constexpr, HURRIES: tl.constexpr, OVERLAP: tl.constexpr):
    """Wait for the kernel in front, unless EARLY, which waits later; let the one behind begin where that HURRIES."""
    _wait(OVERLAP and not EARLY)
    if OVERLAP and HURRIES:
        gdc_launch_dependents()


@triton.jit
def _wait(NOW: tl.constexpr):
    """For the kernel in front."""
    if NOW:
        gdc_wait()


@triton.jit(do_not_specialize=["T", "L", "R", "first", "start"])
def walk_kernel(
    p_state,
    p_stored,
    p_q,
    p_k,
    p_v,
    p_g,
    p_beta,
    p_nodes,
    p_keeps,
    p_lengths,
    p_starts,
    p_parents,
    p_out,
    p_u,
    p_decay,
    p_known_k,
    p_known_u,
    p_known_decay,
    p_known_nodes,
    p_known_valid,
    p_fold,
    first,
    start,
    T,
    L,
    R,
    q_row,
    q_node,
    k_row,
    k_node,
    v_row,
    v_node,
    stored_slot,
    stored_row,
    known_nodes,
    known_k_row,
    known_k_node,
    known_u_row,
    known_u_node,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    BR: tl.constexpr,
    TABLES: tl.constexpr,
    KEEPS: tl.constexpr,
    KNOWN: tl.constexpr,
    INDEXED: tl.constexpr,
    COUNTED: tl.constexpr,
    FOLDS: tl.constexpr,
    ALL_FOLD: tl.constexpr,
    EARLY: tl.constexpr,
    HURRIES: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One chain of a wave.

    With TABLES, [chains, L], of its nodes and of the slots their states are kept in (-1: nowhere); without, L nodes
    from `first` on, each with a slot of its own number, from the state in slot `start`. EARLY, HURRIES: see `Walker`.
    """
    _begin(EARLY, HURRIES, OVERLAP)
    i_v, i_c, i_bh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i_b, i_h = (i_bh // HV).to(tl.int64), i_bh % HV
    o_k, o_v = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    inside = (o_v[:, None] < V) & (o_k[None, :] < K)
    o_s = o_v[:, None] * K + o_k[None, :]
    p_q += i_b * q_row + (i_h // (HV // H)) * K
    p_k += i_b * k_row + (i_h // (HV // H)) * K
    p_v += i_b * v_row + i_h * V
    o_gate = i_b * T * HV + i_h
    p_g, p_beta, p_decay = p_g + o_gate, p_beta + o_gate, p_decay + o_gate
    p_out, p_u = p_out + o_gate * V + o_v, p_u + o_gate * V + o_v
    p_nodes, p_keeps = p_nodes + i_c * L, p_keeps + i_c * L
    p_stored += i_b * stored_row + i_h * (V * K)
    p_start = p_state + i_bh.to(tl.int64) * (V * K)
    if TABLES:
        slot, parent = tl.load(p_starts + i_c), tl.load(p_parents + i_c)
        length, node = tl.load(p_lengths + i_c), tl.load(p_nodes)
    else:
        slot, parent, length, node = start, start, L, first
    if slot >= 0:
        p_start = p_stored + slot.to(tl.int64) * stored_slot
    b_s = tl.load(p_start + o_s, mask=inside, other=0.0)
    if not EARLY:
        b_q, b_k, b_v, g, beta = load_node(p_q, p_k, p_v, p_g, p_beta, node, q_node, k_node, v_node, o_k, o_v, HV, K, V)
    # Only the programs of the first rows keep account of the decay.
    decay = tl.load(p_decay + parent * HV, mask=(i_v == 0) & (parent >= 0), other=0.0)
    if KNOWN:  # noqa: SIM102
        if slot < 0:  # Another's state holds them already.
            folds = tl.load(p_fold + i_b) != 0 if FOLDS else ALL_FOLD
            count = tl.load(p_known_valid + i_b).to(tl.int32) if COUNTED else R
            b_s, since = take_known(
                b_s, p_start + o_s, inside, folds, count,
                p_known_k + i_b * known_k_row + (i_h // (HV // H)) * K, p_known_u + i_b * known_u_row + i_h * V,
                p_known_decay + i_b * known_nodes * HV + i_h, p_known_nodes + i_b * R, p_known_valid + i_b * R,
                o_k, o_v, known_k_node, known_u_node, HV, K, V, BR, INDEXED, COUNTED,
            )  # fmt: skip
            decay += since
    if EARLY:
        _wait(OVERLAP)
        b_q, b_k, b_v, g, beta = load_node(p_q, p_k, p_v, p_g, p_beta, node, q_node, k_node, v_node, o_k, o_v, HV, K, V)
    for i in range(0, length):
        n_t = tl.minimum(i + 1, length - 1)
        n_t = tl.load(p_nodes + n_t) if TABLES else n_t + first
        n_q, n_k, n_v, n_g, n_b = load_node(p_q, p_k, p_v, p_g, p_beta, n_t, q_node, k_node, v_node, o_k, o_v, HV, K, V)
        b_s, b_o, b_u = delta_step(b_s, b_q, b_k, b_v, g, beta)
        decay += g.to(tl.float64)
        tl.store(p_out + node * (HV * V), b_o, mask=o_v < V)
        tl.store(p_u + node * (HV * V), b_u, mask=o_v < V)
        tl.store(p_decay + node * HV, decay, mask=i_v == 0)
        if KEEPS:
            keep = tl.load(p_keeps + i) if TABLES else first + i
            if keep >= 0:
                tl.store(p_stored + keep.to(tl.int64) * stored_slot + o_s, b_s, mask=inside)
        node = n_t
        b_q, b_k, b_v, g, beta = n_q, n_k, n_v, n_g, n_b
