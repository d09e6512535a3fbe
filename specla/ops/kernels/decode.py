"""A decode step from its projections on, in one launch: convolution, norms, gates and the delta rule of one node.

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
from specla.ops.kernels.checks import check_known, check_state, expect
from specla.ops.kernels.held import Held
from specla.ops.kernels.launch import overlapped, side_by_side
from specla.ops.kernels.node_inputs import Heads, Weights, check_bank, check_products, softplus
from specla.ops.kernels.walk import Pending, Tiles
from specla.ops.kernels.walk_step import delta_step, take_known
from specla.ops.types import Bank, VerifyOutput

MOST_STATES = 64
"""Beyond, what programs of a head do again costs more than a launch."""


class Step(NamedTuple):
    """What a layer gives one node of every row."""

    raw: Tensor
    """[B, 1, C], inputs of the convolution; rows may lie apart."""
    a: Tensor
    """[B, 1, HV], of the decay."""
    b: Tensor
    """[B, 1, HV], of the write strength."""
    window: Tensor
    """[B, W-1, C], committed inputs, oldest first."""


def decode_step(
    state: Tensor,
    step: Step,
    weights: Weights,
    heads: Heads,
    pending: Pending,
    bank: Bank,
    allow_neg_eigval: bool = False,
    tiles: Tiles | None = None,
) -> VerifyOutput:
    """`node_inputs` and then `verify_chain` of a root, to the bit.

    Args:
        state: [B, HV, V, K] float32, contiguous. Rows that fold take their known factors in, in place.
        step: the products, in one of bfloat16, float16, float32.
        weights, heads: of the layer.
        pending: committed factors that the state does not hold, and which rows fold them.
        bank: where k, u, the decay and a copy of raw go. State, known factors and window are read before the kernel in
            front has ended: whoever calls sees to it that nothing there writes them.
        allow_neg_eigval: doubles the write strength.
        tiles: None for what was measured to be fast.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    raw, a, b, window = (side_by_side(x) for x in step)
    batch, nodes, _ = raw.shape
    if nodes != 1:
        raise SpeclaError(f"{nodes} nodes: a decode step is of one")
    check_products(raw, (a, b), window, weights, heads)
    check_bank(raw, bank, heads)
    check_state(state)
    expect("a state", state, (batch, heads.value_heads, heads.value_size, heads.key_size), (torch.float32,), raw)
    if pending.known is not None:
        check_known(state, bank.k, pending.known, pending.fold)
    expect("a bank's u", bank.u, (batch, 1, heads.value_heads, heads.value_size), (torch.float32,), raw)
    expect("a bank's decay", bank.decay, (batch, 1, heads.value_heads), (torch.float64,), raw)
    if not (bank.u.is_contiguous() and bank.decay.is_contiguous()):
        raise SpeclaError(f"a bank's u with strides {bank.u.stride()}: the kernel takes u and decay contiguous")
    held = Held.of(*pending, bank.decay)
    out = torch.empty_like(bank.u)
    values, warps = tiles or Tiles(4, 1)
    _decode_kernel[triton.cdiv(heads.value_size, values), batch * heads.value_heads](
        *(raw, a, b, window, *weights, state, out, bank.u, bank.decay, bank.k, bank.raw, *held.tensors),
        *(heads.key_size**-0.5, held.places, raw.stride(0), a.stride(0), b.stride(0)),
        *(*window.stride()[:2], *weights.convolution.stride(), *held.strides),
        H=heads.key_heads,
        HV=heads.value_heads,
        K=heads.key_size,
        V=heads.value_size,
        W=weights.convolution.shape[1],
        BK=triton.next_power_of_2(heads.key_size),
        BV=values,
        BR=max(16, triton.next_power_of_2(held.places)),
        DOUBLE_BETA=allow_neg_eigval,
        num_warps=warps,
        **held.flags,
        **overlapped(raw),
    )
    return VerifyOutput(out, bank.factors, None)


@triton.jit
def _sent_for(p_window, p_weight, o_c, inside, window_place, weight_c, weight_w, W: tl.constexpr):
    """What some channels' convolution reads beside its newest input: the window, oldest first, then the weights."""
    sent_for = ()  # type: tuple[tl.tensor, ...]
    for j in tl.static_range(W - 1):
        sent_for += (tl.load(p_window + j * window_place + o_c, mask=inside, other=0),)
    for j in tl.static_range(W):
        sent_for += (tl.load(p_weight + o_c * weight_c + j * weight_w, mask=inside, other=0),)
    return sent_for


