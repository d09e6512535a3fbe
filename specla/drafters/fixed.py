"""Drafting a tree whose shape is known beforehand: which nodes run in which level, as tensors."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from specla.drafters.network import AlignedNetwork, DrafterState
from specla.ops.level import Level
from specla.ops.sampling import Sampling
from specla.topology import DraftTree


@dataclass(frozen=True)
class PlannedLevel:
    """From the nodes that ran at one depth to their children, and which of those run in turn.

    Attributes:
        width: the most children that one of them has.
        children: [n] int64, for every child its place in the level's best tokens, [M, width] flat.
        parents: [m] int64, for every child that runs, where its parent stands in this level's predictions.
        running: [m] int64, for every child that runs, where it stands among the n.
        level: of the m nodes; None where none runs.
    """

    width: int
    children: Tensor
    parents: Tensor
    running: Tensor
    level: Level | None


@dataclass(frozen=True)
class TreePlan:
    """A tree's levels, and `order` [T - 1] int64: where each node stands among the children of all levels."""

    levels: tuple[PlannedLevel, ...]
    order: Tensor


@lru_cache(maxsize=256)
def tree_plan(tree: DraftTree, device: torch.device, width: int) -> TreePlan:
    """The plan of a tree; `width` is that of the short convolution."""
    slots: dict[int, int] = {}
    levels, order, expanding = [], list[int](), [0]
    for children in generations(tree):
        widest = max(len(tree.children[node]) for node in expanding)
        place = {node: i for i, node in enumerate(expanding)}
        flat = [place[tree.parents[child]] * widest + int(tree.ranks[child]) for child in children]
        running = [child for child in children if tree.children[child]]
        levels.append(
            PlannedLevel(
                widest,
                torch.tensor(flat, device=device),
                torch.tensor([place[tree.parents[child]] for child in running], dtype=torch.int64, device=device),
                torch.tensor([children.index(child) for child in running], dtype=torch.int64, device=device),
                level_of(
                    [[slots[node] for node in tree.path(child)[1:-1]] for child in running], len(slots), width, device
                )
                if running
                else None,
            )
        )
        slots |= {child: len(slots) + i for i, child in enumerate(running)}
        order += children
        expanding = running
    back = sorted(range(len(order)), key=order.__getitem__)
    return TreePlan(tuple(levels), torch.tensor(back, dtype=torch.int64, device=device))


def generations(tree: DraftTree) -> list[list[int]]:
    """The nodes of every depth from 1 on, siblings beside each other, in the order of their parents."""
    found = []
    for depth in range(tree.depth):
        parents = [node for node in range(tree.nodes) if tree.depths[node] == depth]
        found.append([child for node in parents for child in tree.children[node]])
    return found


def level_of(paths: list[list[int]], above: int, width: int, device: torch.device) -> Level:
    """The level of nodes whose ancestors, root and committed tokens aside, are these of the `above` that have run."""
    unrelated = torch.ones(1, 1, len(paths), above, dtype=torch.bool)
    places = torch.empty(1, len(paths), width, dtype=torch.int64)
    for i, path in enumerate(paths):
        unrelated[0, 0, i, path] = False
        # The window's W - 1 places come first, then those that have run, then this level.
        seen = [*range(width - 1), *(width - 1 + slot for slot in path), width - 1 + above + i]
        places[0, i] = torch.tensor(seen[-width:])
    parents = torch.tensor([[path[-1] + 1 if path else 0 for path in paths]])
    return Level(unrelated.to(device), parents.to(device), places.to(device))


def draft_tree(
    network: AlignedNetwork, state: DrafterState, plan: TreePlan, sampling: Sampling, rows: Tensor, lengths: Tensor
) -> Tensor:
    """Fill a tree; a chain is one. Tensors alone decide, so it can be captured.

    Args:
        network: of the drafter.
        state: caught up to the root; it is left alone.
        plan: of the tree.
        sampling: how the target will choose.
        rows: [B] int64, identities of the rows in the noise.
        lengths: [B] int64, committed tokens, which is the position of the root.

    Returns:
        [B, T - 1] int64: the tokens of nodes 1, 2, ...; siblings are in the order of their scores.
    """
    predicted, above, drafted = state.predicted[:, None], None, []
    for depth, planned in enumerate(plan.levels):
        places = (rows.shape[0], predicted.shape[1])
        positions = (lengths + depth + 1)[:, None].expand(places)
        scores = network.scores(predicted, sampling, rows[:, None].expand(places), positions)
        best = scores.max(-1, keepdim=True).indices if planned.width == 1 else best_of(scores, planned.width)
        tokens = network.tokens(best.flatten(1)[:, planned.children])
        drafted.append(tokens)
        if planned.level is not None:
            hidden, running = predicted[:, planned.parents], tokens[:, planned.running]
            predicted, above = network.descend(state, above, hidden, running, planned.level)
    return torch.cat(drafted, dim=1)[:, plan.order]


def best_of(scores: Tensor, count: int) -> Tensor:
    """Places of the best scores, [..., count]; a vocabulary of fewer tokens gives its last one again."""
    best = scores.topk(min(count, scores.shape[-1]), dim=-1).indices
    missing = count - best.shape[-1]
    return best if not missing else torch.cat((best, best[..., -1:].expand(*best.shape[:-1], missing)), dim=-1)
