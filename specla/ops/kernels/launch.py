"""What the launching functions share: how tensors lie in memory, and what a kernel cannot take."""

from typing import NamedTuple

import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.types import NodeInputs

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


def row_stride(x: Tensor) -> int:
    """The stride of the leading dimension, zero where one entry serves all rows."""
    return 0 if x.shape[0] == 1 else x.stride(0)


def check_verify(state: Tensor, inputs: NodeInputs, largest_key: int = 256, largest_value: int = 512) -> None:
    """Raise SpeclaError, naming the limit, where no kernel takes tensors like these.

    Args:
        state: [B, HV, V, K].
        inputs: of the nodes.
        largest_key: K that fits on chip.
        largest_value: V.
    """
    check_state(state, largest_key, largest_value)
    kinds = {x.dtype for x in (inputs.q, inputs.k, inputs.v)}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float16, torch.bfloat16}:
        raise SpeclaError(f"q, k and v of {', '.join(map(str, kinds))}: kernels take one of float32, float16, bfloat16")
    if inputs.g.dtype != torch.float32 or inputs.beta.dtype != torch.float32:
        raise SpeclaError(f"g of {inputs.g.dtype}, beta of {inputs.beta.dtype}: kernels take float32")


def check_state(state: Tensor, largest_key: int = 256, largest_value: int = 512) -> None:
    """Raise SpeclaError, naming the limit, where no kernel takes a state [B, HV, V, K] like this."""
    value_size, key_size = state.shape[2:]
    if state.dtype != torch.float32 or not state.is_contiguous():
        raise SpeclaError(f"a state of {state.dtype} with strides {state.stride()}: kernels take contiguous float32")
    for name, size, largest in (("head_dim", key_size, largest_key), ("value head size", value_size, largest_value)):
        if size % BLOCKS[-1] or not 0 < size <= largest:
            raise SpeclaError(f"{name} {size}: kernels take multiples of {BLOCKS[-1]} up to {largest}")


def block_of(size: int, largest: int = 64) -> int:
    """The largest block up to `largest` that divides `size`."""
    return next(block for block in BLOCKS if block <= largest and size % block == 0)


def overlapped(x: Tensor) -> dict[str, bool]:
    """Options of a kernel that begins while the one before it ends, and waits inside before it reads anything of it."""
    return {"OVERLAP": True, "launch_pdl": True} if x.is_cuda else {"OVERLAP": False}
