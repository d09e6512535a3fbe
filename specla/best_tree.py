"""The fixed tree that emits the most tokens per second, for known acceptance and a known cost of a step.

With alpha[d, r] the chance that the draft of rank r at depth d is right once its parent was accepted, a tree emits

    tau(T) = 1 + sum over its drafts of the product of alpha along the path to each

tokens a step. A draft of rank r stands beside those of all lower ranks, so the best trees are found by dynamic
programming over (depth, rank, nodes), whatever the order of alpha: `under[d][n]`, the most that n nodes below an
accepted node of depth d can add, is the best split of n between the subtree of the first child and its later siblings.
Where alpha never rises with rank that is what expanding the likeliest path first finds. The cost of a step may depend
on nodes and depth in any way: the best tree of exactly that many nodes and levels is found for each pair.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from specla.errors import SpeclaError
from specla.topology import MAX_NODES, DraftTree

FloatArray = NDArray[np.float64]
NEVER = -np.inf
"""The worth of what no tree can be."""
_ROUNDING = 1e-9
_BETTER = 1 + 1e-12
"""A larger tree must be worth more than rounding makes it."""


@dataclass(frozen=True)
class Pick:
    """The best tree of some number of nodes."""

    parents: tuple[int, ...]
    depth: int
    tau: float
    """Expected tokens a step, bonus included."""
    seconds: float
    """Of a step."""

    @property
    def nodes(self) -> int:
        """T, root included."""
        return len(self.parents)

    @property
    def tok_s(self) -> float:
        """Expected tokens per second."""
        return self.tau / self.seconds


def alpha_levels(table: Sequence[Sequence[float]], levels: int, repeat_last: bool = True) -> FloatArray:
    """alpha [levels, ranks] of a table by depth and rank, its lines padded with 0.

    Args:
        table: a line a depth, from depth 1.
        levels: lines wanted.
        repeat_last: whether deeper levels are as the last line; otherwise there are no more levels than lines.

    Raises:
        ValueError: a share is not from 0 to 1, or the shares of a depth sum to more than 1.
    """
    ranks = max(len(line) for line in table)
    lines = [[*line, *[0.0] * (ranks - len(line))] for line in table[:levels]]
    if repeat_last:
        lines += [lines[-1]] * (levels - len(lines))
    alpha = np.array(lines, dtype=np.float64)
    if not ((alpha >= 0) & (alpha <= 1)).all() or (alpha.sum(axis=1) > 1 + _ROUNDING).any():
        raise ValueError(f"alpha {table}: shares are from 0 to 1, and those of one depth sum to at most 1")
    return alpha


def expected_tokens(tree: DraftTree, alpha: FloatArray) -> float:
    """tau(T): what a step of this tree emits; drafts deeper or of a higher rank than alpha are never right."""
    worth = np.ones(tree.nodes)
    for node in range(1, tree.nodes):
        level, rank = tree.depths[node] - 1, tree.ranks[node]
        known = level < alpha.shape[0] and rank < alpha.shape[1]
        worth[node] = worth[tree.parents[node]] * (alpha[level, rank] if known else 0.0)
    return float(worth.sum())


def best_picks(alpha: FloatArray, seconds: FloatArray) -> list[Pick]:
    """For every number of nodes the tree of the most tokens per second, in order of nodes.

    Args:
        alpha: [D, R], see the top of this file.
        seconds: [N + 1, D + 1], of a step by nodes (root included) and by levels of drafts; infinite where a tree may
            not be.

    Returns:
        The picks; a number of nodes that no tree may have is left out.

    Raises:
        SpeclaError: N is not from 1 to MAX_NODES.
    """
    most, deepest = seconds.shape[0] - 1, min(alpha.shape[0], seconds.shape[1] - 1)
    if not 1 <= most <= MAX_NODES:
        raise SpeclaError(f"topology.nodes={most}: give a whole number from 1 to {MAX_NODES}")
    best: dict[int, tuple[float, int]] = {}
    for depth in range(min(deepest, most - 1) + 1):
        tokens = _Depth(alpha[:depth], most).tokens
        for nodes in range(depth + 1, most + 1):
            possible = tokens[nodes] > NEVER and seconds[nodes, depth] < np.inf
            rate = tokens[nodes] / seconds[nodes, depth] if possible else 0.0
            if rate > best.get(nodes, (0.0, 0))[0] * _BETTER:
                best[nodes] = (rate, depth)
    searches = {depth: _Depth(alpha[:depth], most) for depth in {depth for _, depth in best.values()}}
    return [
        Pick(searches[depth].parents(nodes), depth, float(searches[depth].tokens[nodes]), float(seconds[nodes, depth]))
        for nodes, (_, depth) in sorted(best.items())
    ]


def most_tokens(alpha: FloatArray, most: int) -> list[tuple[int, ...]]:
    """The parents of the tree that emits the most, whatever it costs, of 1, 2, ... nodes: up to `most`, or to as many
    as trees within the levels and ranks of alpha [D, R] have."""
    search = _Depth(alpha, most)
    sizes = np.flatnonzero(search.tokens_within > NEVER).tolist()
    return [search.parents(nodes, reach=False) for nodes in sizes]


def fastest(picks: Sequence[Pick]) -> Pick:
    """The pick of the most tokens per second; of equals the smallest."""
    best = picks[0]
    for pick in picks[1:]:
        if pick.tok_s > best.tok_s * _BETTER:
            best = pick
    return best


class _Depth:
    """The best trees of exactly as many levels as alpha has lines, of every number of nodes up to `most`.

    Attributes:
        tokens: [most + 1], tau of the best tree by nodes, -inf where there is none.
        tokens_within: the same of trees of fewer levels too.
    """

    def __init__(self, alpha: FloatArray, most: int) -> None:
        self._alpha, self._most = alpha, most
        depth, ranks = alpha.shape if alpha.size else (0, 0)
        nothing = np.full(most, NEVER)
        nothing[0] = 0.0
        # By level: the most that n nodes below an accepted node add, and the most of those that reach the last level.
        self._under, self._reaching = [nothing] * (depth + 1), [nothing] * (depth + 1)
        # By level and first rank: the same of the siblings from that rank on.
        self._rest: list[list[FloatArray]] = [[] for _ in range(depth)]
        self._rest_reaching: list[list[FloatArray]] = [[] for _ in range(depth)]
        for level in reversed(range(depth)):
            rest, reaching = [nothing], [np.full(most, NEVER)]
            for rank in reversed(range(ranks)):
                child, deep = self._child(level, rank, False), self._child(level, rank, True)
                reaching.append(np.maximum(_join(deep, rest[-1]), _join(child, reaching[-1])))
                rest.append(np.maximum(nothing, _join(child, rest[-1])))
            self._rest[level], self._rest_reaching[level] = rest[::-1], reaching[::-1]
            self._under[level], self._reaching[level] = rest[-1], reaching[-1]
        self.tokens = np.concatenate(([NEVER], 1.0 + self._reaching[0]))
        self.tokens_within = np.concatenate(([NEVER], 1.0 + self._under[0]))

    def parents(self, nodes: int, reach: bool = True) -> tuple[int, ...]:
        """The parents of the best tree of that many nodes, levels in order, siblings by rank.

        Args:
            nodes: for which there is a tree.
            reach: whether it has to have as many levels as alpha has lines.
        """
        parents = [-1]
        # (node, its level, nodes below it, whether they must reach the last level)
        open_nodes = deque([(0, 0, nodes - 1, reach)])
        while open_nodes:
            node, level, below, must = open_nodes.popleft()
            for size, child_must in self._split(level, below, must):
                open_nodes.append((len(parents), level + 1, size - 1, child_must))
                parents.append(node)
        return tuple(parents)

    def _split(self, level: int, below: int, must: bool) -> list[tuple[int, bool]]:
        """By rank, the nodes of each child's subtree, and whether it must reach the last level."""
        split: list[tuple[int, bool]] = []
        # A node of the last level reaches it by itself.
        must = must and level < len(self._rest)
        while below:
            rank = len(split)
            rest, reaching = self._rest[level][rank + 1], self._rest_reaching[level][rank + 1]
            ways = [(self._child(level, rank, must), rest, must)]
            if must:
                ways.append((self._child(level, rank, False), reaching, False))
            sums = [first[: below + 1] + others[below::-1] for first, others, _ in ways]
            way = int(np.argmax([total.max() for total in sums]))
            size = int(np.argmax(sums[way]))
            split.append((size, ways[way][2]))
            must = must and not ways[way][2]
            below -= size
        return split

    def _child(self, level: int, rank: int, must: bool) -> FloatArray:
        """[most], what a child of this rank adds with all below it, by the nodes of its subtree, itself included."""
        below = (self._reaching if must else self._under)[level + 1]
        worth = np.full(self._most, NEVER)
        possible = np.flatnonzero(below[:-1] > NEVER)
        worth[possible + 1] = self._alpha[level, rank] * (1.0 + below[possible])
        return worth


def _join(first: FloatArray, second: FloatArray) -> FloatArray:
    """[n], the best sum of first[m] + second[n - m]."""
    size = len(first)
    padded = np.concatenate((second, np.full(size, NEVER)))
    best: FloatArray = (first[None, :] + padded[_differences(size)]).max(axis=1)
    return best


@lru_cache(maxsize=4)
def _differences(size: int) -> NDArray[np.intp]:
    """[size, size], n - m; a negative place counts from the end of what `_join` padded, where no tree can be."""
    return np.arange(size)[:, None] - np.arange(size)[None, :]
