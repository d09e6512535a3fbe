"""The oracle: right as often as it was told, by depth and rank; otherwise distinct and wrong; the same luck for all."""

from collections import Counter

import pytest
from scipy import stats

from specla.drafters.oracle import OracleDrafter, alpha_table
from specla.topology import DraftTree, chain, explicit, kary

VOCABULARY = 50
TEXT = 4000
LEVEL = 1e-4
"""Of the binomial tests; seeds are fixed, so a right oracle passes always."""


def trace(row: int, length: int = TEXT) -> list[int]:
    return [(17 * i + 5 * row + i * i) % VOCABULARY for i in range(length)]


def began(alpha: object, rows: int = 1, seed: int = 0, length: int = TEXT) -> OracleDrafter:
    traces = [trace(row, length) for row in range(rows)]
    drafter = OracleDrafter(alpha, traces, VOCABULARY, seed)  # type: ignore[arg-type]
    drafter.begin([[0]] * rows, [tokens[0] for tokens in traces])
    return drafter


def test_tables_of_shares() -> None:
    assert alpha_table(0.7) == [[0.7]] and alpha_table(1) == [[1.0]]
    assert alpha_table([0.9, 0.5]) == [[0.9], [0.5]]
    assert alpha_table(((0.6, 0.2), (0.5, 0.1, 0.1))) == [[0.6, 0.2], [0.5, 0.1, 0.1]]


def ranks(drafter: OracleDrafter, tree: DraftTree, right: list[int], tokens: list[int]) -> list[int]:
    """The rank of the right child, depth by depth from the root, -1 at the end where there is none."""
    found, node = [], 0
    for wanted in right:
        children = tree.children[node]
        if not children:
            break
        drafted = [tokens[child] for child in children]
        assert len(set(drafted)) == len(drafted), "siblings must be distinct"
        if wanted not in drafted:
            return [*found, -1]
        found.append(drafted.index(wanted))
        node = children[found[-1]]
    return found


@pytest.mark.parametrize(
    ("alpha", "tree", "expected"),
    [
        (0.7, chain(3), [[0.7], [0.7], [0.7]]),
        ([0.9, 0.5], chain(4), [[0.9], [0.5], [0.5], [0.5]]),
        ([[0.6, 0.2], [0.5, 0.1]], kary(2, 15), [[0.6, 0.2], [0.5, 0.1], [0.5, 0.1]]),
        ([[0.4, 0.3, 0.2]], kary(3, 13), [[0.4, 0.3, 0.2]] * 2),
        # A node with fewer children than ranks: what would be right there is not drafted.
        ([[0.4, 0.3]], explicit([-1, 0, 1]), [[0.4], [0.4]]),
        (0.6, kary(2, 7), [[0.6, 0.0]] * 2),
    ],
)
def test_shares_by_depth_and_rank(alpha: object, tree: DraftTree, expected: list[list[float]]) -> None:
    """P(rank r right | parent accepted) = alpha[d, r], over a step from every place of a text."""
    drafter, text = began(alpha, seed=3), trace(0)
    reached, hits = Counter[int](), Counter[tuple[int, int]]()
    for at in range(TEXT - tree.depth - 1):
        draft = drafter.draft(tree)
        assert draft.tree == tree and draft.tokens[0][0] == text[at]
        for depth, rank in enumerate(ranks(drafter, tree, text[at + 1 :], draft.tokens[0])):
            reached[depth] += 1
            hits[depth, rank] += 1
        drafter.observe([[text[at + 1]]])
    assert not drafter.rows_off_trace()
    for depth, line in enumerate(expected):
        for rank, share in enumerate(line):
            test = stats.binomtest(hits[depth, rank], reached[depth], share)
            assert test.pvalue > LEVEL, (depth, rank, hits[depth, rank] / reached[depth], share)


@pytest.mark.parametrize(("alpha", "accepted"), [(0.0, 0), (1.0, 4), ([1.0, 1.0, 0.0], 2)])
def test_certainties(alpha: object, accepted: int) -> None:
    drafter, text = began(alpha), trace(0)
    for at in range(100):
        tokens = drafter.draft(chain(4)).tokens[0]
        assert tokens[: accepted + 1] == text[at : at + accepted + 1]
        assert accepted == 4 or tokens[accepted + 1] != text[at + accepted + 1]
        drafter.observe([[text[at + 1]]])


