"""Calls that between them launch every kernel, on tensors of the default device.

Sizes are chosen where a kernel becomes another: nodes and depths of trees, value heads in a batch, ways that factors
are pending, types. Each tiling that is in use occurs, not each with everything: a deep triangle takes ten seconds to
compile.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from specla.ops.growth import Kept, Level, Likely
from specla.ops.kernels import oracle, rowwise, skinny
from specla.ops.kernels.accept import accept
from specla.ops.kernels.bandwidth import empty_sums, partial_sums
from specla.ops.kernels.choose import Best, Places, Room, place_best
from specla.ops.kernels.commit import commit_factors
from specla.ops.kernels.entering import entered, keep_predicted
from specla.ops.kernels.gated_norm import gated_rms_norm
from specla.ops.kernels.grow import grow
from specla.ops.kernels.launch import Taken
from specla.ops.kernels.lay import lay
from specla.ops.kernels.likely import likeliest
from specla.ops.kernels.mixer import MOST_NODES, Products, mix_chain
from specla.ops.kernels.node_inputs import Heads, Weights, node_inputs
from specla.ops.kernels.parent_pointer import verify_by_parents
from specla.ops.kernels.pick import pick_state
from specla.ops.kernels.replay import replay
from specla.ops.kernels.ring import append
from specla.ops.kernels.tree import verify_tree
from specla.ops.kernels.walk import Pending, verify_chain, verify_hybrid, verify_sequentially
from specla.ops.kernels.window import move
from specla.ops.sampling import Sampling
from specla.ops.texts import Drafts, Ends, Log, Texts, Traces
from specla.ops.types import Bank, Factors, Filled, HeadShape, Known, Moving, Newest, NodeInputs, Sources, TreeTensors
from specla.topology import DraftTree, chain, kary

PUBLISHED = HeadShape(8, 8, 256, 256)
"""A layer of gdn-1.3b."""
WIDE = HeadShape(6, 6, 256, 512)
"""A layer of gdn-340m."""
OTHERS = (WIDE, HeadShape(2, 4, 96, 96))
KEY_SIZES = (16, 64, 96, 192)
RING = 16
PENDENCIES = ("plain", "deferred", "lazy")
"""How known factors come: not at all, in a bank that every row folds, in a ring that some fold."""

Launch = Callable[[], object]


class Layer(NamedTuple):
    """What a layer has before and after a verification."""

    state: Tensor
    inputs: NodeInputs
    tree: TreeTensors
    factors: Factors
    taken: Taken
    moving: Moving

    @classmethod
    def of(
        cls, tree: DraftTree, batch: int = 1, shape: HeadShape = PUBLISHED, dtype: torch.dtype = torch.bfloat16
    ) -> "Layer":
        """Tensors that hold nothing."""
        heads, value_heads, key_size, value_size = shape
        keys, values = (batch, tree.nodes, heads, key_size), (batch, tree.nodes, value_heads)
        q, k, v = (torch.empty(x, dtype=dtype) for x in (keys, keys, (*values, value_size)))
        inputs = NodeInputs(q, k, v, *torch.empty(2, *values))
        factors = Factors(k, torch.empty(*values, value_size), torch.empty(values, dtype=torch.float64))
        path, length = (torch.empty(x, dtype=torch.int64) for x in ((batch, tree.depth + 1), batch))
        channels = 2 * heads * key_size + value_heads * value_size
        window, raw = (torch.empty(batch, x, channels, dtype=dtype) for x in (3, tree.nodes))
        state = torch.empty(batch, value_heads, value_size, key_size)
        shared = TreeTensors.from_tree(tree, state.device)
        return cls(state, inputs, shared, factors, Taken(path, length), Moving(window, raw))

    def pending(self, kind: str) -> Pending:
        """Known factors that come in one of PENDENCIES."""
        if kind == "plain":
            return Pending(None, None)
        batch = self.state.shape[0]
        count = torch.empty(batch, dtype=torch.int64)
        if kind == "deferred":
            return Pending(Known(self.factors, count, torch.empty(batch, self.tree.tree.depth + 1).long()), True)
        ring = Factors(*(x.new_empty(batch, RING, *x.shape[2:]) for x in self.factors))
        return Pending(Known(ring, count), torch.empty(batch, dtype=torch.bool))


def told(layer: Layer) -> str:
    """What differs between layers."""
    return f"of {layer.tree.nodes} nodes, state {tuple(layer.state.shape)}, {layer.inputs.k.dtype}"


def by_mask(layer: Layer, pending: Pending, reflects: bool) -> object:
    """A verification by the tree mask."""
    return verify_tree(layer.state, layer.inputs, layer.tree, *pending, reflects=reflects)


def masks() -> Iterator[tuple[str, Launch]]:
    """The tree's kernels."""

    def of(
        tree: DraftTree,
        kind: str = "plain",
        batch: int = 1,
        shape: HeadShape = PUBLISHED,
        dtype: torch.dtype = torch.bfloat16,
        reflects: bool = False,
    ) -> tuple[str, Launch]:
        layer = Layer.of(tree, batch, shape, dtype)
        name = f"mask {tree.name} {kind} {told(layer)}{' that reflects' if reflects else ''}"
        return name, partial(by_mask, layer, layer.pending(kind), reflects)

    for nodes in (16, 32, 64):
        for batch in (1, 32, 128):
            yield of(kary(2, nodes), batch=batch)
    for nodes in (16, 64):
        for batch in (1, 8, 32):
            yield of(kary(2, nodes), "deferred", batch)
        for batch in (1, 32):
            yield of(kary(2, nodes), "lazy", batch)
    for nodes in (10, 32, 64):
        yield of(chain(nodes - 1))
    # In two launches: the second takes the nodes of the first as known factors, beside a ring where there is one.
    yield of(kary(2, 128))
    yield of(chain(127), "lazy", 128)
    for dtype in (torch.float16, torch.float32):
        yield of(kary(2, 64), dtype=dtype)
    for size in KEY_SIZES:
        yield of(kary(2, 64), shape=HeadShape(1, 1, size, size))
    for kind in PENDENCIES:
        yield of(kary(2, 64), kind, 32, reflects=True)
    for tree in (kary(2, 16), chain(63), kary(2, 128)):
        yield of(tree, reflects=True)
    yield of(kary(2, 64), dtype=torch.float32, reflects=True)


