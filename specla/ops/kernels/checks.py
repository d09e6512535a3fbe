"""What a kernel cannot take, said before it is launched: it would read past an end, or take bytes for something else.

All of these raise SpeclaError, naming what is wrong and what is taken. Values are not looked at, which would wait for
a device: that a path's nodes, the counts of known factors and the places of a bank lie inside is the caller's part.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.types import Factors, Filled, Fold, Known, Moving, NodeInputs, TreeTensors

SMALLEST_BLOCK = 16
"""What divides K and V."""
LARGEST_KEY, LARGEST_VALUE = 256, 512
"""K and V that fit on chip."""
MOST_STATES = 65_535
"""B x HV: what a launch takes in its second and third dimension."""
WIDEST_WINDOW = 4
COMPUTE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Compute dtypes."""
DECAYS = (torch.float64, torch.float32)
WHOLE = (torch.int64, torch.int32)
"""Of counts and places."""


def check_state(state: Tensor) -> None:
    """A state [B, HV, V, K], float32."""
    if state.dim() != 4:
        raise SpeclaError(f"a state of {tuple(state.shape)}: kernels take [batch, value heads, V, K]")
    batch, value_heads, value_size, key_size = state.shape
    if state.dtype != torch.float32 or not state.is_contiguous():
        raise SpeclaError(f"a state of {state.dtype} with strides {state.stride()}: kernels take contiguous float32")
    for name, size, largest in (("head_dim", key_size, LARGEST_KEY), ("value head size", value_size, LARGEST_VALUE)):
        if size % SMALLEST_BLOCK or not 0 < size <= largest:
            raise SpeclaError(f"{name} {size}: kernels take multiples of {SMALLEST_BLOCK} up to {largest}")
    if batch * value_heads > MOST_STATES:
        raise SpeclaError(f"{batch} rows of {value_heads} value heads: kernels take up to {MOST_STATES} states at once")


def check_verify(
    state: Tensor, inputs: NodeInputs, tree: TreeTensors, known: Known | None = None, fold: Fold = None
) -> None:
    """What verification reads: a state [B, HV, V, K], T nodes, their tree, and committed factors besides."""
    check_state(state)
    check_inputs(state, inputs)
    nodes, rows = inputs.g.shape[1], tree.parents.shape[0]
    if not nodes:
        raise SpeclaError("no nodes: kernels take one or more")
    if tree.nodes != nodes or rows not in (1, state.shape[0]):
        shape = f"{state.shape[0]} rows and {nodes} nodes"
        raise SpeclaError(f"{rows} trees of {tree.nodes} nodes: inputs of {shape} take others")
    for name, x in (("parents", tree.parents), ("depths", tree.depths)):
        expect(name, x, (rows, nodes), WHOLE, state)
    expect("ancestors", tree.ancestors, (rows, nodes, nodes), (torch.bool,), state)
    if known is not None:
        check_known(state, inputs.k, known, fold)


def check_inputs(state: Tensor, inputs: NodeInputs) -> None:
    """The delta rule's inputs of T nodes on a state [B, HV, V, K] that has been checked."""
    kinds = {x.dtype for x in (inputs.q, inputs.k, inputs.v)}
    if len(kinds) > 1 or not kinds <= set(COMPUTE_DTYPES):
        raise SpeclaError(f"q, k and v of {', '.join(map(str, kinds))}: kernels take one of float32, float16, bfloat16")
    if inputs.g.dtype != torch.float32 or inputs.beta.dtype != torch.float32:
        raise SpeclaError(f"g of {inputs.g.dtype}, beta of {inputs.beta.dtype}: kernels take float32")
    batch, value_heads, value_size, key_size = state.shape
    nodes, heads = inputs.g.shape[1], inputs.k.shape[2]
    if not heads or value_heads % heads:
        raise SpeclaError(f"{value_heads} value heads on {heads} key heads: kernels take multiples")
    shared, own = (batch, nodes, heads, key_size), (batch, nodes, value_heads)
    for (name, x), shape in zip(inputs._asdict().items(), (shared, shared, (*own, value_size), own, own), strict=True):
        if x.shape != shape:
            raise SpeclaError(f"{name} of {tuple(x.shape)}: a state of {tuple(state.shape)} takes {shape}")
    _one_device(state, *inputs)


def check_known(state: Tensor, k: Tensor, known: Known, fold: Fold) -> None:
    """Committed factors besides a state [B, HV, V, K] and keys [B, T, H, K], and which rows fold them."""
    if known.factors.k.dtype != k.dtype:
        raise SpeclaError(f"known k of {known.factors.k.dtype} beside k of {k.dtype}: kernels take one dtype")
    check_factors("known ", state, known.factors, k.shape[2])
    batch = state.shape[0]
    places = (known.factors.k if known.nodes is None else known.nodes).shape[1]
    if known.nodes is not None:
        expect("known nodes", known.nodes, (batch, places), WHOLE, state)
    if known.valid.dim() == 1:
        expect("known counts", known.valid, (batch,), WHOLE, state)
    else:
        expect("the mask of known factors", known.valid, (batch, places), (torch.bool,), state)
    if isinstance(fold, Tensor):
        expect("fold", fold, (batch,), (torch.bool,), state)


