"""tau, alpha by depth and draft efficiency on steps made by hand, by the definitions of design.md, section 7."""

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from specla.bench import stats
from specla.bench.counting import counts
from specla.bench.tally import Counts
from specla.drafters.oracle import OracleDrafter
from specla.engine.decode import Decoding, Step, StopRule, prefill
from specla.ops.sampling import Sampling
from specla.ops.verify import get_verify
from specla.topology import DraftTree, chain, explicit, kary
from tests.engine.texts import ar_texts, lively_model
from tests.models.cases import prompts

CHAIN = chain(3)


def step(tree: DraftTree, path: tuple[int, ...], kept: int | None = None) -> Step:
    """One row accepts `path` below the root and emits one token more, cut to `kept`."""
    emitted = list(range(len(path) + 1))[:kept]
    return Step([emitted], [len(path)], tree, [[0, *path]], (0.0, 0.0, 0.0, 0.0))


def counted(*steps: Step) -> Counts:
    return counts([("all", [(one, 0) for one in steps])])


def test_a_chain_by_hand() -> None:
    """Three drafts a step: all accepted, one, none, two."""
    found = counted(step(CHAIN, (1, 2, 3)), step(CHAIN, (1,)), step(CHAIN, ()), step(CHAIN, (1, 2)))
    assert (found.steps, found.emitted, found.drafted, found.accepted) == (4, 4 + 2 + 1 + 3, 12, 6)
    assert found.reached == (4, 3, 2) and found.accepted_at == (3, 2, 1)
    assert stats.tau(found) == 2.5
    assert stats.alpha_by_depth(found) == [3 / 4, 2 / 3, 1 / 2]
    assert stats.draft_efficiency(found) == 0.5


def test_tau_is_one_plus_the_products_of_alpha() -> None:
    """On a fixed chain without cuts, whatever was accepted."""
    taken = [3, 0, 2, 2, 1, 3, 0, 1, 3, 3, 2]
    found = counted(*(step(CHAIN, tuple(range(1, a + 1))) for a in taken))
    alpha = [share for share in stats.alpha_by_depth(found) if share is not None]
    assert stats.tau(found) == pytest.approx(1 + sum(math.prod(alpha[: d + 1]) for d in range(len(alpha))))
    assert stats.tau(found) == 1 + sum(taken) / len(taken)


@pytest.mark.parametrize(
    ("path", "kept", "accepted", "reached", "accepted_at"),
    [
        # The cut falls on the bonus token's place: nothing is hidden but that token.
        ((1, 2, 3), 3, 3, (1, 1, 1), (1, 1, 1)),
        # Cut after two accepted drafts: whether the third was right does not count.
        ((1, 2, 3), 2, 2, (1, 1), (1, 1)),
        ((1, 2, 3), 1, 1, (1,), (1,)),
        # One accepted, the second rejected and its place taken by the bonus token: seen whole.
        ((1,), 2, 1, (1, 1), (1, 0)),
        # Cut before the rejection could be seen.
        ((1,), 1, 1, (1,), (1,)),
        # None accepted: the bonus token is the rejection.
        ((), 1, 0, (1,), (0,)),
        # The row had ended.
        ((1, 2), 0, 0, (), ()),
    ],
)
def test_cuts(
    path: tuple[int, ...], kept: int, accepted: int, reached: tuple[int, ...], accepted_at: tuple[int, ...]
) -> None:
    """At EOS and at the limit a step counts as far as its tokens do."""
    found = counted(step(CHAIN, path, kept))
    ran = int(kept > 0)
    assert (found.steps, found.emitted, found.drafted, found.accepted) == (ran, kept, 3 * ran, accepted)
    assert found.reached == reached and found.accepted_at == accepted_at


def test_a_tree_counts_by_depth_and_ends_at_its_leaves() -> None:
    """Node 2 is a leaf at depth 1: the step that ends there did not reach depth 2."""
    tree = explicit([-1, 0, 0, 1, 1])
    found = counted(step(tree, (2,)), step(tree, (1, 4)), step(tree, (1,)), step(tree, ()))
    assert found.drafted == 16 and found.accepted == 4
    assert found.reached == (4, 2) and found.accepted_at == (3, 1)
    assert stats.tau(found) == 2.0
    assert stats.draft_efficiency(found) == 0.25


def test_pruned_trees_reach_less() -> None:
    """A drafter with nothing to say reaches no depth, and drafts nothing."""
    found = counted(step(chain(0), ()), step(chain(1), (1,)), step(kary(2, 7), (1, 4)))
    assert found.drafted == 0 + 1 + 6
    assert found.reached == (2, 1) and found.accepted_at == (2, 1)
    assert stats.tau(found) == 2.0