@triton.jit
def _convolved(b_raw, sent_for, p_bias, o_c, inside, W: tl.constexpr):
    """After silu and rounding, in float32; summed in the order of `_node_inputs_kernel`."""
    b_y = b_raw.to(tl.float32) * sent_for[2 * W - 2].to(tl.float32)
    if p_bias is not None:
        b_y += tl.load(p_bias + o_c, mask=inside, other=0).to(tl.float32)
    for j in tl.static_range(W - 1):
        b_y += sent_for[j].to(tl.float32) * sent_for[W - 1 + j].to(tl.float32)
    return (b_y / (1 + tl.exp(-b_y))).to(b_raw.dtype).to(tl.float32)


@triton.jit
def _unit(b_x, scale, b_raw):
    """A head's q or k of that length, rounded, in float32."""
    return (b_x * (tl.rsqrt(tl.sum(b_x * b_x, axis=0) + 1e-6) * scale)).to(b_raw.dtype).to(tl.float32)


@triton.jit(do_not_specialize=["R"])
def _decode_kernel(
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
    a_row,
    b_row,
    window_row,
    window_place,
    weight_c,
    weight_w,
    known_nodes,
    known_k_row,
    known_k_node,
    known_u_row,
    known_u_node,
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
    for_q = _sent_for(p_window, p_weight, o_qc, in_k, window_place, weight_c, weight_w, W)
    for_k = _sent_for(p_window, p_weight, o_kc, in_k, window_place, weight_c, weight_w, W)
    for_v = _sent_for(p_window, p_weight, o_vc, in_v, window_place, weight_c, weight_w, W)
    rate = tl.exp(tl.load(p_a_log + i_h).to(tl.float32))
    shift = tl.load(p_dt_bias + i_h).to(tl.float32)
    since = tl.zeros([], tl.float64)
    if KNOWN:
        p_known_k += i_b * known_k_row + i_key * K
        p_known_u += i_b * known_u_row + i_h * V
        p_known_decay += i_b * known_nodes * HV + i_h
        folds = tl.load(p_fold + i_b) != 0 if FOLDS else ALL_FOLD
        count = tl.load(p_known_valid + i_b).to(tl.int32) if COUNTED else R
        b_s, since = take_known(
            b_s, p_state, inside, folds, count,
            p_known_k, p_known_u, p_known_decay, p_known_nodes + i_b * R, p_known_valid + i_b * R,
            o_k, o_v, known_k_node, known_u_node, HV, K, V, BR, INDEXED, COUNTED,
        )  # fmt: skip
    if OVERLAP:
        gdc_wait()
    p_raw += i_b * raw_row
    raw_q, raw_k = tl.load(p_raw + o_qc, mask=in_k, other=0), tl.load(p_raw + o_kc, mask=in_k, other=0)
    raw_v = tl.load(p_raw + o_vc, mask=in_v, other=0)
    a, b = tl.load(p_a + i_b * a_row + i_h).to(tl.float32), tl.load(p_b + i_b * b_row + i_h).to(tl.float32)
    g, beta = -rate * softplus(a + shift), 1 / (1 + tl.exp(-b))
    if DOUBLE_BETA:
        beta *= 2
    b_q = _unit(_convolved(raw_q, for_q, p_bias, o_qc, in_k, W), scale, raw_q)
    b_k = _unit(_convolved(raw_k, for_k, p_bias, o_kc, in_k, W), 1.0, raw_k)
    b_v = _convolved(raw_v, for_v, p_bias, o_vc, in_v, W)
    _, b_o, b_u = delta_step(b_s, b_q, b_k, b_v, g, beta)
    tl.store(p_out + i_bh * V + o_v, b_o, mask=in_v)
    tl.store(p_u + i_bh * V + o_v, b_u, mask=in_v)
    p_copy += i_b * (2 * H * K + HV * V)
    tl.store(p_copy + o_vc, raw_v, mask=in_v)
    # One program of a key head keeps what its value heads share.
    mine = (i_v == 0) & (i_h % (HV // H) == 0)
    tl.store(p_k + (i_b * H + i_key) * K + o_k, b_k, mask=in_k & mine)
    tl.store(p_copy + o_qc, raw_q, mask=in_k & mine)
    tl.store(p_copy + o_kc, raw_k, mask=in_k & mine)
    tl.store(p_decay + i_bh, since + g.to(tl.float64), mask=i_v == 0)