def walks() -> Iterator[tuple[str, Launch]]:
    """What takes states through nodes."""
    line, bush = Layer.of(chain(7)), Layer.of(kary(2, 31))
    for kind in PENDENCIES:
        yield f"chain {kind}", partial(verify_chain, *line[:3], line.pending(kind))
        yield f"hybrid {kind}", partial(verify_hybrid, *bush[:3], bush.pending(kind))
    layers = [line, Layer.of(chain(7), 8), Layer.of(chain(7), 128), Layer.of(chain(7), dtype=torch.float32)]
    layers += [Layer.of(chain(7), shape=shape) for shape in OTHERS]
    for layer in layers:
        given = layer[:3]
        yield f"chain {told(layer)}", partial(verify_chain, *given)
        yield f"sequentially {told(layer)}", partial(verify_sequentially, *given)
        yield f"by parents {told(layer)}", partial(verify_by_parents, *given)
    yield "chain with states", partial(verify_chain, *line[:3], keeps=True)
    for layer in (Layer.of(kary(2, 31), 128), Layer.of(kary(2, 31), dtype=torch.float32)):
        yield f"hybrid {told(layer)}", partial(verify_hybrid, *layer[:3])


def commits() -> Iterator[tuple[str, Launch]]:
    """What follows a verification."""
    first = Layer.of(chain(7))
    layers = [first, *(Layer.of(chain(nodes - 1), batch) for nodes, batch in ((8, 8), (128, 1), (128, 8)))]
    layers += [Layer.of(chain(7), dtype=torch.float32), *(Layer.of(chain(7), shape=shape) for shape in OTHERS)]
    for layer in layers:
        state, inputs, tree, factors, taken, moving = layer
        for reflects in (False, True):
            commit = partial(commit_factors, state, factors, taken, moving, reflects=reflects)
            yield f"factors {told(layer)}{' that reflect' if reflects else ''}", commit
        yield f"replay {told(layer)}", partial(replay, state, inputs, taken, moving)
        states = state.new_empty(state.shape[0], tree.nodes, *state.shape[1:])
        yield f"pick {told(layer)}", partial(pick_state, state, states, taken, moving)
        ring = Factors(*(x.new_empty(x.shape[0], RING, *x.shape[2:]) for x in factors))
        filled = Filled(torch.empty_like(taken.length), torch.empty_like(taken.length, dtype=torch.bool))
        yield f"ring {told(layer)}", partial(append, ring, factors, taken, filled, tree.nodes, moving)
        yield f"window {told(layer)}", partial(move, moving, taken.path, taken.length)
    # No window moves where it has moved already.
    yield "factors alone", partial(commit_factors, first.state, first.factors, first.taken)
    yield "replay alone", partial(replay, first.state, first.inputs, first.taken)


