"""Products with a weight, and what stands before and after them in a layer: a norm, a gate, a residual.

`Linear` says in torch what they are. `PackedLinear` is for inference: a weight that does not change, laid out once for
what is fastest at the few rows of a decoding step; on a GPU norm, gate and residual are part of the product's kernel.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specla.ops.norm import rms_norm

HALF_DTYPES = (torch.bfloat16, torch.float16)


class Norm(NamedTuple):
    """An RMS norm: weight [K], epsilon."""

    weight: Tensor
    epsilon: float


class Stream(NamedTuple):
    """The residual stream.

    Attributes:
        hidden: [B, T, K].
        squares: [B T, parts] float32, which add up to the sums of squares of hidden, where what wrote it left them.
    """

    hidden: Tensor
    squares: Tensor | None = None


class Linear:
    """`x @ weight.T`.

    Args:
        weight: [N, K].
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., K] -> [..., N]."""
        return F.linear(x, self.weight)

    def after_norm(self, stream: Stream, norm: Norm, into: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(The product of the normed stream [B, T, N], the normed stream [B, T, K], rounded to its dtype).

        The product lies in `into` where that is given.
        """
        normed = rms_norm(stream.hidden, *norm)
        product = self(normed)
        return product if into is None else into.copy_(product), normed

    def gated(self, stream: Stream, norm: Norm) -> Tensor:
        """silu(gate) * up of the normed stream, [B, T, N / 2]; the weight is gate's rows, then those of up."""
        gate, up = self(rms_norm(stream.hidden, *norm)).chunk(2, dim=-1)
        return F.silu(gate) * up

    def added(self, x: Tensor, stream: Stream) -> Stream:
        """The stream [B, T, N] plus the product of x [B, T, K]."""
        return Stream(stream.hidden + self(x))


class PackedLinear(Linear):
    """`x @ weight.T`, for inference.

    On a CPU in float32 the weight is also kept transposed: read in that order, the products of gdn-mini's layers take
    two thirds of the time (one row) to five sixths (16 rows) that they take over oneDNN's blocked layout. It costs the
    weight's memory once more.

    On a GPU, in bfloat16 or float16, a few rows run in kernels of our own (`specla.ops.kernels.skinny`), more in the
    vendor's. Products that are under way at the same time, on several streams, need a PackedLinear each.

    Args:
        weight: [N, K]; not to be written afterwards: kernels read it before those launched earlier have ended.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight.detach())
        self._transposed: Tensor | None = None
        self._counters: Tensor | None = None
        if weight.device.type == "cpu" and weight.dtype == torch.float32:
            self._transposed = self.weight.t().contiguous()
        if weight.is_cuda and weight.dtype in HALF_DTYPES:
            from specla.ops.kernels import skinny

            self.weight = self.weight.contiguous()
            self._counters = skinny.counters_for(self.weight)
            # From here on kernels read the weight without waiting for what wrote it.
            torch.cuda.current_stream(weight.device).synchronize()

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., K] -> [..., N]."""
        if self._transposed is not None:
            return (x.flatten(0, -2) @ self._transposed).view(*x.shape[:-1], -1)
        if self._is_few(x):
            return self._few(x)[0].view(*x.shape[:-1], -1)
        return super().__call__(x)

    def after_norm(self, stream: Stream, norm: Norm, into: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `Linear`'s."""
        if not self._is_few(stream.hidden):
            return super().after_norm(stream, norm, into)
        at_once = into.flatten(0, 1) if into is not None and into.is_contiguous() else None
        product, normed, _ = self._few(stream.hidden, norm, stream.squares, keeps_normed=True, into=at_once)
        assert normed is not None
        product = product.view(*stream.hidden.shape[:-1], -1)
        if into is not None and at_once is None:
            into.copy_(product)
        return product, normed.view(stream.hidden.shape)

    def gated(self, stream: Stream, norm: Norm) -> Tensor:
        """As `Linear`'s."""
        if not self._is_few(stream.hidden):
            if not stream.hidden.is_cuda or torch.is_grad_enabled():
                return super().gated(stream, norm)
            from specla.ops.kernels import rowwise

            return rowwise.silu_gate(self(rms_norm(stream.hidden, *norm)))
        product, _, _ = self._few(stream.hidden, norm, stream.squares, gated=True)
        return product.view(*stream.hidden.shape[:-1], -1)

    def added(self, x: Tensor, stream: Stream) -> Stream:
        """As `Linear`'s."""
        if not self._is_few(x):
            return super().added(x, stream)
        hidden, _, squares = self._few(x, residual=stream.hidden)
        return Stream(hidden.view(stream.hidden.shape), squares)

    def _is_few(self, x: Tensor) -> bool:
        """Whether a product with x [..., K] runs in our kernels."""
        if self._counters is None or torch.is_grad_enabled() or x.dtype != self.weight.dtype:
            return False
        from specla.ops.kernels import skinny

        return 0 < x.numel() <= skinny.MOST_ROWS * x.shape[-1]

    def _few(
        self,
        x: Tensor,
        norm: Norm | None = None,
        squares: Tensor | None = None,
        residual: Tensor | None = None,
        *,
        gated: bool = False,
        keeps_normed: bool = False,
        into: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """(y [M, N], the normed x [M, K] where it is kept, parts of y's sums of squares where some are left)."""
        from specla.ops.kernels import skinny

        assert self._counters is not None
        before = None if norm is None else skinny.Norm(*norm, squares)
        after = None if residual is None else residual.flatten(0, -2)
        weight = skinny.Wide(self.weight, self._counters, gated)
        return skinny.product(skinny.Operands(x.flatten(0, -2), weight, before, after, keeps_normed, into))
