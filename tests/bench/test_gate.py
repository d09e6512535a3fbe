"""The losslessness gate: exact, near ties that are counted, and everything else that must fail."""

from dataclasses import replace

import pytest

from specla.bench.gate import GateResult, _judge_row, check_texts
from specla.bench.record import Lossless
from specla.engine.decode import Prefilled, StopRule, prefill
from specla.engine.teacher import ForcedScores
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops.sampling import Sampling
from tests.engine.texts import GREEDY, SAMPLED, ar_texts, lively_model
from tests.models.cases import prompts, raw_model

LIMIT = 20
STOP = StopRule(LIMIT)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])


def started(model: GatedDeltaNetLM, sampling: Sampling) -> tuple[Prefilled, list[list[int]]]:
    start = prefill(model, prompts(5, 9, 3), sampling)
    return start, ar_texts(model, start, sampling, LIMIT)


def changed(text: list[int], place: int, token: int) -> list[int]:
    return [*text[:place], token, *text[place + 1 :]]


@SAMPLINGS
def test_the_same_texts_are_exact(sampling: Sampling) -> None:
    start, texts = started(lively_model(), sampling)
    result = check_texts(lively_model(), start, [list(text) for text in texts], texts, sampling, STOP)
    assert result == GateResult(Lossless.EXACT, 0, 3 * (LIMIT - 1))


@SAMPLINGS
@pytest.mark.parametrize("place", [0, 1, 10, LIMIT - 1])
def test_a_wrong_token_fails(place: int, sampling: Sampling) -> None:
    """Wherever it stands, the prefill's token and the last one included."""
    start, texts = started(lively_model(), sampling)
    wrong = changed(texts[1], place, (texts[1][place] + 1) % 97)
    result = check_texts(lively_model(), start, [texts[0], wrong, texts[2]], texts, sampling, STOP)
    assert result.lossless is Lossless.FAILED
    assert "row 1" in result.reason and f"token {place}" in result.reason


def test_another_text_from_the_first_token_on_fails() -> None:
    """AR's own continuation of a wrong first token: every later token is the target's choice."""
    start, texts = started(lively_model(), GREEDY)
    root = (start.roots[0] + 1) % 97
    begun = replace(start, roots=[root, *start.roots[1:]])
    other = ar_texts(lively_model(), begun, GREEDY, LIMIT)
    assert other[0] != texts[0] and other[1:] == texts[1:]
    assert check_texts(lively_model(), start, other, texts, GREEDY, STOP).lossless is Lossless.FAILED


@pytest.mark.parametrize("rest", [[], [5, 6]])
def test_a_text_of_another_length_fails(rest: list[int]) -> None:
    """Too short, though every token is right; or running on past the limit."""
    start, texts = started(lively_model(), SAMPLED)
    other = texts[2][:-3] if not rest else texts[2] + rest
    result = check_texts(lively_model(), start, [*texts[:2], other], texts, SAMPLED, STOP)
    assert result.lossless is Lossless.FAILED and "row 2" in result.reason


@pytest.fixture(scope="module")
def twins() -> GatedDeltaNetLM:
    """Token 96 - t reads as token t does, and scores less by a few roundings: they tie wherever one is best."""
    model = raw_model(num_v_heads=4)
    embeddings, head = model.model.embeddings.weight.data, model.lm_head.weight.data
    embeddings[49:] = embeddings[:48].flip(0)
    head[49:] = head[:48].flip(0) * (1 - 2**-22)
    head[48] = 0
    return model.prepare()


def twin(token: int) -> int:
    return 96 - token


@SAMPLINGS
def test_near_ties_pass_and_are_counted(sampling: Sampling, twins: GatedDeltaNetLM) -> None:
    """Sampling decides between twins by their noise, so a twin that the noise favours less is no tie."""
    start, texts = started(twins, sampling)
    other = changed(changed(texts[0], 4, twin(texts[0][4])), 11, twin(texts[0][11]))
    result = check_texts(twins, start, [other, *texts[1:]], texts, sampling, STOP)
    if sampling.greedy:
        assert result == GateResult(Lossless.NEAR_TIE, 2, 3 * (LIMIT - 1), worst_tie=result.worst_tie)
        assert 0 < result.worst_tie <= 1
    else:
        assert result.lossless is Lossless.FAILED


def test_a_near_tie_in_one_row_excuses_no_other(twins: GatedDeltaNetLM) -> None:
    """Row 0 has a near tie, row 2 lost its last tokens."""
    start, texts = started(twins, GREEDY)
    tied = changed(texts[0], 4, twin(texts[0][4]))
    result = check_texts(twins, start, [tied, texts[1], texts[2][:-3]], texts, GREEDY, STOP)
    assert result.lossless is Lossless.FAILED and "row 2" in result.reason


def test_a_near_tie_excuses_no_lost_tokens_in_its_own_row(twins: GatedDeltaNetLM) -> None:
    start, texts = started(twins, GREEDY)
    tied = changed(texts[0], 4, twin(texts[0][4]))
    result = check_texts(twins, start, [tied[:-3], *texts[1:]], texts, GREEDY, STOP)
    assert result.lossless is Lossless.FAILED and "does not end where" in result.reason


@pytest.mark.parametrize(("margin", "bound", "share"), [(0.0, 0.0, 0.0), (0.0, 1e-5, 0.0), (0.99e-5, 1e-5, 0.99)])
def test_up_to_the_bound_a_token_ties(margin: float, bound: float, share: float) -> None:
    """Two tokens with one score, as 16-bit logits have, are a tie like any other."""
    assert _judge_row(ForcedScores([5], [margin], [bound]), [1, 6]) == ("", [pytest.approx(share)])
    assert _judge_row(ForcedScores([5], [margin], [bound]), [1, 5]) == ("", [])


@pytest.mark.parametrize("margin", [1.01e-5, 1.0, float("inf"), float("nan")])
def test_beyond_the_bound_a_token_fails(margin: float) -> None:
    """A score that is NaN never ties; neither does one beside a bound that is."""
    for bound in (1e-5, float("nan")):
        reason, shares = _judge_row(ForcedScores([5, 6], [0.0, margin], [1e-5, bound]), [1, 4, 7])
        assert reason.startswith(f"token 2: scores {margin:.3g} below") and shares == [0.0]


def test_an_end_token_on_a_near_tie_changes_the_length(twins: GatedDeltaNetLM) -> None:
    """AR's text ended with a token whose twin does not end it: going on is right, to the limit."""
    start, texts = started(twins, GREEDY)
    ended = texts[0][:8]
    on = changed(texts[0], 7, twin(texts[0][7]))
    result = check_texts(twins, start, [on, *texts[1:]], [ended, *texts[1:]], GREEDY, STOP)
    assert result.lossless is Lossless.NEAR_TIE and result.near_ties == 1


def test_results_add_to_the_worst() -> None:
    exact, tie = GateResult(Lossless.EXACT, 0, 10), GateResult(Lossless.NEAR_TIE, 2, 20, worst_tie=0.3)
    failed = GateResult(Lossless.FAILED, 1, 5, "row 0, token 3", 0.1)
    assert exact + tie == tie + exact == GateResult(Lossless.NEAR_TIE, 2, 30, worst_tie=0.3)
    assert exact + failed == GateResult(Lossless.FAILED, 1, 15, "row 0, token 3", 0.1)
    assert failed + tie == GateResult(Lossless.FAILED, 3, 25, "row 0, token 3", 0.3)
    assert exact + exact == GateResult(Lossless.EXACT, 0, 20)