def test_nothing_counted() -> None:
    found = counted(step(CHAIN, (1,), 0))
    assert stats.tau(found) is None and stats.draft_efficiency(found) is None and stats.alpha_by_depth(found) == []


def test_categories_add_up() -> None:
    """Rows of one batch may be of different categories; a step counts once for each row."""
    both = Step([[5, 6], [7]], [1, 0], chain(1), [[0, 1], [0]], (0.0, 0.0, 0.0, 0.0))
    found = counts([("code", [(both, 0)]), ("prose", [(both, 1)]), ("code", [(step(chain(1), ()), 0)])])
    assert list(found.by_category) == ["code", "prose"]
    code, prose = found.by_category["code"], found.by_category["prose"]
    assert (code.steps, code.emitted, code.accepted_at, code.reached) == (2, 3, (1,), (2,))
    assert (prose.steps, prose.emitted, prose.accepted_at, prose.reached) == (1, 1, (0,), (1,))
    assert (found.steps, found.emitted, found.drafted, found.accepted) == (3, 4, 3, 1)


def test_ranks_by_hand() -> None:
    """Right in the first rank, then the second; a step that ends; one cut before its second draft could be seen."""
    tree = kary(2, 7)
    found = counted(step(tree, (1, 4)), step(tree, (2,)), step(tree, ()), step(tree, (1, 3), 1))
    assert found.offered == ((4, 4), (2, 2)) and found.right == ((2, 1), (0, 1))
    assert stats.alpha_by_rank(found) == [[0.5, 0.25], [0.0, 0.5]]
    uneven = counted(step(explicit((-1, 0, 0, 1)), (2,)), step(explicit((-1, 0, 0, 1)), (1, 3)))
    assert uneven.offered == ((2, 2), (1,)) and uneven.right == ((1, 1), (1,))


def test_a_draft_that_was_asked_for_and_not_had_was_not_right() -> None:
    """`alpha` is of drafts that there were, `alpha_by_rank` of drafts that were asked for."""
    fewer = replace(step(chain(1), (1,)), asked=kary(2, 7))
    nothing = replace(step(chain(0), ()), asked=kary(2, 7))
    found = counted(fewer, nothing)
    assert found.offered == ((2, 2), (1, 1)) and found.right == ((1, 0), (0, 0))
    assert stats.alpha_by_depth(found) == [1.0] and stats.alpha_by_rank(found) == [[0.5, 0.0], [0.0, 0.0]]


def test_an_oracle_is_right_by_rank_as_it_was_told() -> None:
    found, _ = decode([[0.5, 0.3], [0.2, 0.6]], kary(2, 15), 400)
    assert found.offered[0][0] == found.steps
    assert stats.alpha_by_rank(found)[0] == pytest.approx([0.5, 0.3], abs=0.06)
    assert stats.alpha_by_rank(found)[1] == pytest.approx([0.2, 0.6], abs=0.06)
    assert [sum(line) for line in found.right] == [*found.accepted_at]


def decode(alpha: object, tree: DraftTree, limit: int, eos: Iterable[int] = ()) -> tuple[Counts, list[list[int]]]:
    model, sampling = lively_model(), Sampling(0.8, 0.95, 3)
    start = prefill(model, prompts(5, 9, 7), sampling)
    texts = ar_texts(model, start, sampling, limit + tree.depth + 1)
    drafter = OracleDrafter(alpha, texts, model.config.vocab_size, 1)  # type: ignore[arg-type]
    verify, stop = get_verify("tree"), StopRule(limit, frozenset(eos))
    decoding, steps = Decoding(model, start, tree, drafter, verify, "factors", stop), list[Step]()
    while not decoding.done:
        steps.append(decoding.step())
    return counts([("", [(one, row) for one in steps]) for row in range(3)]), decoding.emitted


def test_a_decode_counts_its_own_text() -> None:
    """The prefill's token is left out, and what is counted as emitted is what was emitted, to the last token."""
    for limit, eos in ((1, ()), (2, ()), (40, ()), (60, range(3))):
        found, texts = decode(0.7, chain(4), limit, eos)
        assert found.emitted == sum(len(text) - 1 for text in texts)
        assert found.steps <= found.emitted <= found.accepted + found.steps
        assert found.drafted == 4 * found.steps


def test_a_perfect_drafter_reaches_every_depth() -> None:
    found, _ = decode(1.0, chain(4), 1 + 5 * 6)
    assert (found.steps, stats.tau(found), stats.draft_efficiency(found)) == (18, 5.0, 1.0)
    assert stats.alpha_by_depth(found) == [1.0] * 4
    found, _ = decode(0.0, chain(4), 11)
    assert (found.steps, stats.tau(found), stats.draft_efficiency(found)) == (30, 1.0, 0.0)
    assert stats.alpha_by_depth(found) == [0.0]
