"""From projections to what the delta rule reads, for the nodes of a tree, in one launch.

The convolution along every node's path, silu, the L2 norm of q and k, and the gates: `conv_nodes`, `l2_normalise` and
`gates` of `specla.ops`, with their rounding. All of it is bound by memory and, at a few nodes, by latency: so a
program takes one head's channels of one node, and more nodes only where there are programs enough to fill the device.

What is not finite is marked as `specla.ops.lost` says. A gate is made where what it marks is on chip: log decays by the
programs of their v heads, write strengths by those of their k heads.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.errors import SpeclaError
from specla.ops.kernels.checks import COMPUTE_DTYPES, expect, expect_filled
from specla.ops.kernels.grid import nodes_together
from specla.ops.kernels.launch import overlapped, side_by_side
from specla.ops.types import Bank


class Weights(NamedTuple):
    """What a layer brings."""

    convolution: Tensor
    """[C, W], any strides; those of q, k and v side by side."""
    bias: Tensor | None
    """[C]"""
    a_log: Tensor
    """[HV]"""
    dt_bias: Tensor
    """[HV]"""


class Heads(NamedTuple):
    """Sizes of a layer, C = 2 H K + HV V."""

    key_heads: int
    value_heads: int
    key_size: int
    value_size: int


def node_inputs(
    raw: Tensor,
    gates: tuple[Tensor, Tensor],
    window: Tensor,
    taps: Tensor,
    weights: Weights,
    heads: Heads,
    allow_neg_eigval: bool = False,
    bank: Bank | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The delta rule's inputs of T nodes.

    Args:
        raw: [B, T, C], bfloat16, float16 or float32; rows may lie apart, as in a slice of a wider product.
        gates: projections a and b, [B, T, HV]; slices too.
        window: [B, W-1, C] in raw's dtype, committed inputs, oldest first.
        taps: [1 or B, T, W-1] int64: nodes, or places from the end of the window where negative; oldest first.
        weights: of the layer.
        heads: of the layer.
        allow_neg_eigval: doubles beta.
        bank: where k and a copy of raw go, for a commit over all layers; None for new memory, and no copy.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.

    Returns:
        (q [B, T, H, K], normalised and scaled by K^-1/2; k [B, T, H, K], normalised; v [B, T, HV, V], all in raw's
        dtype; g and beta [B, T, HV] float32). All contiguous, and marked; k whose squares overflow count as not finite.
    """
    raw, window, taps = side_by_side(raw), side_by_side(window), taps.contiguous()
    gates = side_by_side(gates[0]), side_by_side(gates[1])
    batch, nodes, _ = raw.shape
    check_products(raw, gates, window, weights, heads)
    expect("taps", taps, (1 if taps.shape[0] == 1 else batch, nodes, window.shape[1]), (torch.int64,), raw)
    check_bank(raw, bank, heads)
    key_heads, value_heads, key_size, value_size = heads
    blocks = triton.next_power_of_2(key_size), triton.next_power_of_2(value_size)
    q = raw.new_empty(batch, nodes, key_heads, key_size)
    k, copy = (torch.empty_like(q), None) if bank is None else (bank.k, bank.raw)
    v = raw.new_empty(batch, nodes, value_heads, value_size)
    g = raw.new_empty(batch, nodes, value_heads, dtype=torch.float32)
    found = q, k, v, g, torch.empty_like(g)
    parts = 2 * key_heads + value_heads
    together = nodes_together(parts * batch, nodes)
    steps = (step for x in (raw, window, *gates) for step in x.stride()[:2])
    _node_inputs_kernel[parts, triton.cdiv(nodes, together), batch](
        *(raw, window, *gates, taps, *weights, *found, copy, key_size**-0.5, nodes),
        *(*steps, taps.stride(0) if taps.shape[0] > 1 else 0, *weights.convolution.stride()),
        **dict(zip(("H", "HV", "K", "V"), heads, strict=True)),
        W=weights.convolution.shape[1],
        BT=together,
        BK=blocks[0],
        BV=blocks[1],
        BG=triton.next_power_of_2(value_heads // key_heads),
        DOUBLE_BETA=allow_neg_eigval,
        num_warps=max(1, min(4, together * max(blocks) // 256)),
        **overlapped(raw),
    )
    return found


def check_bank(raw: Tensor, bank: Bank | None, heads: Heads) -> None:
    """Where k and a copy of raw [B, T, C] go."""
    if bank is not None:
        expect("a bank's k", bank.k, (*raw.shape[:2], heads.key_heads, heads.key_size), (raw.dtype,), raw)
        expect("a bank's raw inputs", bank.raw, raw.shape, (raw.dtype,), raw)
        if not (bank.k.is_contiguous() and bank.raw.is_contiguous()):
            raise SpeclaError(
                f"a bank with strides {bank.k.stride()} and {bank.raw.stride()}: kernels take it contiguous"
            )


def check_products(raw: Tensor, gates: tuple[Tensor, Tensor], window: Tensor, weights: Weights, heads: Heads) -> None:
    """A layer's products of T nodes, its window and its weights."""
    for name, x, dims in (("raw inputs", raw, 3), ("a convolution", weights.convolution, 2)):
        expect_filled(name, x, dims)
    if min(heads) < 1 or heads.value_heads % heads.key_heads:
        raise SpeclaError(
            f"{heads}: kernels take one or more of each, and value heads that are a multiple of key heads"
        )
    key_heads, value_heads, key_size, value_size = heads
    channels = 2 * key_heads * key_size + value_heads * value_size
    (batch, nodes), width = raw.shape[:2], weights.convolution.shape[1]
    expect("raw inputs", raw, (batch, nodes, channels), COMPUTE_DTYPES, raw)
    expect("a window", window, (batch, width - 1, channels), (raw.dtype,), raw)
    expect("a convolution", weights.convolution, (channels, width), COMPUTE_DTYPES, raw)
    if weights.bias is not None:
        expect("a convolution's bias", weights.bias, (channels,), COMPUTE_DTYPES, raw)
    for name, gate in zip("ab", gates, strict=True):
        expect(f"projection {name}", gate, (batch, nodes, value_heads), COMPUTE_DTYPES, raw)
    for name, weight in (("a_log", weights.a_log), ("dt_bias", weights.dt_bias)):
        expect(name, weight, (value_heads,), COMPUTE_DTYPES, raw)


@triton.jit(do_not_specialize=["T"])
def _node_inputs_kernel(
    raw,
    window,
    a,
    b,
    taps,
    weight,
    bias,
    a_log,
    dt_bias,
    q,
    k,
    v,
    g,
    beta,
    copy,
    scale,
    T,
    stride_raw_b,
    stride_raw_t,
    stride_window_b,
    stride_window_t,
    stride_a_b,
    stride_a_t,
    stride_b_b,
    stride_b_t,
    stride_taps_b,
    stride_weight_c,
    stride_weight_w,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    BG: tl.constexpr,
    DOUBLE_BETA: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
    # Parts: H heads of q, H of k with the write strengths of their value heads, HV of v with their log decays.
    i_part, i_b = tl.program_id(0), tl.program_id(2).to(tl.int64)
    o_t = tl.program_id(1) * BT + tl.arange(0, BT)
    mask_t = o_t < T
    o_node = i_b * T + o_t
    p_raw = raw + i_b * stride_raw_b
    p_window, p_taps = window + i_b * stride_window_b, taps + i_b * stride_taps_b + o_t * (W - 1)
    if copy is not None:
        copy += o_node[:, None] * (2 * H * K + HV * V)
    if i_part >= 2 * H:
        i_h = i_part - 2 * H
        b_a = tl.load(a + i_b * stride_a_b + o_t * stride_a_t + i_h, mask=mask_t, other=0)
        b_rate = tl.exp(tl.load(a_log + i_h).to(tl.float32))
        b_shift = tl.load(dt_bias + i_h).to(tl.float32)
        o_v = tl.arange(0, BV)
        b_v = _convolved(
            p_raw, p_window, p_taps, weight, bias, copy, 2 * H * K + i_h * V + o_v, o_v < V, o_t, mask_t,
            stride_raw_t, stride_window_t, stride_weight_c, stride_weight_w, W,
        )  # fmt: skip
        mask = mask_t[:, None] & (o_v < V)[None, :]
        tl.store(v + (o_node[:, None] * HV + i_h) * V + o_v[None, :], b_v, mask=mask)
        b_g = -b_rate * softplus(b_a.to(tl.float32) + b_shift)
        b_odd = tl.sum(tl.where(tl.abs(b_v.to(tl.float32)) < float("inf"), 0, 1), axis=1)
        b_g = tl.where((b_odd == 0) & (tl.abs(b_g) < float("inf")), b_g, float("nan"))
        tl.store(g + o_node * HV + i_h, b_g, mask=mask_t)
        return
    o_k = tl.arange(0, BK)
    # On its way before the convolution.
    o_h = (i_part - H) * (HV // H) + tl.arange(0, BG)
    mask_h = mask_t[:, None] & ((tl.arange(0, BG) < HV // H) & (i_part >= H))[None, :]
    b_b = tl.load(b + i_b * stride_b_b + o_t[:, None] * stride_b_t + o_h[None, :], mask=mask_h, other=0)
    b_y = _convolved(
        p_raw, p_window, p_taps, weight, bias, copy, i_part * K + o_k, o_k < K, o_t, mask_t,
        stride_raw_t, stride_window_t, stride_weight_c, stride_weight_w, W,
    ).to(tl.float32)  # fmt: skip
    mask = mask_t[:, None] & (o_k < K)[None, :]
    b_squares = tl.sum(b_y * b_y, axis=1)
    b_norm = tl.rsqrt(b_squares + 1e-6)
    if i_part < H:
        o_out = (o_node[:, None] * H + i_part) * K + o_k[None, :]
        tl.store(q + o_out, b_y * (b_norm * scale)[:, None], mask=mask)
    else:
        found = (b_squares < float("inf"))[:, None]
        o_out = (o_node[:, None] * H + i_part - H) * K + o_k[None, :]
        tl.store(k + o_out, tl.where(found, b_y * b_norm[:, None], 0.0), mask=mask)
        b_beta = 1 / (1 + tl.exp(-b_b.to(tl.float32)))
        if DOUBLE_BETA:
            b_beta *= 2
        tl.store(beta + o_node[:, None] * HV + o_h[None, :], tl.where(found, b_beta, float("nan")), mask=mask_h)


@triton.jit
def _convolved(
    p_raw,
    p_window,
    p_taps,
    p_weight,
    p_bias,
    p_copy,
    o_channel,
    mask_c,
    o_t,
    mask_t,
    stride_raw_t,
    stride_window_t,
    stride_weight_c,
    stride_weight_w,
    W: tl.constexpr,
):
    """Channels of some nodes after silu, [nodes, channels] in raw's dtype; raw itself goes to `p_copy`, if any."""
    mask = mask_t[:, None] & mask_c[None, :]
    p_raw += o_channel[None, :]
    p_weight += o_channel * stride_weight_c
    b_weight = tl.load(p_weight + (W - 1) * stride_weight_w, mask=mask_c, other=0).to(tl.float32)
    b_raw = tl.load(p_raw + o_t[:, None] * stride_raw_t, mask=mask, other=0)
    if p_copy is not None:
        tl.store(p_copy + o_channel[None, :], b_raw, mask=mask)
    b_y = b_raw.to(tl.float32) * b_weight[None, :]
    if p_bias is not None:
        b_y += tl.load(p_bias + o_channel, mask=mask_c, other=0).to(tl.float32)[None, :]
    for j in tl.static_range(W - 1):
        b_tap = tl.load(p_taps + j, mask=mask_t, other=0)[:, None]
        p_before = p_window + (b_tap + (W - 1)) * stride_window_t + o_channel[None, :]
        p_seen = tl.where(b_tap < 0, p_before, p_raw + b_tap * stride_raw_t)
        b_weight = tl.load(p_weight + j * stride_weight_w, mask=mask_c, other=0).to(tl.float32)
        b_y += tl.load(p_seen, mask=mask, other=0).to(tl.float32) * b_weight[None, :]
    # Rounded before the norm, as the torch form's convolution returns it.
    return (b_y / (1 + tl.exp(-b_y))).to(b_raw.dtype)


@triton.jit
def softplus(x):
    """log(1 + exp x) for any x, without log1p, which the interpreter lacks."""
    b_e = tl.exp(-tl.abs(x))
    b_one = 1 + b_e
    # Kahan's log1p: what rounding did to 1 + e cancels in the quotient. Decay is small, so these digits matter.
    b_log = tl.where(b_one == 1, b_e, tl.log(b_one) * (b_e / tl.where(b_one == 1, 1.0, b_one - 1)))
    return tl.maximum(x, 0) + b_log
