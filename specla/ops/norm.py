"""Root-mean-square norms: plain, and with the output gate of a gated delta net layer."""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm over the last dimension: x [..., D], weight [D]; the sum of squares runs in float32."""
    # The kernel has no backward.
    if x.is_cuda and x.dtype != torch.float64 and not torch.is_grad_enabled():
        from specla.ops.kernels import rowwise

        return rowwise.rms_norm(x, weight, epsilon)
    if x.dtype == torch.float32:
        return _normed(x, weight, epsilon)
    return _normed(x.float(), weight.float(), epsilon).to(x.dtype)


def _normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """In x's dtype. Without gradients in half the operators of `F.rms_norm`, which on a CPU is a chain of them."""
    if torch.is_grad_enabled():
        return F.rms_norm(x, weight.shape, weight, epsilon)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    square = torch.addcmul(scalar(epsilon, x.dtype, x.device), length, length, value=1 / x.shape[-1])
    return (x * square.rsqrt_()).mul_(weight)


@lru_cache(maxsize=64)
def scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor, kept: making one takes as long as an operator on a few rows."""
    return torch.tensor(value, dtype=dtype, device=device)


def gated_rms_norm(x: Tensor, gate: Tensor | None, weight: Tensor, epsilon: float, activation: str = "swish") -> Tensor:
    """`rms_norm(x) * act(gate)` in float32, rounded to x's dtype once; without a gate, the norm alone.

    Args:
        x: the delta rule's output, already rounded to the model's dtype, [..., V].
        gate: output-gate projection, [..., V], or None where the layer has no output gate.
        weight: [V].
        activation: 'swish' (or its alias 'silu') or 'sigmoid'.
    """
    normed = _normed(x.float(), weight.float(), epsilon)
    if gate is None:
        return normed.to(x.dtype)
    wide = gate.float()
    return (normed * (torch.sigmoid(wide) if activation == "sigmoid" else F.silu(wide))).to(x.dtype)
