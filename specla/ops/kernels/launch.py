"""What the launching functions share: how tensors lie in memory, and how work is cut."""

from typing import NamedTuple

from torch import Tensor

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
