"""The loop: where texts end, which rows write what, what a step commits, and the way back onto an oracle's trace."""

import dataclasses
from collections.abc import Sequence

import pytest
import torch

from specla.drafters.base import NoDrafter
from specla.drafters.ngram import NgramDrafter
from specla.engine.decode import Decoding, Prefilled, StopRule, prefill, trace_rows
from specla.models.state import DecodeState
from specla.ops.sampling import Sampling
from specla.topology import DraftTree, chain, kary
from tests.engine.texts import (
    GREEDY,
    LIMIT,
    PAIRS,
    SAMPLED,
    SPECULATIVE,
    SPINE,
    ar_texts,
    decoding,
    finish,
    lively_model,
    off_from,
    oracle,
)
from tests.models.cases import prompts
from tests.ops.cases import same_bits
from tests.tolerances import assert_close

ALL_NEW = 6
"""The length of a prompt whose text begins with eleven different tokens."""
pairs_of = pytest.mark.parametrize("pair", SPECULATIVE, ids=["-".join(pair) for pair in SPECULATIVE])


def started(*lengths: int, sampling: Sampling = SAMPLED) -> tuple[Prefilled, list[list[int]]]:
    """A batch after its prompts, and AR's texts of it."""
    model = lively_model()
    start = prefill(model, prompts(*lengths), sampling)
    return start, ar_texts(model, start, sampling, LIMIT + 16)


def tree_of(pair: tuple[str, str]) -> DraftTree:
    """Where any tree will do: one whose accepted nodes are its second children."""
    return chain(6) if pair[0] == "chain" else SPINE


def alpha_of(tree: DraftTree, share: float = 1.0) -> list[list[float]]:
    """Right with this probability, in the child that goes on."""
    return [[0.0, share]] if tree is SPINE else [[share]]


@pytest.mark.parametrize(
    ("limit", "eos", "before", "tokens", "kept", "ended"),
    [
        (10, (), 1, [5, 6, 7], [5, 6, 7], False),
        (4, (), 1, [5, 6, 7], [5, 6, 7], True),
        (3, (), 1, [5, 6, 7], [5, 6], True),
        (10, (6,), 1, [5, 6, 7], [5, 6], True),
        (10, (7, 6), 1, [5, 6, 7, 6], [5, 6], True),
        # The limit comes first, so the end of text is never emitted.
        (2, (6,), 1, [5, 6], [5], True),
        (1, (), 0, [5], [5], True),
        (10, (5,), 0, [5], [5], True),
    ],
)
def test_stop_rule(
    limit: int, eos: Sequence[int], before: int, tokens: list[int], kept: list[int], ended: bool
) -> None:
    assert StopRule(limit, frozenset(eos)).cut(tokens, before) == (kept, ended)


