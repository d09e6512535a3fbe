"""How deep is drafted, step by step: what is learned, when drafting stops and is tried again; and the text is AR's."""

import pytest

from specla.drafters.base import NoDrafter
from specla.engine.adaptive import LAST_PROBE, TRIALS, Adaptive, Outcome, cut, outcome_of
from specla.engine.decode import Decoding, StopRule, prefill
from specla.ops import pairs
from specla.ops.verify import get_verify
from specla.topology import DraftTree, chain, explicit, kary
from tests.engine.texts import GREEDY, SPECULATIVE, ar_texts, lively_model, oracle
from tests.models.cases import prompts

COST = {0: 1.0, 1: 1.1, 2: 1.2, 4: 1.4}
"""Seconds of a step, by the depth of its drafts."""


def rounds(adaptive: Adaptive, alpha: float, steps: int, rows: int = 4) -> list[int]:
    """Play steps of a batch in which a share of the rows accepts at every depth; the depths that were chosen."""
    chosen = []
    for _ in range(steps):
        depth = adaptive.choose().depth
        reached, accepted, left = [], [], float(rows)
        for _ in range(depth):
            reached.append(left)
            left *= alpha
            accepted.append(left)
        adaptive.observe(Outcome(depth, reached, accepted, COST[depth]))  # type: ignore[arg-type]
        chosen.append(depth)
    return chosen


def test_cuts_are_the_upper_levels() -> None:
    tree = kary(2, 8)
    assert [cut(tree, depth).nodes for depth in range(5)] == [1, 3, 7, 8, 8]
    assert cut(tree, 9) is tree
    spine = explicit([-1, 0, 0, 2, 2, 4, 4])
    assert cut(spine, 2).parents == (-1, 0, 0, 2, 2)
    assert sorted(Adaptive(chain(6)).cuts) == [0, 1, 3, 6]
    assert sorted(Adaptive(chain(0)).cuts) == [0]


@pytest.mark.parametrize(("alpha", "depth"), [(0.95, 4), (0.8, 4), (0.05, 0), (0.0, 0)])
def test_what_pays_is_drafted(alpha: float, depth: int) -> None:
    chosen = rounds(Adaptive(chain(4)), alpha, 400)
    assert chosen[: 4 * TRIALS] == [4] * TRIALS + [2] * TRIALS + [1] * TRIALS + [0] * TRIALS
    settled = chosen[100:]
    assert sum(one == depth for one in settled) > 0.97 * len(settled)
    # What a trial costs: a step of depth 1 in place of one without drafts.
    assert set(settled) <= {depth, 1}


def test_a_middle_depth_wins_where_deep_drafts_fail() -> None:
    adaptive = Adaptive(chain(4))
    for _ in range(200):
        depth = adaptive.choose().depth
        accepted = [4, 3, 0, 0][:depth]
        adaptive.observe(Outcome(depth, [4, 4, 3, 0][:depth], accepted, COST[depth]))
    assert adaptive.choose().depth == 2


def test_drafting_is_taken_up_again() -> None:
    """After a stretch in which nothing is accepted, trials are rare, and one of them finds that drafts are good."""
    adaptive = Adaptive(chain(4))
    rounds(adaptive, 0.0, 600)
    trials = [at for at, depth in enumerate(rounds(adaptive, 0.0, 3 * LAST_PROBE)) if depth]
    assert 2 <= len(trials) <= 4
    after = rounds(adaptive, 0.9, 40 * LAST_PROBE)
    assert after[-100:] == [4] * 100


def test_outcomes_count_only_when_they_are_known() -> None:
    adaptive = Adaptive(chain(1), lag=3)
    for _ in range(3):
        adaptive.observe(Outcome(1, [1], [1], 1.0))
        assert adaptive.alphas() == [0.5] and adaptive.rates()[1] == 0.0
    adaptive.observe(Outcome(1, [1], [1], 1.0))
    assert adaptive.alphas() == [pytest.approx(2 / 3)] and adaptive.rates()[1] == pytest.approx(1 + 2 / 3)


def test_outcomes_are_of_rows_that_run() -> None:
    assert outcome_of(4, 3, [0, 3, 1], 2.0) == Outcome(4, [3, 2, 1], [2, 1, 1], 2.0)
    assert outcome_of(0, 0, [0, 0], 2.0) == Outcome(0, [], [], 2.0)


@pytest.mark.parametrize("pair", SPECULATIVE, ids=["-".join(pair) for pair in SPECULATIVE])
def test_the_text_is_ars(pair: tuple[str, str]) -> None:
    """Steps without drafts among others, whatever is pending: every change from one to the other."""
    model = lively_model()
    start = prefill(model, prompts(5, 9, 1), GREEDY)
    texts = ar_texts(model, start, GREEDY, 60)
    verify, recover = pair
    tree: DraftTree = chain(4) if verify == "chain" else kary(2, 8)
    adaptive = _Turns(tree)
    strategy = get_verify(verify, pairs.NEEDS[recover])
    drafter = oracle(model, texts, [[0.7, 0.2]])
    decoding = Decoding(model, start, tree, drafter, strategy, recover, StopRule(48)).adapt(adaptive)
    while not decoding.done:
        decoding.step()
    assert decoding.emitted == [text[:48] for text in texts]
    assert min(adaptive.steps.values()) > 3
    assert adaptive.told.startswith("adaptive: no drafts in ")


class _Turns(Adaptive):
    """Takes the cuts in turn, whatever pays."""

    def _next(self) -> int:
        order = sorted(self.cuts)
        return order[sum(self.steps.values()) % len(order)]


def test_without_drafts_it_is_ar() -> None:
    model = lively_model()
    start = prefill(model, prompts(5), GREEDY)
    ways = chain(0), NoDrafter(), get_verify("tree", pairs.NEEDS["factors"]), "factors"
    decoding = Decoding(model, start, *ways, StopRule(8)).adapt(Adaptive(chain(0)))
    while not decoding.done:
        decoding.step()
    assert decoding.emitted == [text[:8] for text in ar_texts(model, start, GREEDY, 8)]