def projections() -> Iterator[tuple[str, Launch]]:
    """What a layer does before and after a verification."""
    for shape, dtype, batch, nodes in (
        (PUBLISHED, torch.bfloat16, 1, 1),
        (PUBLISHED, torch.bfloat16, 1, MOST_NODES),
        (PUBLISHED, torch.bfloat16, 32, 16),
        (PUBLISHED, torch.float32, 32, 16),
        (OTHERS[1], torch.bfloat16, 1, 16),
    ):
        for doubled in (False, True):
            case = f"{tuple(shape)} {dtype} {batch} {nodes} {doubled}"
            yield f"layer {case}", partial(of_layer, (batch, nodes), shape, dtype, doubled)


def factors_of(batch: int, nodes: int, shape: HeadShape, dtype: torch.dtype) -> Factors:
    """Of any values."""
    values = batch, nodes, shape.value_heads
    k = torch.empty(batch, nodes, shape.heads, shape.key_size, dtype=dtype)
    return Factors(k, torch.empty(*values, shape.value_size), torch.empty(values, dtype=torch.float64))


def of_layer(sizes: tuple[int, int], shape: HeadShape, dtype: torch.dtype, doubled: bool) -> None:
    """The delta rule's inputs and the norm of its outputs, of slices of a layer's one product.

    Args:
        sizes: rows and nodes.
        shape: of the heads.
        dtype: the model's.
        doubled: whether it has what a layer may have besides: a bias, a doubled beta, another gate.
    """
    values = shape.value_heads * shape.value_size
    channels = 2 * shape.heads * shape.key_size + values
    parts = [channels, values, shape.value_heads, shape.value_heads]
    raw, gate, a, b = torch.empty(*sizes, sum(parts), dtype=dtype).split(parts, dim=-1)
    window, weight = torch.empty(sizes[0], 3, channels, dtype=dtype), torch.empty(channels, 4, dtype=dtype)
    bias = torch.empty(channels, dtype=dtype) if doubled else None
    weights = Weights(weight, bias, *torch.empty(2, shape.value_heads))
    taps = torch.empty(1, sizes[1], 3, dtype=torch.int64)
    node_inputs(raw, (a, b), window, taps, weights, Heads(*shape), doubled)
    if sizes[1] <= MOST_NODES:
        ring, own = (factors_of(sizes[0], nodes, shape, dtype) for nodes in (RING, sizes[1]))
        bank = Bank(*own, torch.empty(*raw.shape, dtype=dtype))
        held = Known(ring, torch.empty(sizes[0], dtype=torch.int64))
        for pending in (Pending(None, None), Pending(held, True), Pending(held, torch.empty(sizes[0]) == 0)):
            state = torch.empty(sizes[0], shape.value_heads, shape.value_size, shape.key_size)
            mix_chain(state, Products(raw, a, b, window), weights, Heads(*shape), pending, bank, doubled)
    out, norm = torch.empty(*sizes, shape.value_heads, shape.value_size), torch.empty(shape.value_size, dtype=dtype)
    gated_rms_norm(out, gate, norm, 1e-5, "sigmoid" if doubled else "swish", dtype)
    if sizes[1] == 1:
        gated_rms_norm(out, None, norm, 1e-5, "swish", dtype)


def products() -> Iterator[tuple[str, Launch]]:
    """Products with a layer's weights and the head's, at one row and at those of a small tree; a small model's too."""
    for rows in (1, 5, 17):
        for dtype in (torch.bfloat16, torch.float16):
            for outputs, size, kind in (
                (8208, 2048, "normed"),
                (2048, 2048, "added"),
                (5632, 2048, "gated"),
                (2048, 5632, "added"),
                (32000, 2048, "plain"),
                (264, 96, "normed"),
            ):
                if dtype == torch.bfloat16 or size == 96:
                    yield (
                        f"product {rows} {outputs} {size} {kind} {dtype}",
                        partial(of_weight, rows, outputs, size, kind, dtype),
                    )
        x = torch.empty(rows, 2048, dtype=torch.bfloat16)
        yield f"norm {rows}", partial(rowwise.rms_norm, x, x[0], 1e-5)
        yield f"gate {rows}", partial(rowwise.silu_gate, torch.empty(rows, 11264, dtype=torch.bfloat16))
    yield "product of a first norm", partial(of_weight, 5, 8208, 2048, "first", torch.bfloat16)


def of_weight(rows: int, outputs: int, size: int, kind: str, dtype: torch.dtype) -> None:
    """One product of a kind, [rows, size] -> [rows, outputs]."""
    gated, normed = kind == "gated", kind in ("normed", "gated", "first")
    data, x = torch.empty(outputs * (1 + gated), size, dtype=dtype), torch.empty(rows, size, dtype=dtype)
    squares = torch.empty(rows, 32) if rows > 1 and kind != "first" else None
    norm = skinny.Norm(torch.empty(size, dtype=dtype), 1e-5, squares) if normed else None
    residual = torch.empty(rows, outputs, dtype=dtype) if kind == "added" else None
    weight = skinny.Wide(data, skinny.counters_for(data), gated)
    skinny.product(skinny.Operands(x, weight, norm, residual, keeps_normed=kind == "normed"))


