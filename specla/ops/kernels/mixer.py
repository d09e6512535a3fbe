"""A short chain from a layer's products on, in one launch: convolution, norms, gates and the delta rule.

At a few rows a step is bound by the latency of launches that wait for each other. Here every program convolves and
norms its head's q and k itself, which is cheaper than to wait for a kernel that does it once for all; and whatever no
kernel of the same step writes, it has before it waits: the state, the factors that it folds into it, the convolution's
window and weights.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.errors import SpeclaError
from specla.ops.kernels.checks import check_known, check_state, expect, expect_filled
from specla.ops.kernels.held import Held
from specla.ops.kernels.launch import overlapped, side_by_side
from specla.ops.kernels.node_inputs import Heads, Weights, check_bank, check_products, softplus
from specla.ops.kernels.walk import Pending, Tiles
from specla.ops.kernels.walk_step import delta_step, take_known
from specla.ops.types import Bank, VerifyOutput

MOST_STATES = 64
"""Beyond, what programs of a head do again costs more than a launch."""
MOST_NODES = 3
"""From five nodes on, on an H200, registers are so short that nothing else runs beside it."""


class Products(NamedTuple):
    """What a layer gives the T nodes of every row's chain; rows and nodes may lie apart."""

    raw: Tensor
    """[B, T, C], inputs of the convolution."""
    a: Tensor
    """[B, T, HV], of the decay."""
    b: Tensor
    """[B, T, HV], of the write strength."""
    window: Tensor
    """[B, W-1, C], committed inputs, oldest first."""


def takes(states: int, nodes: int) -> bool:
    """Whether chains of so many nodes, on so many states, are few and short enough to be fast here."""
    return states <= MOST_STATES and nodes <= MOST_NODES


