"""The best tree against all trees there are, for any acceptance and any cost by nodes and depth."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specla.best_tree import FloatArray, Pick, alpha_levels, best_picks, expected_tokens, fastest, most_tokens
from specla.errors import SpeclaError
from specla.topology import DraftTree, chain, kary

MOST = 7
Shape = tuple["Shape", ...]


@cache
def forests(nodes: int) -> tuple[Shape, ...]:
    """Every ordered forest of so many nodes."""
    if not nodes:
        return ((),)
    found = []
    for first in range(1, nodes + 1):
        for below in forests(first - 1):
            found += [(below, *rest) for rest in forests(nodes - first)]
    return tuple(found)


def all_trees(nodes: int) -> Iterator[DraftTree]:
    """Every ordered tree of so many nodes."""
    for forest in forests(nodes - 1):
        parents, level = [-1], [(0, forest)]
        while level:
            below = []
            for node, children in level:
                for child in children:
                    below.append((len(parents), child))
                    parents.append(node)
            level = below
        yield DraftTree(tuple(parents))


TREES = [tree for nodes in range(1, MOST + 1) for tree in all_trees(nodes)]


@st.composite
def alphas(draw: st.DrawFn) -> FloatArray:
    """Shares by depth and rank in any order, many of them 0 or equal."""
    depth, ranks = draw(st.integers(1, MOST - 1)), draw(st.integers(1, 4))
    share = st.sampled_from([0.0, 0.1, 0.25, 0.5]) | st.floats(0, 1)
    lines = [draw(st.lists(share, min_size=ranks, max_size=ranks)) for _ in range(depth)]
    return alpha_levels([[x / max(1.0, sum(line)) for x in line] for line in lines], depth)


def fits(tree: DraftTree, alpha: FloatArray, nodes: int) -> bool:
    return tree.nodes <= nodes and tree.depth <= alpha.shape[0] and tree.ranks.max() < alpha.shape[1]


@settings(deadline=None, max_examples=60)
@given(alphas(), st.integers(1, MOST), st.randoms(use_true_random=False), st.booleans())
def test_no_tree_is_faster(alpha: FloatArray, nodes: int, random, rising: bool) -> None:  # type: ignore[no-untyped-def]
    """Costs at random, or rising with nodes and depth; the best of each number of nodes, and of all."""
    seconds = np.array([[random.uniform(0.5, 4) for _ in range(MOST)] for _ in range(nodes + 1)])
    if rising:
        seconds = np.cumsum(np.cumsum(seconds, axis=0), axis=1)
    picks = best_picks(alpha, seconds)
    rates: dict[int, float] = {}
    for tree in TREES:
        if fits(tree, alpha, nodes):
            rate = expected_tokens(tree, alpha) / seconds[tree.nodes, tree.depth]
            rates[tree.nodes] = max(rates.get(tree.nodes, 0.0), rate)
    assert {pick.nodes: pick.tok_s for pick in picks} == pytest.approx(rates)
    assert fastest(picks).tok_s == pytest.approx(max(rates.values()))
    for pick in picks:
        tree = DraftTree(pick.parents)
        assert tree.depth == pick.depth and expected_tokens(tree, alpha) == pytest.approx(pick.tau)
        assert fits(tree, alpha, nodes)


def by_nodes(alpha: FloatArray, nodes: int) -> list[Pick]:
    """The best trees where a step costs the same whatever is drafted."""
    return best_picks(alpha, np.ones((nodes + 1, alpha.shape[0] + 1)))


@settings(deadline=None, max_examples=30)
@given(alphas(), st.integers(2, 12))
def test_likeliest_path_first_where_alpha_falls_with_rank(alpha: FloatArray, nodes: int) -> None:
    falling = -np.sort(-alpha, axis=1)
    paths = [(1.0, ())]
    taken = []
    # A tree may be smaller than asked where there are no more paths.
    while paths and len(taken) < nodes:
        worth, path = max(paths, key=lambda pair: pair[0])
        paths.remove((worth, path))
        taken.append(worth)
        if len(path) < len(falling):
            paths += [(worth * share, (*path, rank)) for rank, share in enumerate(falling[len(path)])]
        assert expected_tokens(DraftTree(most_tokens(falling, nodes)[len(taken) - 1]), falling) == pytest.approx(
            sum(taken)
        )
    assert len(most_tokens(falling, nodes)) == len(taken)
    if len(taken) == nodes:
        assert by_nodes(falling, nodes)[-1].tau == pytest.approx(sum(taken))


def test_one_rank_is_a_chain_and_a_depth_that_costs_is_saved() -> None:
    alpha = alpha_levels([[0.8]], 15)
    assert [pick.parents for pick in by_nodes(alpha, 16)] == [chain(n).parents for n in range(16)]
    two = alpha_levels([[0.45, 0.4]], 15)
    flat = np.ones((8, 8))
    deep = flat * (1 + 0.7 * np.arange(8))[None, :]
    assert fastest(best_picks(two, flat)).parents == kary(2, 7).parents
    assert fastest(best_picks(two, deep)).depth < 2


def test_a_likelier_second_rank_brings_the_first_along() -> None:
    pick = by_nodes(alpha_levels([[0.0, 0.9], [0.9]], 2), 4)[-1]
    assert pick.parents == (-1, 0, 0, 2) and pick.tau == pytest.approx(1 + 0.9 + 0.81)


def test_drafts_that_are_never_right_are_not_drafted() -> None:
    seconds = np.arange(9.0)[:, None] * np.ones((1, 9))
    assert fastest(best_picks(alpha_levels([[0.0, 0.0]], 8), seconds)).parents == (-1,)
    forbidden = np.full((5, 5), np.inf)
    forbidden[3, 2] = 1.0
    assert [pick.parents for pick in best_picks(alpha_levels([[0.5, 0.2]], 4), forbidden)] == [(-1, 0, 1)]


def test_the_largest_tree() -> None:
    """128 nodes and as many levels as there can be, by two ranks; nothing beats the likeliest paths."""
    alpha = alpha_levels([[0.7, 0.15]], 127)
    picks = by_nodes(alpha, 128)
    assert [pick.nodes for pick in picks] == list(range(1, 129))
    assert np.all(np.diff([pick.tau for pick in picks]) > 0)
    assert picks[-1].tau == pytest.approx(
        expected_tokens(DraftTree(picks[-1].parents), alpha_levels([[0.7, 0.15]], 127))
    )
    with pytest.raises(SpeclaError, match="nodes=129: give a whole"):
        by_nodes(alpha_levels([[0.7]], 2), 129)


def test_levels_of_a_table() -> None:
    assert alpha_levels([[0.5], [0.2, 0.1]], 3).tolist() == [[0.5, 0.0], [0.2, 0.1], [0.2, 0.1]]
    assert alpha_levels([[0.5], [0.2, 0.1]], 3, repeat_last=False).tolist() == [[0.5, 0.0], [0.2, 0.1]]
    for wrong in ([[0.7, 0.4]], [[-0.1]], [[1.2]], [[float("nan")]]):
        with pytest.raises(ValueError, match="sum to at most 1"):
            alpha_levels(wrong, 2)