def tokens() -> Iterator[tuple[str, Launch]]:
    """What drafts, chooses, accepts and ends, on a chain and on a tree."""
    rows = torch.empty(2, dtype=torch.int64)
    for tree in (chain(0), kary(2, 16)):
        shape, tensors = (2, tree.nodes), TreeTensors.from_tree(tree, "meta")
        text, log = torch.empty(2, 80, dtype=torch.int64), torch.empty(64, 2, dtype=torch.int16)
        texts = Texts(rows, rows, text, rows, rows == 0, rows, rows)
        places, drafted = Places(rows, rows, tensors.depths), torch.empty(shape, dtype=torch.int64)
        logits = torch.empty(*shape, 32000, dtype=torch.bfloat16)
        columns, ids = torch.empty(2 * tree.nodes, dtype=torch.int64), torch.empty(32000, dtype=torch.int64)
        for sampling in (Sampling(), Sampling(0.8), Sampling(0.8, 0.9)):
            room = Room(text, columns, ids if sampling.greedy else None)
            yield f"tokens of {tree.name}, {sampling}", partial(place_best, logits, sampling, places, 2, room)
        yield f"around a drafter's block, {tree.name}", partial(around_a_drafters_block, tree.nodes)
        best = Best(torch.empty(*shape, 8), torch.empty(*shape, 8, dtype=torch.int32))
        logs = Log(log, log, torch.empty(64, 2, tree.depth + 1, dtype=torch.int16))
        ends = Ends(64, torch.empty(1, dtype=torch.int64))
        yield f"accept {tree.name}", partial(accept, best, drafted, tensors.parents, tree.depth, texts, ends, logs)
        traces = Traces(text, rows, text.double(), torch.empty(1, 2, dtype=torch.float64))
        drafts = Drafts(torch.empty(64, *shape, dtype=torch.int64), rows[:1] == 0)
        yield f"oracle {tree.name}", partial(oracle.draft, drafted, tensors.parents, texts, traces, drafts, 32000)
        for order in (None, ids):
            yield f"likely of {tree.name}", partial(likeliest, logits, Sampling(), places, 4, order)
    yield "the likeliest of a nucleus", partial(likeliest, logits, Sampling(0.8, 0.9), places, 4)
    # The first level, one that moves what has run, and the last.
    for ran_last, level in ((1, Level(0, 1, 0, 4)), (12, Level(17, 29, 14, 12)), (12, Level(29, 41, 0, 0))):
        logs = torch.empty(2, ran_last, 4)
        likely = Likely(logs, torch.empty(logs.shape, dtype=torch.int64))
        kept = Kept(torch.empty(2, 16), *torch.empty(4, 2, 16, dtype=torch.int64))
        above = torch.empty(2, ran_last) if level.started else None
        yield f"growth {level}", partial(grow, likely, above, kept, level, 3.0)
    for nodes in (1, 26):
        yield f"a tree of {nodes} laid out", partial(lay, *torch.empty(2, 2, nodes, dtype=torch.int64), 4)


def around_a_drafters_block(nodes: int) -> None:
    """What goes in for two rows, and what is kept of what comes out."""
    half, rows = torch.bfloat16, torch.empty(2, dtype=torch.int64)
    hidden, places = torch.empty(2, nodes, 2048, dtype=half), torch.empty(2, nodes, dtype=torch.int64)
    norm, embeddings = skinny.Norm(torch.empty(2048, dtype=half), 1e-6), torch.empty(32000, 2048, dtype=half)
    for newest in (None, Newest(rows, rows)):
        entered(Sources(hidden, places, places, places, newest), embeddings, norm, norm)
    keep_predicted(hidden, rows, norm, torch.empty(2, 2048, dtype=half))


def bandwidth() -> None:
    """Reading memory and nothing else."""
    x = torch.empty(1 << 30)
    partial_sums(x, empty_sums(x))


def _masks(half: int) -> list[tuple[str, Launch]]:
    """The tree's, which take half of the time: the first or the second half of them."""
    whole = list(masks())
    return whole[: len(whole) // 2] if half == 0 else whole[len(whole) // 2 :]


FAMILIES: dict[str, Callable[[], Iterable[tuple[str, Launch]]]] = {
    "masks": partial(_masks, 0),
    "more masks": partial(_masks, 1),
    "walks": walks,
    "commits": commits,
    "projections": projections,
    "products": products,
    "tokens": tokens,
    "bandwidth": lambda: [("bandwidth", bandwidth)],
}
"""All of them, each with what it is; a family is compiled in a process of its own."""