def test_luck_belongs_to_the_place_in_the_text() -> None:
    """Whatever the tree and however many tokens a step took, the same places are drafted right."""
    lucky: dict[str, dict[int, bool]] = {}
    for tree, taken in ((chain(1), 1), (chain(5), 1), (chain(5), 3), (kary(2, 15), 2), (kary(3, 13), 1)):
        drafter, text, found = began(0.6, seed=5), trace(0), dict[int, bool]()
        for at in range(0, 300, taken):
            tokens = drafter.draft(tree).tokens[0]
            for depth, rank in enumerate(ranks(drafter, tree, text[at + 1 :], tokens)):
                found.setdefault(at + depth + 1, rank == 0)
                assert found[at + depth + 1] == (rank == 0)
            drafter.observe([text[at + 1 : at + 1 + taken]])
        lucky[f"{tree.name} by {taken}"] = found
    every = lucky.pop("chain-l1 by 1")
    assert 100 < sum(every.values()) < 250
    for name, found in lucky.items():
        assert len(found) > 100, name
        assert all(every[place] == luck for place, luck in found.items() if place in every), name


def test_rows_and_seeds_have_their_own_luck() -> None:
    def right(row: int, seed: int) -> list[bool]:
        drafter, text, found = began(0.5, rows=2, seed=seed), trace(row), []
        for at in range(200):
            found.append(drafter.draft(chain(1)).tokens[row][1] == text[at + 1])
            drafter.observe([[trace(0)[at + 1]], [trace(1)[at + 1]]])
        return found

    draws = [right(0, 0), right(1, 0), right(0, 1)]
    assert right(0, 0) == draws[0]
    for i, one in enumerate(draws):
        for other in draws[i + 1 :]:
            assert 60 < sum(a == b for a, b in zip(one, other, strict=True)) < 140


def test_luck_goes_with_the_identity_of_a_row() -> None:
    """A prompt is as lucky alone as in a batch, and two prompts decoded one by one are not lucky in the same places."""

    def drafts(rows: list[int]) -> list[list[int]]:
        drafter = OracleDrafter(0.5, [trace(0)] * len(rows), VOCABULARY, 1, rows)
        drafter.begin([[0]] * len(rows), [trace(0)[0]] * len(rows))
        found = [list[int]() for _ in rows]
        for at in range(60):
            for row, tokens in enumerate(drafter.draft(chain(1)).tokens):
                found[row].append(tokens[1])
            drafter.observe([[trace(0)[at + 1]]] * len(rows))
        return found

    together = drafts([7, 3, 0])
    assert [drafts([row])[0] for row in (7, 3, 0)] == together
    assert len({tuple(row) for row in together}) == 3


def test_a_row_that_left_its_trace_waits_for_another() -> None:
    drafter, text = began(1.0, rows=2), trace(0)
    drafter.draft(chain(3))
    drafter.observe([text[1:3], trace(1)[1:5]])
    assert drafter.rows_off_trace() == []
    other = [(token + 1) % VOCABULARY for token in text]
    drafter.observe([[text[3], other[4]], trace(1)[5:6]])
    assert drafter.rows_off_trace() == [0]
    drafter.retrace(0, other[5:40])
    assert drafter.rows_off_trace() == [] and drafter.retraced == 1
    assert drafter.draft(chain(3)).tokens == [other[4:8], trace(1)[5:9]]
    # The next batch starts from the traces as they were given.
    drafter.begin([[0], [0]], [text[0], trace(1)[0]])
    assert drafter.draft(chain(3)).tokens == [text[:4], trace(1)[:4]]


def test_a_wrong_trace_from_the_first_token_on() -> None:
    """The root is what the prefill gave, whatever the trace says: the target would else decode another text."""
    drafter = OracleDrafter(1.0, [trace(0)], VOCABULARY)
    root = (trace(0)[0] + 1) % VOCABULARY
    drafter.begin([[0]], [root])
    assert drafter.rows_off_trace() == [0]
    assert drafter.draft(chain(3)).tokens[0][0] == root
    drafter.retrace(0, [4, 5, 6, 7])
    assert drafter.draft(chain(3)).tokens == [[root, 4, 5, 6]]


def test_a_finished_row_is_drafted_for_past_the_end_of_its_trace() -> None:
    drafter = began(1.0, rows=1, length=4)
    drafter.observe([trace(0)[1:4]])
    drafter.observe([[]])
    tokens = drafter.draft(kary(2, 7)).tokens[0]
    assert len(tokens) == 7 and tokens[0] == trace(0)[3]
    assert all(0 <= token < VOCABULARY for token in tokens)
