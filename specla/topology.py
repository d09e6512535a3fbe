"""Draft trees: their shape, the tables every strategy reads, and the heavy-light plan of the hybrid strategy.

Node 0 is the root: the last emitted token, at depth 0. Drafts have depth 1 to D. Parents stand before their children,
so a walk in node order is a walk in topological order. Everything here is numpy, and every array is read-only, since it
is shared by all who hold the tree.
"""

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specla.errors import SpeclaError

MAX_NODES = 128
"""The largest tree, root included: what the tree kernel holds on chip."""

IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class HeavyLightPlan:
    """A tree cut into chains, which run in waves (paper, section 4.3).

    The child with the largest subtree continues its parent's chain (ties go to the lower index); every other child
    starts a chain of its own. Chains are numbered by wave, then by their first node.
    """

    chains: tuple[tuple[int, ...], ...]
    """The nodes of every chain, from its head downwards."""
    chain_parent: tuple[int, ...]
    """For every chain, the node whose state it starts from; -1 is the committed state."""
    waves: tuple[tuple[int, ...], ...]
    """For every wave, the chains that run in it: those whose starting state the waves before have stored."""
    boundaries: tuple[int, ...]
    """The nodes whose state must be stored, in node order: those from which a chain starts."""
    chain_of: tuple[int, ...]
    """For every node, its chain."""
    wave_of: tuple[int, ...]
    """For every chain, its wave."""


