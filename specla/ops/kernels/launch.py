"""What the launching functions share: how tensors lie in memory, and how work is cut."""

from typing import NamedTuple

import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.types import Bank, NodeInputs

BLOCKS = (256, 128, 64, 32, 16)


class Strided(NamedTuple):
    """[B, T, heads, size] with its heads side by side: what lies between rows and between nodes is free."""

    data: Tensor
    row: int
    node: int


class Taken(NamedTuple):
    """The accepted path.

    Attributes:
        path: [B, L] int64, nodes from the root down. Where layers are stacked in a state's rows, those of one layer.
        length: [B] int64; zero leaves the row as it is.
        along: [B, L], the window's path, where the inputs that are replayed have been put in another order.
    """

    path: Tensor
    length: Tensor
    along: Tensor | None = None


def strided(x: Tensor) -> Strided:
    """`x` as it lies where a kernel can read it so, else a copy."""
    if x.stride(3) != 1 or x.stride(2) != x.shape[3]:
        x = x.contiguous()
    return Strided(x, x.stride(0), x.stride(1))


def factor_memory(inputs: NodeInputs, bank: Bank | None) -> tuple[Tensor, Tensor]:
    """(u [B, T, HV, V] float32, decay [B, T, HV] float64) to be filled: a bank's, or new."""
    if bank is None:
        u = torch.empty(inputs.v.shape, dtype=torch.float32, device=inputs.v.device)
        return u, torch.empty(inputs.g.shape, dtype=torch.float64, device=inputs.g.device)
    for x, shape, dtype in ((bank.u, inputs.v.shape, torch.float32), (bank.decay, inputs.g.shape, torch.float64)):
        if x.shape != shape or x.dtype != dtype or not x.is_contiguous():
            kind = f"{x.dtype} of {tuple(x.shape)} with strides {x.stride()}"
            raise SpeclaError(f"a bank's {kind}: kernels take contiguous {dtype} of {tuple(shape)}")
    return bank.u, bank.decay


def side_by_side(x: Tensor) -> Tensor:
    """`x` where the elements of its last dimension follow each other, else a copy."""
    return x if x.stride(-1) == 1 else x.contiguous()


def row_stride(x: Tensor) -> int:
    """The stride of the leading dimension, zero where one entry serves all rows."""
    return 0 if x.shape[0] == 1 else x.stride(0)


def block_of(size: int, largest: int = 64) -> int:
    """The largest block up to `largest` that divides `size`."""
    return next(block for block in BLOCKS if block <= largest and size % block == 0)


def overlapped(x: Tensor) -> dict[str, bool]:
    """Options of a kernel that begins while the one before it ends, and waits inside before it reads anything of it."""
    return {"OVERLAP": True, "launch_pdl": True} if x.is_cuda else {"OVERLAP": False}