@pytest.mark.parametrize("place", range(11))
def test_a_text_ends_with_its_end_token(place: int) -> None:
    """Place 0 is the prefill's token; then a perfect drafter emits 4 drafts and a bonus token a step."""
    start, texts = started(ALL_NEW)
    text = texts[0]
    assert text.index(text[place]) == place, "the token must be new there"
    made = decoding(lively_model(), start, oracle(lively_model(), texts), eos=[text[place]])
    steps = finish(made)
    assert made.emitted == [text[: place + 1]]
    assert sum(len(step.emitted[0]) for step in steps) == place
    assert len(steps) == -(-place // 5)


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 7, 11])
def test_a_text_ends_at_the_limit(limit: int) -> None:
    start, texts = started(7, 3)
    made = decoding(lively_model(), start, oracle(lively_model(), texts), limit=limit)
    steps = finish(made)
    assert made.emitted == [text[:limit] for text in texts]
    assert len(steps) == -(-(limit - 1) // 5)
    # What was accepted is told before the cut: how much of it counts is for the counting.
    assert all(step.accepted == [4, 4] for step in steps)


@pairs_of
def test_rows_end_on_their_own(pair: tuple[str, str]) -> None:
    """A row that ended writes nothing, to the bit; the others go on as if they were alone."""
    start, texts = started(4, 9, 1, 6)
    texts = [text[:LIMIT] for text in texts]
    # Rows 0 and 2 end early, by tokens that no other row emits before its own end.
    others = {token for row in (1, 3) for token in texts[row]}
    eos = [next(token for token in texts[row][at:] if token not in others) for row, at in ((0, 2), (2, 9))]
    wanted = [StopRule(LIMIT, frozenset(eos)).cut(text, 0)[0] for text in texts]
    assert len({len(text) for text in wanted}) == 3
    tree = tree_of(pair)
    drafter = oracle(lively_model(), [[*text, *range(16)] for text in texts], alpha_of(tree, 0.6), seed=2)
    made, held = decoding(lively_model(), start, drafter, tree, pair, LIMIT, eos=eos), dict[int, DecodeState]()
    while not made.done:
        before = made.finished.copy()
        step = made.step()
        for row, ended in enumerate(made.finished):
            if before[row]:
                assert step.emitted[row] == []
                assert_untouched(made, row, held[row], pair)
            elif ended:
                held[row] = row_of(made.recovery.settled_copy() if lazy(pair) else made.state, row)
    assert made.emitted == wanted
    made.flush()
    for row, state in held.items():
        assert_untouched(made, row, state, pair)
    alone = prefill(lively_model(), [start.prompts[3]], SAMPLED, rows=[3])
    single = decoding(lively_model(), alone, oracle(lively_model(), texts[3:]), tree, pair, LIMIT, eos=eos)
    finish(single)
    assert single.emitted == made.emitted[3:]


def lazy(pair: tuple[str, str]) -> bool:
    return pair[1] == "factors_lazy"


def row_of(state: DecodeState, row: int) -> DecodeState:
    return DecodeState(state.recurrent[:, row].clone(), state.window[:, row].clone(), state.lengths[row].clone())


def assert_untouched(made: Decoding, row: int, held: DecodeState, pair: tuple[str, str]) -> None:
    """A lazy ring may still take what was committed before into the state: then the two together have not changed."""
    now = row_of(made.recovery.settled_copy() if lazy(pair) else made.state, row)
    assert same_bits(now.window, held.window) and now.lengths == held.lengths
    if lazy(pair):
        assert_close(now.recurrent, held.recurrent, "commit")
    else:
        assert same_bits(now.recurrent, held.recurrent)


@pairs_of
def test_nothing_accepted(pair: tuple[str, str]) -> None:
    """Every draft wrong: each step emits its bonus token and commits its root alone."""
    start, texts = started(5, 2)
    tree = tree_of(pair)
    made = decoding(lively_model(), start, oracle(lively_model(), texts, 0.0), tree, pair, 12)
    steps = finish(made)
    assert made.emitted == [text[:12] for text in texts]
    assert all(step.accepted == [0, 0] and step.path == [[0], [0]] for step in steps) and len(steps) == 11


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_the_order_of_a_batch_does_not_matter(sampling: Sampling) -> None:
    """Nor does its size: a row's text follows from its prompt and its identity."""
    ids, order = prompts(5, 9, 1, 14, 3), [3, 0, 4, 1, 2]
    start = prefill(lively_model(), ids, sampling, rows=range(10, 15))
    texts = ar_texts(lively_model(), start, sampling, LIMIT)
    moved = prefill(lively_model(), [ids[i] for i in order], sampling, rows=[10 + i for i in order])
    assert moved.roots == [start.roots[i] for i in order]
    for drafter, tree in ((NoDrafter(), chain(0)), (NgramDrafter(1, 3), kary(2, 7))):
        pair = ("ar", "in_place") if tree.nodes == 1 else ("hybrid", "factors_deferred")
        made = decoding(lively_model(), moved, drafter, tree, pair, LIMIT, sampling)
        finish(made)
        assert made.emitted == [texts[i] for i in order]


@pairs_of
def test_what_a_step_commits(pair: tuple[str, str]) -> None:
    """Row k accepts k drafts: state and window are those of a prefill of the text so far, before and after a flush."""
    start, texts = started(5, 2, 9, 1, 3, 4, 7)
    tree, model = tree_of(pair), lively_model()
    drafter = oracle(model, off_from(texts, [k + 1 for k in range(7)], model.config.vocab_size), alpha_of(tree))
    made = decoding(model, start, drafter, tree, pair, LIMIT)
    before = start.state.clone()
    step = made.step()
    assert step.accepted == list(range(7)) and [len(path) for path in step.path] == [k + 1 for k in range(7)]
    assert [tree.path(path[-1]) for path in step.path] == [tuple(path) for path in step.path]
    assert step.emitted == [text[1 : k + 2] for k, text in enumerate(texts)]
    copy = made.recovery.settled_copy()
    assert made.flush() is made.state
    for state in (copy, made.state):
        for k in range(7):
            _, wanted = model.prefill(torch.tensor([[*start.prompts[k], *texts[k][: k + 1]]]))
            assert int(state.lengths[k]) == int(wanted.lengths) == len(start.prompts[k]) + k + 1
            assert_close(state.window[:, k : k + 1], wanted.window, "model")
            assert_close(state.recurrent[:, k : k + 1], wanted.recurrent, "model")
    assert same_bits(start.state.recurrent, before.recurrent), "other methods start from it"
    assert same_bits(start.state.window, before.window)


@pytest.mark.parametrize("pair", [("tree", "factors_deferred"), ("hybrid", "factors_lazy"), ("ar", "factors_lazy")])
def test_a_deferred_commit_is_the_commit(pair: tuple[str, str]) -> None:
    """After every step the settled state is what committing at once gives; reading it changes nothing."""
    start, texts = started(5, 9, 1)
    tree, model = (chain(0) if pair[0] == "ar" else SPINE), lively_model()

    def begin(recover: str) -> Decoding:
        drafter = NoDrafter() if pair[0] == "ar" else oracle(model, texts, alpha_of(tree, 0.7), seed=3)
        return decoding(model, start, drafter, tree, (pair[0], recover), LIMIT)

    late, flushed, at_once = begin(pair[1]), begin(pair[1]), begin("in_place" if pair[0] == "ar" else "factors")
    stale = 0
    while not at_once.done:
        steps = [one.step() for one in (late, flushed, at_once)]
        assert all(step.emitted == steps[2].emitted for step in steps)
        stale += not torch.allclose(late.state.recurrent, at_once.state.recurrent, rtol=1e-3)
        settled = late.recovery.settled_copy()
        assert_close(settled.recurrent, at_once.state.recurrent, "model")
        assert_close(flushed.flush().recurrent, at_once.state.recurrent, "model")
        for state in (settled, flushed.state):
            assert_close(state.window, at_once.state.window, "model")
            assert torch.equal(state.lengths, at_once.state.lengths)
    assert stale > 3, "nothing was deferred"


@pytest.mark.parametrize("pair", [("tree", "factors"), ("tree", "factors_deferred"), ("hybrid", "factors_lazy")])
def test_a_wrong_trace_is_traced_again(pair: tuple[str, str]) -> None:
    """As after a near tie: the text stays AR's, and from the next step on the oracle is right again."""
    start, texts = started(5, 9, 1)
    model = lively_model()
    wrong = off_from(texts, [3, 8, 99], model.config.vocab_size)
    drafter = oracle(model, wrong)
    made = decoding(model, start, drafter, chain(4), pair, LIMIT)
    accepted = []
    while not made.done:
        accepted.append(made.step().accepted)
        trace_rows(made)
        assert drafter.rows_off_trace() == []
    assert made.emitted == [text[:LIMIT] for text in texts]
    assert drafter.retraced == 2
    assert accepted[0] == [2, 4, 4] and accepted[1] == [4, 2, 4]
    assert all(a == 4 for step in accepted[2:] for a in step)


def test_without_a_new_trace_the_text_is_still_right() -> None:
    start, texts = started(5, 9)
    drafter = oracle(lively_model(), off_from(texts, [2, 99], 97))
    made = decoding(lively_model(), start, drafter, limit=12)
    finish(made)
    assert made.emitted == [text[:12] for text in texts]
    assert set(drafter.rows_off_trace()) == {0}


def test_a_trace_of_another_text_from_the_prefill_on() -> None:
    """The trace's very first token is not the prefill's: still AR's text, and right again once traced."""
    start, texts = started(5, 9)
    drafter = oracle(lively_model(), off_from(texts, [0, 99], 97))
    made = decoding(lively_model(), start, drafter)
    assert drafter.rows_off_trace() == [0]
    trace_rows(made)
    steps = finish(made)
    assert made.emitted == [text[:LIMIT] for text in texts]
    assert steps[0].accepted == [4, 4] and not drafter.rows_off_trace()


@pytest.mark.parametrize("pair", PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_seconds_and_trees_are_told(pair: tuple[str, str]) -> None:
    start, texts = started(5)
    tree = chain(0) if pair[0] == "ar" else tree_of(pair)
    drafter = NoDrafter() if pair[0] == "ar" else oracle(lively_model(), texts)
    step = decoding(lively_model(), start, drafter, tree, pair).step()
    assert step.tree == tree and len(step.seconds) == 4 and min(step.seconds) >= 0 and step.seconds[1] > 0


def test_the_prefill_is_shared() -> None:
    """Two decodes that take turns do not meet, since each has a copy of the state."""
    start, texts = started(5, 9)
    first, second = (decoding(lively_model(), start, oracle(lively_model(), texts, 0.5, seed)) for seed in (1, 2))
    while not (first.done and second.done):
        for one in (first, second):
            if not one.done:
                one.step()
    assert first.emitted == second.emitted == [text[:LIMIT] for text in texts]
    changed = dataclasses.replace(start, state=start.state.clone())
    assert ar_texts(lively_model(), changed, SAMPLED, LIMIT) == first.emitted
