"""Teacher-forced scores: nothing to find in AR's own text, and a corrupted token where it is."""

import pytest
import torch

from specla.engine.decode import prefill
from specla.engine.teacher import forced_scores
from specla.ops.sampling import Sampling, choose, scores
from tests.engine.texts import GREEDY, SAMPLED, ar_texts, lively_model
from tests.models.cases import prompts
from tests.ops.cases import same_bits

SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, Sampling(1.0, seed=4)], ids=str)


@SAMPLINGS
def test_ar_has_no_margin(sampling: Sampling) -> None:
    start = prefill(lively_model(), prompts(5, 9, 1), sampling)
    texts = ar_texts(lively_model(), start, sampling, 20)
    before = start.state.clone()
    # Rows of different lengths: one ended at once.
    texts = [texts[0], texts[1][:7], texts[2][:1]]
    found = forced_scores(lively_model(), start, texts, sampling)
    assert [len(row.margin) for row in found] == [len(row.bound) for row in found] == [19, 6, 0]
    assert all(margin == 0.0 for row in found for margin in row.margin)
    assert same_bits(start.state.recurrent, before.recurrent) and torch.equal(start.state.lengths, before.lengths)


@SAMPLINGS
def test_a_corrupted_token_has_a_margin(sampling: Sampling) -> None:
    """Before it all is well; after it the target goes on from the text as it is. The other row is not touched."""
    start = prefill(lively_model(), prompts(5, 9), sampling)
    texts = ar_texts(lively_model(), start, sampling, 16)
    for place in (1, 8, 15):
        wrong = [*texts[0]]
        wrong[place] = (wrong[place] + 1) % 97
        found = forced_scores(lively_model(), start, [wrong, texts[1]], sampling)
        assert all(margin == 0.0 for margin in found[0].margin[: place - 1])
        assert found[0].margin[place - 1] > 1e-3
        assert all(margin == 0.0 for margin in found[1].margin)


@SAMPLINGS
def test_margins_are_those_of_the_whole_text(sampling: Sampling) -> None:
    """Against one run over the text without a state, position by position."""
    model, prompt = lively_model(), prompts(6)[0]
    start = prefill(model, [prompt], sampling, rows=[3])
    text = torch.randint(0, 97, (12,), generator=torch.Generator().manual_seed(1)).tolist()
    (found,) = forced_scores(model, start, [text], sampling)
    with torch.inference_mode():
        logits = model.logits(model(torch.tensor([[*prompt, *text]])))[0, len(prompt) : -1]
    positions = torch.arange(len(prompt) + 1, len(prompt) + 12)
    score = scores(logits, sampling, torch.full_like(positions, 3), positions)
    chosen = choose(logits, sampling, torch.full_like(positions, 3), positions)
    assert found.choice == chosen.tolist()
    wanted = score.amax(-1) - score[torch.arange(11), torch.tensor(text[1:])]
    assert found.margin == pytest.approx(wanted.tolist(), rel=1e-3, abs=1e-4)
    assert [margin == 0 for margin in found.margin] == (chosen == torch.tensor(text[1:])).tolist()
    assert sampling.top_p == 1 or torch.inf in found.margin, "a token outside the nucleus"