def mix_chain(
    state: Tensor,
    products: Products,
    weights: Weights,
    heads: Heads,
    pending: Pending,
    bank: Bank,
    allow_neg_eigval: bool = False,
    tiles: Tiles | None = None,
) -> VerifyOutput:
    """`node_inputs`, then `verify_chain`.

    Args:
        state: [B, HV, V, K] float32, contiguous. Rows that fold take their known factors in, in place.
        products: in one of bfloat16, float16, float32.
        weights, heads: of the layer.
        pending: committed factors that the state does not hold, and which rows fold them.
        bank: where k, u, the decay and a copy of raw go. State, known factors and window are read before the kernel in
            front has ended: whoever calls sees to it that nothing there writes them.
        allow_neg_eigval: doubles the write strength.
        tiles: how the states are cut; None for what was fast on an H200.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    expect_filled("raw inputs", products.raw, 3)
    raw, a, b, window = (side_by_side(x) for x in products)
    batch, nodes, _ = raw.shape
    if not 0 < nodes <= MOST_NODES:
        raise SpeclaError(f"a chain of {nodes} nodes: this kernel takes 1 to {MOST_NODES}")
    check_products(raw, (a, b), window, weights, heads)
    _check(state, raw, heads, pending, bank)
    held = Held.of(*pending, bank.decay)
    if window is not products.window or held.copied(pending.known):
        # It would be read before the kernel that copies has ended.
        raise SpeclaError("a window or known factors whose elements lie apart, or decays not float64: no copy would do")
    tiles = tiles or (Tiles(8, 2) if nodes == 1 else Tiles(2, 1))
    out = torch.empty_like(bank.u)
    _mixer_kernel[triton.cdiv(heads.value_size, tiles.values), batch * heads.value_heads](
        *(raw, a, b, window, *weights, state, out, bank.u, bank.decay, bank.k, bank.raw, *held.tensors),
        *(heads.key_size**-0.5, held.places, *raw.stride()[:2], *a.stride()[:2], *b.stride()[:2]),
        *(*window.stride()[:2], *weights.convolution.stride(), *held.strides),
        T=nodes,
        H=heads.key_heads,
        HV=heads.value_heads,
        K=heads.key_size,
        V=heads.value_size,
        W=weights.convolution.shape[1],
        BK=triton.next_power_of_2(heads.key_size),
        BV=tiles.values,
        BR=max(16, triton.next_power_of_2(held.places)),
        DOUBLE_BETA=allow_neg_eigval,
        num_warps=tiles.warps,
        **held.flags,
        **overlapped(raw),
    )
    return VerifyOutput(out, bank.factors, None)


def _check(state: Tensor, raw: Tensor, heads: Heads, pending: Pending, bank: Bank) -> None:
    batch, nodes, _ = raw.shape
    check_bank(raw, bank, heads)
    check_state(state)
    expect("a state", state, (batch, heads.value_heads, heads.value_size, heads.key_size), (torch.float32,), raw)
    if pending.known is not None:
        check_known(state, bank.k, pending.known, pending.fold)
    expect("a bank's u", bank.u, (batch, nodes, heads.value_heads, heads.value_size), (torch.float32,), raw)
    expect("a bank's decay", bank.decay, (batch, nodes, heads.value_heads), (torch.float64,), raw)
    if not (bank.u.is_contiguous() and bank.decay.is_contiguous()):
        raise SpeclaError(f"a bank's u with strides {bank.u.stride()}: the kernel takes u and decay contiguous")


@triton.jit
def _each(p_x, count: tl.constexpr, stride, inside):
    """So many blocks, on their way at once."""
    blocks = ()  # type: tuple[tl.tensor, ...]
    for i in tl.static_range(count):
        blocks += (tl.load(p_x + i * stride, mask=inside, other=0),)
    return blocks


@triton.jit
def _sent_for(p_window, p_weight, o_c, inside, window_place, weight_c, weight_w, W: tl.constexpr):
    """Some channels' window, oldest first, and their convolution's weights."""
    seen = _each(p_window + o_c, W - 1, window_place, inside)
    return seen, _each(p_weight + o_c * weight_c, W, weight_w, inside)


@triton.jit
def _gates(p_a, p_b, rate, shift, DOUBLE_BETA: tl.constexpr):
    """(log decay, write strength) of a node."""
    g = -rate * softplus(tl.load(p_a).to(tl.float32) + shift)
    beta = 1 / (1 + tl.exp(-tl.load(p_b).to(tl.float32)))
    return g, beta * 2 if DOUBLE_BETA else beta


@triton.jit
def _convolved(inputs, t: tl.constexpr, weights, p_bias, o_c, inside, W: tl.constexpr):
    """Of node t after silu and rounding, in float32; summed in the order of `_node_inputs_kernel`.

    The inputs are the window's, oldest first, then the nodes'.
    """
    b_y = inputs[t + W - 1].to(tl.float32) * weights[W - 1].to(tl.float32)
    if p_bias is not None:
        b_y += tl.load(p_bias + o_c, mask=inside, other=0).to(tl.float32)
    for j in tl.static_range(W - 1):
        b_y += inputs[t + j].to(tl.float32) * weights[j].to(tl.float32)
    return (b_y / (1 + tl.exp(-b_y))).to(inputs[0].dtype).to(tl.float32)


@triton.jit
def _unit(b_x, scale, kind: tl.constexpr):
    """A head's q or k of that length, rounded, in float32."""
    return (b_x * (tl.rsqrt(tl.sum(b_x * b_x, axis=0) + 1e-6) * scale)).to(kind).to(tl.float32)


