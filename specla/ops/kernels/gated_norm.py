"""The gated RMS norm after the delta rule: `specla.ops.norm.gated_rms_norm` in one launch, rounding included."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.errors import SpeclaError
from specla.ops.kernels.checks import COMPUTE_DTYPES, expect
from specla.ops.kernels.grid import nodes_together
from specla.ops.kernels.launch import overlapped, side_by_side


def gated_rms_norm(
    out: Tensor, gate: Tensor | None, weight: Tensor, epsilon: float, activation: str, dtype: torch.dtype
) -> Tensor:
    """`rms_norm(out) * act(gate)`: out is rounded to dtype, then all runs in float32 and is rounded to dtype once.

    Args:
        out: [B, T, HV, V] float32 or dtype, the delta rule's output; any strides but one along V.
        gate: output-gate projection, [B, T, HV * V], or None; rows may lie apart, as in a slice of a wider product.
        weight: [V].
        epsilon: of the norm.
        activation: 'swish', 'silu' (the same) or 'sigmoid'.
        dtype: the model's.

    Returns:
        [B, T, HV * V], contiguous.

    Raises:
        SpeclaError: naming the limit, for what the kernel cannot take.
    """
    if activation not in ("swish", "silu", "sigmoid"):
        raise SpeclaError(f"activation {activation!r}: the gated norm's kernel takes swish, silu or sigmoid")
    out, gate = side_by_side(out), None if gate is None else side_by_side(gate)
    batch, nodes, value_heads, value_size = out.shape
    expect("the delta rule's output", out, (batch, nodes, value_heads, value_size), COMPUTE_DTYPES, out)
    expect("the norm's weight", weight, (value_size,), COMPUTE_DTYPES, out)
    if gate is not None:
        expect("the output gate", gate, (batch, nodes, value_heads * value_size), COMPUTE_DTYPES, out)
    weight = weight.contiguous()
    normed = torch.empty(batch, nodes, value_heads * value_size, dtype=dtype, device=out.device)
    together = nodes_together(batch * value_heads, nodes)
    block = triton.next_power_of_2(value_size)
    _gated_norm_kernel[value_heads, triton.cdiv(nodes, together), batch](
        out,
        gate,
        weight,
        normed,
        epsilon,
        nodes,
        *out.stride()[:3],
        *((0, 0) if gate is None else gate.stride()[:2]),
        HV=value_heads,
        V=value_size,
        BT=together,
        BV=block,
        SIGMOID=activation == "sigmoid",
        num_warps=max(1, min(4, together * block // 256)),
        **overlapped(out),
    )
    return normed


@triton.jit(do_not_specialize=["T"])
def _gated_norm_kernel(
    out,
    gate,
    weight,
    normed,
    epsilon,
    T,
    stride_out_b,
    stride_out_t,
    stride_out_h,
    stride_gate_b,
    stride_gate_t,
    HV: tl.constexpr,
    V: tl.constexpr,
    BT: tl.constexpr,
    BV: tl.constexpr,
    SIGMOID: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    i_h, i_b = tl.program_id(0), tl.program_id(2).to(tl.int64)
    o_t = tl.program_id(1) * BT + tl.arange(0, BT)
    o_v = tl.arange(0, BV)
    mask_v = o_v < V
    mask = (o_t < T)[:, None] & mask_v[None, :]
    if OVERLAP:
        # The next kernel may send for its weights at once: it waits for this one before it reads anything else.
        gdc_launch_dependents()
        gdc_wait()
    p_out = out + i_b * stride_out_b + i_h * stride_out_h + o_t[:, None] * stride_out_t + o_v[None, :]
    b_out = tl.load(p_out, mask=mask, other=0).to(normed.dtype.element_ty).to(tl.float32)
    b_weight = tl.load(weight + o_v, mask=mask_v, other=0).to(tl.float32)
    b_scale = tl.rsqrt(tl.sum(b_out * b_out, axis=1) / V + epsilon)
    b_normed = b_out * b_scale[:, None] * b_weight[None, :]
    if gate is not None:
        p_gate = gate + i_b * stride_gate_b + o_t[:, None] * stride_gate_t + i_h * V + o_v[None, :]
        b_gate = tl.load(p_gate, mask=mask, other=0).to(tl.float32)
        b_sigmoid = 1 / (1 + tl.exp(-b_gate))
        b_normed *= b_sigmoid if SIGMOID else b_gate * b_sigmoid
    o_normed = ((i_b * T + o_t) * HV + i_h)[:, None] * V + o_v[None, :]
    tl.store(normed + o_normed, b_normed, mask=mask)
