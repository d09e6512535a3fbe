"""Random inputs of the delta rule, random trees and random accepted paths."""

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from specla.ops.types import Factors, HeadShape, Known, NodeInputs, TreeTensors
from specla.topology import DraftTree

PLAIN = HeadShape(2, 2, 16, 16)
ODD = HeadShape(1, 2, 24, 40)
GROUPED = HeadShape(2, 6, 24, 16)


def node_inputs(
    batch: int, nodes: int, shape: HeadShape, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> NodeInputs:
    """Inputs as a layer makes them: unit keys, scaled queries, decay below zero, strength between 0 and 1."""

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    q, k = (torch.nn.functional.normalize(draw(batch, nodes, shape.heads, shape.key_size), dim=-1) for _ in "qk")
    return NodeInputs(
        (q * shape.key_size**-0.5).to(dtype),
        k.to(dtype),
        draw(batch, nodes, shape.value_heads, shape.value_size).to(dtype),
        -draw(batch, nodes, shape.value_heads).abs(),
        draw(batch, nodes, shape.value_heads).sigmoid(),
    )


def random_state(batch: int, shape: HeadShape, generator: torch.Generator) -> Tensor:
    """[B, HV, V, K] float32."""
    return torch.randn(batch, shape.value_heads, shape.value_size, shape.key_size, generator=generator)


def random_tree(nodes: int, generator: torch.Generator, reach: int = 6) -> DraftTree:
    """Every node's parent is one of the `reach` nodes before it."""
    parents = [-1]
    for node in range(1, nodes):
        parents.append(int(torch.randint(max(0, node - reach), node, (1,), generator=generator)))
    return DraftTree(tuple(parents), f"random-n{nodes}")


@st.composite
def trees(draw: st.DrawFn, largest: int = 24) -> DraftTree:
    """Random trees, from bushes to chains."""
    nodes = draw(st.integers(1, largest))
    reach = draw(st.integers(1, largest))
    parents = [-1] + [draw(st.integers(max(0, node - reach), node - 1)) for node in range(1, nodes)]
    return DraftTree(tuple(parents), "random")


def paths(trees: Sequence[DraftTree], ends: Sequence[int], padding: int = 0) -> tuple[Tensor, Tensor]:
    """(path [B, L], length [B]) to node ends[b] of trees[b]; an end of -1 accepts nothing."""
    places = max(tree.depth for tree in trees) + 1
    path = torch.full((len(ends), places), padding, dtype=torch.int64)
    length = torch.zeros(len(ends), dtype=torch.int64)
    for row, (tree, end) in enumerate(zip(trees, ends, strict=True)):
        if end >= 0:
            nodes = tree.path(end)
            path[row, : len(nodes)] = torch.tensor(nodes)
            length[row] = len(nodes)
    return path, length


def known_factors(
    valid: Tensor, shape: HeadShape, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Known:
    """Committed factors in the valid places, oldest first, and NaN in the others."""
    batch, places = valid.shape
    k = torch.nn.functional.normalize(
        torch.randn(batch, places, shape.heads, shape.key_size, generator=generator), dim=-1
    )
    u = torch.randn(batch, places, shape.value_heads, shape.value_size, generator=generator)
    g = -torch.randn(batch, places, shape.value_heads, generator=generator).abs().double()
    decay = (g * valid[..., None]).cumsum(1)
    padding = ~valid
    k[padding], u[padding], decay[padding] = torch.nan, torch.nan, torch.nan
    return Known(Factors(k.to(dtype), u, decay), valid)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two float32 tensors agree to the last bit, signed zeros and NaN included."""
    return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))


def shared(tree: DraftTree) -> TreeTensors:
    """The tree on the CPU."""
    return TreeTensors.from_tree(tree)
