"""The tables of a draft tree against brute force over random trees, the builders, and the heavy-light plan."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specla.errors import SpeclaError
from specla.topology import MAX_NODES, DraftTree, chain, explicit, kary


@st.composite
def random_trees(draw: st.DrawFn) -> DraftTree:
    nodes = draw(st.integers(1, 40))
    reach = draw(st.integers(1, 40))
    parents = [-1] + [draw(st.integers(max(0, node - reach), node - 1)) for node in range(1, nodes)]
    return DraftTree(tuple(parents), "random")


def walk_up(tree: DraftTree, node: int) -> list[int]:
    """The strict ancestors of a node, nearest first."""
    found = []
    while tree.parents[node] != -1:
        node = tree.parents[node]
        found.append(node)
    return found


@settings(max_examples=60, deadline=None)
@given(random_trees())
def test_tables_agree_with_brute_force(tree: DraftTree) -> None:
    for node in range(tree.nodes):
        above = walk_up(tree, node)
        assert tree.depths[node] == len(above)
        assert set(np.flatnonzero(tree.ancestors[node])) == set(above)
        assert tree.path(node) == (*reversed(above), node)
        assert tree.children[node] == tuple(i for i in range(tree.nodes) if tree.parents[i] == node)
        siblings = [i for i in range(1, tree.nodes) if node and tree.parents[i] == tree.parents[node]]
        assert tree.ranks[node] == (siblings.index(node) if node else 0)
    assert tree.depth == max(len(walk_up(tree, node)) for node in range(tree.nodes))
    assert tree.leaves == tuple(i for i in range(tree.nodes) if i not in tree.parents)
    assert tree.is_chain == (tree.depth == tree.nodes - 1)
    assert tree.leaf_paths.shape == (len(tree.leaves), tree.depth + 1)
    for leaf, row in zip(tree.leaves, tree.leaf_paths, strict=True):
        path = tree.path(leaf)
        assert tuple(row[: len(path)]) == path
        assert (row[len(path) :] == -1).all()


@settings(max_examples=40, deadline=None)
@given(random_trees(), st.integers(1, 6))
def test_taps_read_the_sequence_before_each_node(tree: DraftTree, width: int) -> None:
    taps = tree.taps(width)
    assert taps.shape == (tree.nodes, width - 1)
    for node in range(tree.nodes):
        # The committed window lies before the root: its newest input is -1, the one before it -2.
        sequence = [*range(-width, 0), *tree.path(node)]
        assert taps[node].tolist() == sequence[len(sequence) - width : -1]


@settings(max_examples=80, deadline=None)
@given(random_trees())
def test_plan_is_heavy_light(tree: DraftTree) -> None:
    plan = tree.plan
    sizes = [sum(node == i or bool(tree.ancestors[i, node]) for i in range(tree.nodes)) for node in range(tree.nodes)]

    assert sorted(node for nodes in plan.chains for node in nodes) == list(range(tree.nodes))
    for node, children in enumerate(tree.children):
        if children:
            heavy = min(children, key=lambda child: (-sizes[child], child))
            assert plan.chain_of[heavy] == plan.chain_of[node]
            assert all(plan.chain_of[child] != plan.chain_of[node] for child in children if child != heavy)

    for index, nodes in enumerate(plan.chains):
        assert plan.chain_parent[index] == tree.parents[nodes[0]]
        assert all(tree.parents[below] == above for above, below in pairwise(nodes))
        assert all(plan.chain_of[node] == index for node in nodes)
        parent = plan.chain_parent[index]
        # As early as can be: the wave after the one that stores the starting state.
        assert plan.wave_of[index] == (0 if parent == -1 else plan.wave_of[plan.chain_of[parent]] + 1)
        assert index in plan.waves[plan.wave_of[index]]
    assert [index for wave in plan.waves for index in wave] == list(range(len(plan.chains)))
    assert plan.boundaries == tuple(sorted(set(plan.chain_parent) - {-1}))


@pytest.mark.parametrize("length", [0, 1, 2, 15, 16, 63, 127])
def test_a_chain_is_one_chain_and_one_wave(length: int) -> None:
    tree = chain(length)
    assert (tree.nodes, tree.depth, tree.is_chain) == (length + 1, length, True)
    assert tree.plan.chains == (tuple(range(length + 1)),)
    assert tree.plan.waves == ((0,),)
    assert tree.plan.boundaries == ()


def test_plan_of_a_small_tree() -> None:
    #       0
    #     1   2
    #    3 4   5        1 and 2: 1 has the larger subtree; 3 and 4 tie, so 3 continues
    plan = explicit([-1, 0, 0, 1, 1, 2]).plan
    assert plan.chains == ((0, 1, 3), (2, 5), (4,))
    assert plan.chain_parent == (-1, 0, 1)
    assert plan.waves == ((0,), (1, 2))
    assert plan.boundaries == (0, 1)
    assert plan.wave_of == (0, 1, 1)


@pytest.mark.parametrize(
    ("branching", "nodes", "length", "real_nodes", "real_depth"),
    [
        (2, 15, None, 15, 3),
        (2, 16, None, 16, 4),
        (2, 16, 2, 7, 2),
        (2, 16, 9, 16, 4),
        (4, 8, None, 8, 2),
        (1, 5, None, 5, 4),
        (3, 2, None, 2, 1),
        (2, 128, None, 128, 7),
    ],
)
def test_kary(branching: int, nodes: int, length: int | None, real_nodes: int, real_depth: int) -> None:
    tree = kary(branching, nodes, length)
    assert (tree.nodes, tree.depth) == (real_nodes, real_depth)
    assert list(tree.depths) == sorted(tree.depths)
    assert max(len(children) for children in tree.children) <= branching
    assert tree.name == f"kary-b{branching}-n{real_nodes}"


def test_names_and_fingerprints() -> None:
    assert chain(0).name == "root"
    assert chain(4).name == "chain-l4"
    assert chain(4).fingerprint == kary(1, 5).fingerprint == explicit([-1, 0, 1, 2, 3]).fingerprint
    assert explicit([-1, 0, 0]).fingerprint != explicit([-1, 0, 1]).fingerprint
    assert explicit(np.array([-1, 0, 0]).tolist()).name.startswith("explicit-n3-")


def test_arrays_are_read_only() -> None:
    tree = kary(2, 7)
    for array in (tree.depths, tree.ranks, tree.ancestors, tree.leaf_paths, tree.taps(4)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("parents", "words"),
    [
        ([], "at least its root"),
        ([0], "node 0 is the root"),
        ([-1, -1], "node 1 has parent -1"),
        ([-1, 0, 2], "node 2 has parent 2"),
        ([-1, 0.5], "a whole number"),
        ([-1] + [0] * MAX_NODES, "at most 128"),
    ],
)
def test_what_is_no_tree_is_refused(parents: list[int], words: str) -> None:
    with pytest.raises(SpeclaError, match=words):
        explicit(parents)


def test_limits_of_the_builders() -> None:
    assert chain(MAX_NODES - 1).nodes == MAX_NODES
    builds: list[Callable[[], DraftTree]] = [
        lambda: chain(MAX_NODES),
        lambda: chain(-1),
        lambda: kary(2, MAX_NODES + 1),
        lambda: kary(0, 4),
        lambda: kary(2, 1),
        lambda: kary(2, 8, 0),
    ]
    for build in builds:
        with pytest.raises(SpeclaError, match="topology"):
            build()
    with pytest.raises(IndexError):
        chain(3).path(4)
