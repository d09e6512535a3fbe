"""A fixed tree as the aligned drafter goes through it on a device: level by level, as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from specla.drafters.fixed import generations
from specla.ops.types import TreeTensors
from specla.topology import DraftTree, chain


@dataclass(frozen=True)
class DeviceLevel:
    """From the nodes that ran at one depth to their children, and those of them that run in turn.

    Attributes:
        width: the most children that one of the M nodes has.
        columns: [M x width] int64, the node that each best token is for, -1 for none.
        children: [n] int64, the nodes that there are among those.
        ranked: [n] int64, where they stand among the M x width.
        parents: [1, m] int64, for every child that runs, where its parent stands among the M.
        nodes: [1, m] int64, the children that run.
        ran: nodes that have run before them.
        forest: of these and those, the root left out; None where no child runs.
    """

    width: int
    columns: Tensor
    children: Tensor
    ranked: Tensor
    parents: Tensor
    nodes: Tensor
    ran: int
    forest: TreeTensors | None


@cache  # graphs keep the addresses
def levels_of(tree: DraftTree, device: torch.device, width: int) -> tuple[DeviceLevel, ...]:
    """A tree's levels; `width` is that of the short convolution."""
    numbers = partial(torch.tensor, dtype=torch.int64, device=device)
    levels, ran, expanding = [], list[int](), [0]
    for children in generations(tree):
        widest = max(len(tree.children[node]) for node in expanding)
        columns = [-1] * (len(expanding) * widest)
        for i, node in enumerate(expanding):
            for child in tree.children[node]:
                columns[i * widest + int(tree.ranks[child])] = child
        ranked = [place for place, child in enumerate(columns) if child >= 0]
        running = [child for child in children if tree.children[child]]
        parents = [expanding.index(tree.parents[child]) for child in running]
        levels.append(
            DeviceLevel(
                width=widest,
                columns=numbers(columns),
                children=numbers([columns[place] for place in ranked]),
                ranked=numbers(ranked),
                parents=numbers([parents]),
                nodes=numbers([running]),
                ran=len(ran),
                forest=_forest(tree, [*ran, *running], device, width) if running else None,
            )
        )
        ran += running
        expanding = running
    return tuple(levels)


def _forest(tree: DraftTree, nodes: Sequence[int], device: torch.device, width: int) -> TreeTensors:
    """Some nodes of a tree, parents first, whose root is committed."""
    if tree.is_chain:
        return TreeTensors.from_tree(chain(len(nodes) - 1), device, width)
    place = {node: i for i, node in enumerate(nodes)}
    paths = [[place[node] for node in tree.path(one)[1:]] for one in nodes]
    ancestors = torch.zeros(1, len(nodes), len(nodes), dtype=torch.bool)
    taps = torch.empty(1, len(nodes), width - 1, dtype=torch.int64)
    for i, path in enumerate(paths):
        ancestors[0, i, path[:-1]] = True
        # Places from the end of the window, where the path is shorter than the convolution.
        seen = [*range(1 - width, 0), *path[:-1]]
        taps[0, i] = torch.tensor(seen[len(seen) - (width - 1) :])
    parents = torch.tensor([[path[-2] if len(path) > 1 else -1 for path in paths]])
    depths = torch.tensor([[len(path) - 1 for path in paths]])
    return TreeTensors(
        (), parents.to(device), depths.to(device), ancestors.to(device), taps.to(device), levels=int(depths.max())
    )
