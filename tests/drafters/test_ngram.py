"""Prompt lookup: the right continuation of repeated text, on chains and on trees, and nothing where there is none."""

import pytest

from specla.drafters.ngram import NgramDrafter
from specla.topology import DraftTree, chain, explicit, kary


def drafter(*prompts: list[int], roots: list[int], low: int = 2, high: int = 4) -> NgramDrafter:
    made = NgramDrafter(low, high)
    made.begin(prompts, roots)
    return made


def test_repeated_text_is_drafted_on() -> None:
    made = drafter([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], roots=[3])
    draft = made.draft(chain(5))
    assert draft.tokens == [[3, 4, 5, 6, 7, 8]] and draft.tree == chain(5)
    made.observe([[4, 5, 6]])
    assert made.draft(chain(5)).tokens == [[6, 7, 8, 9, 1, 2]]


def test_drafts_continue_into_themselves() -> None:
    """A loop shorter than the draft: what was drafted is context for what follows."""
    assert drafter([7, 1, 2, 1], roots=[2]).draft(chain(6)).tokens == [[2, 1, 2, 1, 2, 1, 2]]


def test_the_longest_match_wins_then_the_newest() -> None:
    """1 2 was followed by 8 last, but 9 1 2 by 5 and, later, by 6."""
    made = drafter([9, 1, 2, 5, 0, 9, 1, 2, 6, 0, 3, 1, 2, 8, 0, 9, 1], roots=[2], high=3)
    assert made.draft(chain(1)).tokens == [[2, 6]]
    assert made.draft(explicit([-1, 0, 0, 0, 0])).tokens == [[2, 6, 5, 8]]
    made.observe([[4, 3, 1, 2]])
    assert made.draft(chain(1)).tokens == [[2, 8]]


def test_siblings_are_distinct() -> None:
    made = drafter([1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2, 3, 1], roots=[2])
    draft = made.draft(kary(2, 7))
    assert draft.tree == explicit([-1, 0, 0, 1, 2])
    # 2 3 1 2 was followed by 4 last and by 3 before; both were followed by 1 alone.
    assert draft.tokens == [[2, 4, 3, 1, 1]]
    for siblings in draft.tree.children:
        tokens = [draft.tokens[0][node] for node in siblings]
        assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize("tree", [chain(4), kary(3, 10)])
def test_nothing_to_say_leaves_the_root(tree: DraftTree) -> None:
    draft = drafter([1, 2, 3, 4], [5, 6, 7], roots=[9, 8]).draft(tree)
    assert draft.tree.parents == (-1,) and draft.tokens == [[9], [8]]


def test_nodes_without_candidates_are_pruned() -> None:
    """The text ends four tokens after the match: a deeper chain is cut, and nothing wraps around."""
    draft = drafter([1, 2, 3, 4, 9, 1], roots=[2], low=2).draft(chain(8))
    assert draft.tokens == [[2, 3, 4, 9, 1, 2, 3, 4, 9]]
    draft = drafter([5, 1, 2, 3, 1], roots=[2], low=2, high=2).draft(explicit([-1, 0, 0, 1, 1, 2]))
    assert draft.tree == explicit([-1, 0, 1]) and draft.tokens == [[2, 3, 1]]


def test_a_node_stays_where_one_row_needs_it() -> None:
    made = drafter([1, 2, 3, 1], [1, 2, 3, 4], [1, 2, 3, 4, 5, 1], roots=[2, 9, 2])
    draft = made.draft(chain(3))
    assert draft.tree == chain(3)
    assert [tokens[0] for tokens in draft.tokens] == [2, 9, 2]
    assert draft.tokens[2] == [2, 3, 4, 5]
    made.observe([[3], [], [3, 4, 5, 1, 2]])
    assert [tokens[0] for tokens in made.draft(chain(3)).tokens] == [3, 9, 2]


@pytest.mark.parametrize(("low", "high", "found"), [(1, 1, True), (1, 4, True), (2, 4, False), (3, 4, False)])
def test_the_shortest_context_that_counts(low: int, high: int, found: bool) -> None:
    """Only the last token occurred before."""
    draft = drafter([1, 2, 3, 4], roots=[2], low=low, high=high).draft(chain(1))
    assert draft.tokens == ([[2, 3]] if found else [[2]])


@pytest.mark.parametrize(("high", "token"), [(1, 7), (2, 7), (3, 5), (6, 5)])
def test_the_longest_context_that_counts(high: int, token: int) -> None:
    """9 1 2 was followed by 5; 1 2 and 2 later by 7."""
    made = drafter([9, 1, 2, 5, 8, 1, 2, 7, 9, 1], roots=[2], low=1, high=high)
    assert made.draft(chain(1)).tokens == [[2, token]]


def test_a_short_prompt_has_no_context_yet() -> None:
    made = drafter([1], roots=[1], low=2, high=4)
    assert made.draft(chain(2)).tokens == [[1]]
    made.observe([[1]])
    # 1 1 has now been followed by 1.
    assert made.draft(chain(2)).tokens == [[1, 1, 1]]


def test_a_new_batch_forgets_the_last() -> None:
    made = drafter([1, 2, 3, 1], roots=[2])
    made.begin([[4, 4, 1]], [2])
    assert made.draft(chain(2)).tokens == [[2]]
