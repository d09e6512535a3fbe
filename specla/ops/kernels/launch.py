"""What the launching functions share: how tensors lie in memory, and what a kernel cannot take."""

from typing import NamedTuple

import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.types import Known, NodeInputs, TreeTensors

BLOCKS = (256, 128, 64, 32, 16)
LARGEST_KEY, LARGEST_VALUE = 256, 512
"""K and V that fit on chip."""
MOST_STATES = 65_535
"""B x HV: what a launch takes in its second and third dimension."""


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


def check_verify(state: Tensor, inputs: NodeInputs, tree: TreeTensors, known: Known | None = None) -> None:
    """Raise SpeclaError, naming the limit, where no kernel takes tensors like these.

    Args:
        state: [B, HV, V, K].
        inputs: of the T nodes.
        tree: of them.
        known: factors besides, for kernels that read them.
    """
    check_state(state)
    kinds = {x.dtype for x in (inputs.q, inputs.k, inputs.v)}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float16, torch.bfloat16}:
        raise SpeclaError(f"q, k and v of {', '.join(map(str, kinds))}: kernels take one of float32, float16, bfloat16")
    if inputs.g.dtype != torch.float32 or inputs.beta.dtype != torch.float32:
        raise SpeclaError(f"g of {inputs.g.dtype}, beta of {inputs.beta.dtype}: kernels take float32")
    _check_shapes(state, inputs, tree)
    if known is not None and known.factors.k.dtype != inputs.k.dtype:
        raise SpeclaError(f"known k of {known.factors.k.dtype} beside k of {inputs.k.dtype}: kernels take one dtype")


def check_state(state: Tensor) -> None:
    """Raise SpeclaError, naming the limit, where no kernel takes a state [B, HV, V, K] like this."""
    batch, value_heads, value_size, key_size = state.shape
    if state.dtype != torch.float32 or not state.is_contiguous():
        raise SpeclaError(f"a state of {state.dtype} with strides {state.stride()}: kernels take contiguous float32")
    for name, size, largest in (("head_dim", key_size, LARGEST_KEY), ("value head size", value_size, LARGEST_VALUE)):
        if size % BLOCKS[-1] or not 0 < size <= largest:
            raise SpeclaError(f"{name} {size}: kernels take multiples of {BLOCKS[-1]} up to {largest}")
    if batch * value_heads > MOST_STATES:
        raise SpeclaError(f"{batch} rows of {value_heads} value heads: kernels take up to {MOST_STATES} states at once")


def _check_shapes(state: Tensor, inputs: NodeInputs, tree: TreeTensors) -> None:
    """A kernel would read past the end of what is smaller than it should be."""
    batch, value_heads, value_size, key_size = state.shape
    nodes, heads, rows = inputs.g.shape[1], inputs.k.shape[2], tree.parents.shape[0]
    if not heads or value_heads % heads:
        raise SpeclaError(f"{value_heads} value heads on {heads} key heads: kernels take multiples")
    shared, own = (batch, nodes, heads, key_size), (batch, nodes, value_heads)
    for (name, x), shape in zip(inputs._asdict().items(), (shared, shared, (*own, value_size), own, own), strict=True):
        if x.shape != shape:
            raise SpeclaError(f"{name} of {tuple(x.shape)}: a state of {tuple(state.shape)} takes {shape}")
    if tree.nodes != nodes or rows not in (1, batch):
        raise SpeclaError(f"{rows} trees of {tree.nodes} nodes: inputs of {batch} rows and {nodes} nodes take others")


def block_of(size: int, largest: int = 64) -> int:
    """The largest block up to `largest` that divides `size`."""
    return next(block for block in BLOCKS if block <= largest and size % block == 0)


def overlapped(x: Tensor) -> dict[str, bool]:
    """Options of a kernel that begins while the one before it ends, and waits inside before it reads anything of it."""
    return {"OVERLAP": True, "launch_pdl": True} if x.is_cuda else {"OVERLAP": False}
