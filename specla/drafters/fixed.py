"""Drafting a tree whose shape is known beforehand: which nodes run in which level, as tensors."""

from collections.abc import Sequence
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
        running: [m] int64, for every child that runs, where it stands among the n. Each of the three is None where it
            says 0, 1, 2, ... to the last, as on a chain.
        level: of the m nodes; None where none runs.
    """

    width: int
    children: Tensor | None
    parents: Tensor | None
    running: Tensor | None
    level: Level | None


@dataclass(frozen=True)
class TreePlan:
    """A tree's levels, and `order` [T - 1] int64: where each node stands among the children of all levels, or None."""

    levels: tuple[PlannedLevel, ...]
    order: Tensor | None


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
                _places(flat, len(expanding) * widest, device),
                _places([place[tree.parents[child]] for child in running], len(expanding), device),
                _places([children.index(child) for child in running], len(children), device),
                level_of(
                    [[[slots[node] for node in tree.path(child)[1:-1]] for child in running]], len(slots), width, device
                )
                if running
                else None,
            )
        )
        slots |= {child: len(slots) + i for i, child in enumerate(running)}
        order += children
        expanding = running
    back = sorted(range(len(order)), key=order.__getitem__)
    return TreePlan(tuple(levels), _places(back, len(back), device))


def _places(places: list[int], count: int, device: torch.device) -> Tensor | None:
    """Places among `count` as a tensor; None where they are all of them in order."""
    return None if places == list(range(count)) else torch.tensor(places, dtype=torch.int64, device=device)


def picked(x: Tensor, places: Tensor | None) -> Tensor:
    """x [B, N, ...] at places [n] -> [B, n, ...]; None takes all of it."""
    return x if places is None else x.index_select(1, places)


def generations(tree: DraftTree) -> list[list[int]]:
    """The nodes of every depth from 1 on, siblings beside each other, in the order of their parents."""
    found = []
    for depth in range(tree.depth):
        parents = [node for node in range(tree.nodes) if tree.depths[node] == depth]
        found.append([child for node in parents for child in tree.children[node]])
    return found


def level_of(rows: Sequence[Sequence[Sequence[int]]], above: int, width: int, device: torch.device) -> Level:
    """The level of nodes whose ancestors, root and committed tokens aside, are these of the `above` that have run.

    Args:
        rows: of every row, or of one for all, the ancestors of each node from the root down; as many nodes in each.
        above: nodes that have run.
        width: of the short convolution.
        device: of the tensors.
    """
    window, unrelated, parents, places = list(range(width - 1)), [], [], []
    for paths in rows:
        related = [frozenset(path) for path in paths]
        unrelated.append([[[slot not in path for slot in range(above)] for path in related]])
        parents.append([path[-1] + 1 if path else 0 for path in paths])
        # The window's W - 1 places come first, then those that have run, then this level.
        seen = ([*window, *(width - 1 + slot for slot in path), width - 1 + above + i] for i, path in enumerate(paths))
        places.append([one[-width:] for one in seen])
    mask = torch.tensor(unrelated, dtype=torch.bool).view(len(rows), 1, len(rows[0]), above)
    return Level(mask.to(device), torch.tensor(parents, device=device), torch.tensor(places, device=device))


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
    predicted, above, drafted = state.predicted[:, None], None, list[Tensor]()
    # All nodes of a depth share a row's noise.
    row, root = rows[:, None], lengths[:, None]
    for depth, planned in enumerate(plan.levels):
        scores = network.scores(predicted, sampling, row, root + (depth + 1))
        best = scores.max(-1, keepdim=True).indices if planned.width == 1 else best_of(scores, planned.width)
        tokens = network.tokens(picked(best.flatten(1), planned.children))
        drafted.append(tokens)
        if planned.level is not None:
            hidden, running = picked(predicted, planned.parents), picked(tokens, planned.running)
            predicted, above = network.descend(state, above, hidden, running, planned.level)
    return picked(torch.cat(drafted, dim=1), plan.order)


def best_of(scores: Tensor, count: int) -> Tensor:
    """Places of the best scores, [..., count]; a vocabulary of fewer tokens gives its last one again."""
    best = scores.topk(min(count, scores.shape[-1]), dim=-1).indices
    missing = count - best.shape[-1]
    return best if not missing else torch.cat((best, best[..., -1:].expand(*best.shape[:-1], missing)), dim=-1)
