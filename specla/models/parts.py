"""The small parts of a layer: norm, weights of the short convolution, MLP."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specla.ops.linear import Norm, PackedLinear, Stream
from specla.ops.norm import rms_norm


class RMSNorm(nn.Module):
    """A weight for `rms_norm`."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    @property
    def norm(self) -> Norm:
        """What a product takes that norms its rows itself."""
        return Norm(self.weight, self.epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] -> the same shape and dtype."""
        return rms_norm(x, self.weight, self.epsilon)


class ShortConvolution(nn.Module):
    """Weights of a causal depthwise convolution: weight [C, 1, W], bias [C] or None."""

    def __init__(self, channels: int, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, width))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        bound = 1 / math.sqrt(width)
        nn.init.uniform_(self.weight, -bound, bound)


class GatedMLP(nn.Module):
    """`down(silu(gate(x)) * up(x))`."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)
        self._gate_up: PackedLinear | None = None
        self._down: PackedLinear | None = None

    def pack(self) -> None:
        """Lay gate and up side by side in memory; for inference only."""
        self._gate_up = PackedLinear(torch.cat((self.gate_proj.weight, self.up_proj.weight)))
        self._down = PackedLinear(self.down_proj.weight)
        for projection, rows in zip((self.gate_proj, self.up_proj), self._gate_up.weight.chunk(2), strict=True):
            projection.weight = nn.Parameter(rows, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., hidden] -> the same shape."""
        if self._gate_up is None or self._down is None:
            hidden = F.silu(F.linear(x, self.gate_proj.weight)) * F.linear(x, self.up_proj.weight)
            return F.linear(hidden, self.down_proj.weight)
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(F.silu(gate) * up)

    def added(self, stream: Stream, norm: Norm) -> Stream:
        """The stream [B, T, hidden] plus what the MLP makes of its norm."""
        if self._gate_up is None or self._down is None:
            return Stream(stream.hidden + self(rms_norm(stream.hidden, *norm)))
        return self._down.added(self._gate_up.gated(stream, norm), stream)