def check_factors(name: str, state: Tensor, factors: Factors, heads: int | None = None) -> None:
    """Compact factors of any number of nodes; `heads` key heads, or any number that divides the value heads."""
    batch, value_heads, value_size, key_size = state.shape
    k, u, decay = factors
    nodes, found = (k.shape[1], k.shape[2]) if k.dim() == 4 else (-1, 0)
    if not found or value_heads % found or heads not in (None, found):
        raise SpeclaError(f"{name}k of {tuple(k.shape)}: a state of {tuple(state.shape)} takes other key heads")
    expect(f"{name}k", k, (batch, nodes, found, key_size), COMPUTE_DTYPES, state)
    expect(f"{name}u", u, (batch, nodes, value_heads, value_size), (torch.float32,), state)
    expect(f"{name}decay", decay, (batch, nodes, value_heads), DECAYS, state)


def check_path(rows: int, path: Tensor, length: Tensor) -> None:
    """Accepted paths [B, L] of some rows, or of one layer where layers are stacked in `rows`."""
    batch = path.shape[0]
    if path.dim() != 2 or not path.shape[1] or not batch or rows % batch:
        raise SpeclaError(f"paths of {tuple(path.shape)} for {rows} rows: kernels take [rows, one node or more]")
    expect("paths", path, path.shape, WHOLE, path)
    expect("their lengths", length, (batch,), WHOLE, path)


def check_window(moving: Moving, rows: int) -> None:
    """The convolution's window [B, W-1, C] and the nodes' raw inputs [B, T, C]."""
    window, raw = moving
    if not window.is_contiguous() or raw.stride(2) != 1 or raw.dtype != window.dtype or window.shape[1] > WIDEST_WINDOW:
        raise SpeclaError(
            f"a window of {window.dtype}, {tuple(window.shape)} with strides {window.stride()}, inputs of {raw.dtype} "
            f"with strides {raw.stride()}: kernels take one dtype, channels side by side, and a contiguous window of "
            f"at most {WIDEST_WINDOW} places"
        )
    if window.shape[0] != rows or raw.shape[0] != rows or raw.shape[2] != window.shape[2]:
        shapes = f"{tuple(window.shape)} and inputs of {tuple(raw.shape)}"
        raise SpeclaError(f"a window of {shapes}: kernels take {rows} rows of both, with the same channels")
    _one_device(window, raw)


def check_ring(ring: Factors, factors: Factors, filled: Filled) -> None:
    """A ring [B, R, ...] that is written in place, the factors [B, T, ...] that go into it, and how full it is."""
    batch = ring.k.shape[0]
    kinds = ((factors.k.dtype,), (torch.float32,), DECAYS)
    for name, kept, new, kind in zip(Factors._fields, ring, factors, kinds, strict=True):
        if not kept.is_contiguous():
            raise SpeclaError(f"a ring's {name} with strides {kept.stride()}: kernels take it contiguous")
        # The first: a ring's decays are float64, whatever those are that go into it.
        expect(f"a ring's {name}", kept, (batch, ring.k.shape[1], *new.shape[2:]), kind[:1], ring.k)
        expect(f"new {name}", new, (batch, factors.k.shape[1], *new.shape[2:]), kind, ring.k)
    expect("places in use", filled.used, (batch,), (torch.int64,), ring.k)
    expect("fold", filled.fold, (batch,), (torch.bool,), ring.k)


def expect(name: str, x: Tensor, shape: Sequence[int], kinds: Sequence[torch.dtype], like: Tensor) -> None:
    """A tensor of this shape and one of these dtypes, on the device of `like`; of one dimension, side by side."""
    if x.dtype not in kinds:
        names = " or ".join(str(kind).removeprefix("torch.") for kind in kinds)
        raise SpeclaError(f"{name} of {x.dtype}: kernels take {names}")
    if tuple(x.shape) != tuple(shape):
        raise SpeclaError(f"{name} of {tuple(x.shape)}: kernels take {tuple(shape)}")
    if x.dim() == 1 and x.shape[0] > 1 and x.stride(0) != 1:
        raise SpeclaError(f"{name} with a stride of {x.stride(0)}: kernels take its elements side by side")
    _one_device(like, x)


def expect_filled(name: str, x: Tensor, dims: int) -> None:
    """A tensor of so many dimensions, none of them empty: a kernel would read past an end of it."""
    if x.dim() != dims or not x.numel():
        raise SpeclaError(f"{name} of {tuple(x.shape)}: kernels take {dims} dimensions, none of them empty")


def _one_device(*tensors: Tensor) -> None:
    devices = {x.device for x in tensors}
    if len(devices) > 1:
        raise SpeclaError(f"tensors on {' and '.join(sorted(map(str, devices)))}: kernels take those of one device")