@dataclass(frozen=True)
class DraftTree:
    """The shape of one draft: `parents[0]` is -1 and `parents[i] < i` after it.

    Raises SpeclaError where the parents are not a tree of 1 to MAX_NODES nodes in topological order.
    """

    parents: tuple[int, ...]
    name: str = ""

    def __post_init__(self) -> None:
        parents = _checked_parents(self.parents)
        object.__setattr__(self, "parents", parents)
        if not self.name:
            object.__setattr__(self, "name", f"explicit-n{len(parents)}-{_digest(parents)[:6]}")

    @property
    def nodes(self) -> int:
        """T: the number of nodes, root included."""
        return len(self.parents)

    @cached_property
    def depths(self) -> IntArray:
        """int32 [T]: the distance of every node from the root."""
        depths = np.zeros(self.nodes, dtype=np.int32)
        for node in range(1, self.nodes):
            depths[node] = depths[self.parents[node]] + 1
        return _frozen(depths)

    @cached_property
    def depth(self) -> int:
        """D: the number of draft levels."""
        return int(self.depths.max())

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For every node its children, in node order."""
        children: list[list[int]] = [[] for _ in self.parents]
        for node in range(1, self.nodes):
            children[self.parents[node]].append(node)
        return tuple(tuple(nodes) for nodes in children)

    @cached_property
    def ranks(self) -> IntArray:
        """int32 [T]: the place of every node among its siblings, from 0, in node order."""
        ranks = np.zeros(self.nodes, dtype=np.int32)
        for siblings in self.children:
            ranks[list(siblings)] = np.arange(len(siblings), dtype=np.int32)
        return _frozen(ranks)

    @cached_property
    def ancestors(self) -> BoolArray:
        """bool [T, T]: entry [i, j] says that j is a strict ancestor of i."""
        ancestors = np.zeros((self.nodes, self.nodes), dtype=np.bool_)
        for node in range(1, self.nodes):
            parent = self.parents[node]
            ancestors[node] = ancestors[parent]
            ancestors[node, parent] = True
        ancestors.setflags(write=False)
        return ancestors

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """The nodes without children, in node order."""
        return tuple(node for node, children in enumerate(self.children) if not children)

    @property
    def is_chain(self) -> bool:
        """Whether no node has two children; a lone root is a chain."""
        return len(self.leaves) == 1

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from the root to `node`, both included."""
        if not 0 <= node < self.nodes:
            raise IndexError(f"node {node} of a tree of {self.nodes} nodes")
        path = [node]
        while path[-1] != 0:
            path.append(self.parents[path[-1]])
        return tuple(reversed(path))

    @cached_property
    def leaf_paths(self) -> IntArray:
        """int32 [leaves, D + 1]: the path from the root to every leaf, padded at its end with -1."""
        paths = np.full((len(self.leaves), self.depth + 1), -1, dtype=np.int32)
        for row, leaf in enumerate(self.leaves):
            path = self.path(leaf)
            paths[row, : len(path)] = path
        return _frozen(paths)

    def taps(self, width: int) -> IntArray:
        """int32 [T, width - 1]: what a causal convolution of `width` reads before each node, oldest first.

        Column j is the ancestor at distance width - 1 - j. An entry >= 0 is a node; a negative one counts from the end
        of the committed window, -1 being its newest input.
        """
        if width < 1:
            raise ValueError(f"a convolution of width {width}")
        taps = np.empty((self.nodes, width - 1), dtype=np.int32)
        for node in range(self.nodes):
            path = self.path(node)
            for column in range(width - 1):
                place = len(path) - 1 - (width - 1 - column)
                taps[node, column] = path[place] if place >= 0 else place
        return _frozen(taps)

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits of the shape alone: two names of one shape agree."""
        return _digest(self.parents)

    @cached_property
    def plan(self) -> HeavyLightPlan:
        """The tree as chains in waves."""
        return _heavy_light(self)


def chain(length: int) -> DraftTree:
    """A chain of `length` drafts below the root (T = length + 1). Zero drafts is the root alone, the tree of AR."""
    _check_count("length", length, 0, MAX_NODES - 1)
    return DraftTree(tuple(range(-1, length)), f"chain-l{length}" if length else "root")


def kary(branching: int, nodes: int, length: int | None = None) -> DraftTree:
    """Levels filled breadth first up to `nodes`, root included, and to at most `length` levels of drafts."""
    _check_count("branching", branching, 1, MAX_NODES - 1)
    _check_count("nodes", nodes, 2, MAX_NODES)
    if length is not None:
        _check_count("length", length, 1, MAX_NODES - 1)
    parents = [-1]
    depths = [0]
    for node in range(1, nodes):
        parent = (node - 1) // branching
        if length is not None and depths[parent] == length:
            break
        parents.append(parent)
        depths.append(depths[parent] + 1)
    return DraftTree(tuple(parents), f"kary-b{branching}-n{len(parents)}")


def explicit(parents: Sequence[int]) -> DraftTree:
    """The tree with these parents; its name holds a part of its fingerprint."""
    return DraftTree(tuple(parents))


def _checked_parents(parents: Sequence[int]) -> tuple[int, ...]:
    try:
        checked = tuple(operator.index(parent) for parent in parents)
    except TypeError as error:
        raise SpeclaError(f"topology.parents={list(parents)}: a parent is a whole number") from error
    if not checked:
        raise SpeclaError("topology.parents=[]: a tree has at least its root, [-1]")
    if len(checked) > MAX_NODES:
        raise SpeclaError(f"topology.parents: {len(checked)} nodes; a tree holds at most {MAX_NODES}, root included")
    if checked[0] != -1:
        raise SpeclaError(f"topology.parents: node 0 is the root and its parent is -1, not {checked[0]}")
    for node, parent in enumerate(checked[1:], start=1):
        if not 0 <= parent < node:
            raise SpeclaError(
                f"topology.parents: node {node} has parent {parent}; give a node before it, from 0 to {node - 1}"
            )
    return checked


def _check_count(dial: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise SpeclaError(f"topology.{dial}={value}: give a whole number from {low} to {high}")


def _digest(parents: tuple[int, ...]) -> str:
    return hashlib.sha256(",".join(map(str, parents)).encode()).hexdigest()[:12]


def _frozen(array: IntArray) -> IntArray:
    array.setflags(write=False)
    return array


def _heavy_light(tree: DraftTree) -> HeavyLightPlan:
    sizes = [1] * tree.nodes
    for node in range(tree.nodes - 1, 0, -1):
        sizes[tree.parents[node]] += sizes[node]

    heavy = [max(children, key=lambda child: (sizes[child], -child), default=-1) for children in tree.children]
    heads = [0]
    for node, children in enumerate(tree.children):
        heads.extend(child for child in children if child != heavy[node])

    unordered: list[tuple[int, ...]] = []
    head_of = [0] * tree.nodes
    for head in heads:
        nodes = [head]
        while heavy[nodes[-1]] != -1:
            nodes.append(heavy[nodes[-1]])
        unordered.append(tuple(nodes))
        for node in nodes:
            head_of[node] = head

    # A chain's head stands after its parent's chain head, so one pass in head order settles every wave.
    wave_of_head = {0: 0}
    for nodes_of_chain in sorted(unordered)[1:]:
        head = nodes_of_chain[0]
        wave_of_head[head] = wave_of_head[head_of[tree.parents[head]]] + 1

    chains = tuple(sorted(unordered, key=lambda nodes: (wave_of_head[nodes[0]], nodes[0])))
    number = {nodes[0]: index for index, nodes in enumerate(chains)}
    wave_of = tuple(wave_of_head[nodes[0]] for nodes in chains)
    chain_parent = tuple(tree.parents[nodes[0]] for nodes in chains)
    return HeavyLightPlan(
        chains=chains,
        chain_parent=chain_parent,
        waves=tuple(
            tuple(index for index, wave_of_chain in enumerate(wave_of) if wave_of_chain == wave)
            for wave in range(max(wave_of) + 1)
        ),
        boundaries=tuple(sorted({parent for parent in chain_parent if parent >= 0})),
        chain_of=tuple(number[head] for head in head_of),
        wave_of=wave_of,
    )
