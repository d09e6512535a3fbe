"""From projections to what the delta rule reads: decay, write strength, and unit keys and queries."""

import torch
import torch.nn.functional as F
from torch import Tensor

from specla.ops.norm import scalar

L2_EPSILON = 1e-6


def gates(
    a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor, allow_neg_eigval: bool = False
) -> tuple[Tensor, Tensor]:
    """Log decay and write strength, computed in float32 whatever the model's dtype.

    Args:
        a: decay projection, [..., HV].
        b: write-strength projection, [..., HV].
        a_log: [HV] float32, log of the decay rate.
        dt_bias: [HV] float32.
        allow_neg_eigval: doubles the write strength, so that the transition may have negative eigenvalues.

    Returns:
        (g, beta), both [..., HV] float32; g <= 0, beta in (0, 1), or (0, 2) when doubled.
    """
    return gates_at(a, b, decay_rate(a_log), dt_bias, allow_neg_eigval)


def decay_rate(a_log: Tensor) -> Tensor:
    """-exp(A_log), float32."""
    return -a_log.float().exp()


def gates_at(
    a: Tensor, b: Tensor, rate: Tensor, dt_bias: Tensor, allow_neg_eigval: bool = False
) -> tuple[Tensor, Tensor]:
    """`gates` from a decay rate, [HV] float32, that was worked out before."""
    g = rate * F.softplus(a.float() + dt_bias.float())
    beta = torch.sigmoid(b.float())
    return g, (2.0 * beta if allow_neg_eigval else beta)


def l2_normalise(x: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """`scale * x / sqrt(sum(x^2) + 1e-6)` over the last dimension: float32 inside, rounded to x's dtype once.

    Everything downstream uses this one rounded value, so the recurrence is exactly the delta rule of slightly different
    keys, and decoding and verification agree. A scale that is a tensor broadcasts: queries and keys go in one call.
    """
    wide = x.float()
    if torch.is_grad_enabled():
        # A length has no gradient where it is zero.
        return (wide * (torch.rsqrt(wide.square().sum(-1, keepdim=True) + L2_EPSILON) * scale)).to(x.dtype)
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    inverse = torch.addcmul(scalar(L2_EPSILON, wide.dtype, wide.device), length, length).rsqrt_()
    return (wide * inverse.mul_(scale)).to(x.dtype)
