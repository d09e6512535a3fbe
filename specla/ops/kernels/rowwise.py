"""What stands around a product of the vendor's library: an RMS norm before it, a gate after it, in one launch each."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.checks import COMPUTE_DTYPES, expect
from specla.ops.kernels.launch import overlapped, side_by_side

_GATE_BLOCK = 1024


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """The norm of x [..., D] in float32, rounded to its dtype once; weight [D]. Contiguous.

    Raises:
        SpeclaError: naming the limit, for what the kernel cannot take.
    """
    size = x.shape[-1]
    expect("x", x, x.shape, COMPUTE_DTYPES, x)
    expect("the norm's weight", weight, (size,), COMPUTE_DTYPES, x)
    rows = side_by_side(x.reshape(-1, size))
    normed = torch.empty_like(x, memory_format=torch.contiguous_format)
    block = triton.next_power_of_2(size)
    warps = max(1, min(8, block // 512))
    _norm_kernel[rows.shape[0],](
        *(rows, side_by_side(weight), normed, epsilon, rows.stride(0)),
        D=size,
        BD=block,
        num_warps=warps,
        **overlapped(x),
    )
    return normed


def silu_gate(pair: Tensor) -> Tensor:
    """silu(gate) * up of [..., gate and up side by side], with the rounding of the torch form. Contiguous.

    Raises:
        SpeclaError: naming the limit, for what the kernel cannot take.
    """
    size = pair.shape[-1] // 2
    expect("gate and up", pair, (*pair.shape[:-1], 2 * size), COMPUTE_DTYPES, pair)
    rows = side_by_side(pair.reshape(-1, 2 * size))
    gated = pair.new_empty(*pair.shape[:-1], size)
    _gate_kernel[rows.shape[0], triton.cdiv(size, _GATE_BLOCK)](
        *(rows, gated, rows.stride(0)), D=size, BD=_GATE_BLOCK, num_warps=4, **overlapped(pair)
    )
    return gated


@triton.jit
def _norm_kernel(x, weight, normed, epsilon, stride_x, D: tl.constexpr, BD: tl.constexpr, OVERLAP: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BD)
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
    b_x = tl.load(x + i_row * stride_x + o_d, mask=o_d < D, other=0).to(tl.float32)
    b_weight = tl.load(weight + o_d, mask=o_d < D, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(b_x * b_x, axis=0) / D + epsilon)
    tl.store(normed + i_row * D + o_d, b_x * scale * b_weight, mask=o_d < D)


@triton.jit
def _gate_kernel(pair, gated, stride_pair, D: tl.constexpr, BD: tl.constexpr, OVERLAP: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    o_d = tl.program_id(1) * BD + tl.arange(0, BD)
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
    b_gate = tl.load(pair + i_row * stride_pair + o_d, mask=o_d < D, other=0).to(tl.float32)
    b_up = tl.load(pair + i_row * stride_pair + D + o_d, mask=o_d < D, other=0).to(tl.float32)
    # Rounded between, as the torch form is.
    b_gate = (b_gate / (1 + tl.exp(-b_gate))).to(gated.dtype.element_ty).to(tl.float32)
    tl.store(gated + i_row * D + o_d, b_gate * b_up, mask=o_d < D)