@triton.jit(do_not_specialize=["R"])
def _mixer_kernel(
    p_raw,
    p_a,
    p_b,
    p_window,
    p_weight,
    p_bias,
    p_a_log,
    p_dt_bias,
    p_state,
    p_out,
    p_u,
    p_decay,
    p_k,
    p_copy,
    p_known_k,
    p_known_u,
    p_known_decay,
    p_known_nodes,
    p_known_valid,
    p_fold,
    scale,
    R,
    raw_row,
    raw_node,
    a_row,
    a_node,
    b_row,
    b_node,
    window_row,
    window_place,
    weight_c,
    weight_w,
    known_nodes,
    known_k_row,
    known_k_node,
    known_u_row,
    known_u_node,
    T: tl.constexpr,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    BR: tl.constexpr,
    DOUBLE_BETA: tl.constexpr,
    KNOWN: tl.constexpr,
    INDEXED: tl.constexpr,
    COUNTED: tl.constexpr,
    FOLDS: tl.constexpr,
    ALL_FOLD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """BV rows of the state of one value head of one row."""
    if OVERLAP:
        gdc_launch_dependents()
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = (i_bh // HV).to(tl.int64), i_bh % HV
    i_key = i_h // (HV // H)
    o_k, o_v = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    in_k, in_v = o_k < K, o_v < V
    inside = in_v[:, None] & in_k[None, :]
    p_state += i_bh.to(tl.int64) * (V * K) + o_v[:, None] * K + o_k[None, :]
    b_s = tl.load(p_state, mask=inside, other=0.0)
    # Channels: q of all heads, k of all heads, v of all value heads.
    o_qc, o_kc, o_vc = i_key * K + o_k, (H + i_key) * K + o_k, 2 * H * K + i_h * V + o_v
    p_window += i_b * window_row
    q_inputs, q_weights = _sent_for(p_window, p_weight, o_qc, in_k, window_place, weight_c, weight_w, W)
    k_inputs, k_weights = _sent_for(p_window, p_weight, o_kc, in_k, window_place, weight_c, weight_w, W)
    v_inputs, v_weights = _sent_for(p_window, p_weight, o_vc, in_v, window_place, weight_c, weight_w, W)
    rate = tl.exp(tl.load(p_a_log + i_h).to(tl.float32))
    shift = tl.load(p_dt_bias + i_h).to(tl.float32)
    since = tl.zeros([], tl.float64)
    if KNOWN:
        folds = tl.load(p_fold + i_b) != 0 if FOLDS else ALL_FOLD
        count = tl.load(p_known_valid + i_b).to(tl.int32) if COUNTED else R
        b_s, since = take_known(
            b_s, p_state, inside, folds, count,
            p_known_k + i_b * known_k_row + i_key * K, p_known_u + i_b * known_u_row + i_h * V,
            p_known_decay + i_b * known_nodes * HV + i_h, p_known_nodes + i_b * R, p_known_valid + i_b * R,
            o_k, o_v, known_k_node, known_u_node, HV, K, V, BR, INDEXED, COUNTED,
        )  # fmt: skip
    if OVERLAP:
        gdc_wait()
    p_raw, p_a, p_b = p_raw + i_b * raw_row, p_a + i_b * a_row + i_h, p_b + i_b * b_row + i_h
    q_inputs += _each(p_raw + o_qc, 1, raw_node, in_k)
    k_inputs += _each(p_raw + o_kc, 1, raw_node, in_k)
    v_inputs += _each(p_raw + o_vc, 1, raw_node, in_v)
    # One program of a key head keeps what its value heads share.
    mine = in_k & (i_v == 0) & (i_h % (HV // H) == 0)
    kind: tl.constexpr = p_k.dtype.element_ty
    for t in tl.static_range(T):
        if t + 1 < T:  # On its way while a node is computed.
            p_raw += raw_node
            q_inputs += _each(p_raw + o_qc, 1, raw_node, in_k)
            k_inputs += _each(p_raw + o_kc, 1, raw_node, in_k)
            v_inputs += _each(p_raw + o_vc, 1, raw_node, in_v)
        g, beta = _gates(p_a + t * a_node, p_b + t * b_node, rate, shift, DOUBLE_BETA)
        b_q = _unit(_convolved(q_inputs, t, q_weights, p_bias, o_qc, in_k, W), scale, kind)
        b_k = _unit(_convolved(k_inputs, t, k_weights, p_bias, o_kc, in_k, W), 1.0, kind)
        b_v = _convolved(v_inputs, t, v_weights, p_bias, o_vc, in_v, W)
        b_s, b_o, b_u = delta_step(b_s, b_q, b_k, b_v, g, beta)
        node = i_b * T + t
        o_out = (node * HV + i_h) * V + o_v
        tl.store(p_out + o_out, b_o, mask=in_v)
        tl.store(p_u + o_out, b_u, mask=in_v)
        since += g.to(tl.float64)
        tl.store(p_decay + node * HV + i_h, since, mask=i_v == 0)
        tl.store(p_k + (node * H + i_key) * K + o_k, b_k, mask=mine)
        p_node = p_copy + node * (2 * H * K + HV * V)
        tl.store(p_node + o_qc, q_inputs[W - 1 + t], mask=mine)
        tl.store(p_node + o_kc, k_inputs[W - 1 + t], mask=mine)
        tl.store(p_node + o_vc, v_inputs[W - 1 + t], mask=in_v)
