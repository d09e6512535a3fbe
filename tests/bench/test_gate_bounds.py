"""The bound that decides what may call itself lossless: wide enough for what rounding does, and hardly wider."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from specla.bench.gate import check_texts
from specla.bench.record import Lossless
from specla.engine import accept as acceptance
from specla.engine.decode import Prefilled, StopRule, prefill, tree_tensors
from specla.engine.recovery import EngineRecovery
from specla.engine.rounding import Candidates, last_place, score_noise
from specla.engine.teacher import NEAR_TIE_NOISES, forced_scores
from specla.models.checkpoint import load_model, random_model, resolve_folder
from specla.models.config import GatedDeltaNetConfig
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops import pairs
from specla.ops.sampling import Sampling, choose, log_probabilities, nucleus_within
from specla.ops.verify import get_verify
from specla.topology import chain
from tests.engine.texts import ar_texts, decoding, finish, lively_model, oracle
from tests.models.cases import prompts, raw_model, tiny_model

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SAMPLINGS = (Sampling(), Sampling(1.0, seed=3), Sampling(0.8, 0.95, seed=1), Sampling(5.0, 0.05, seed=2))
LIMIT = 48
DEEP = GatedDeltaNetConfig(
    vocab_size=2000,
    hidden_size=256,
    num_hidden_layers=24,
    num_heads=2,
    head_dim=128,
    num_v_heads=4,
    expand_v=1.0,
    intermediate_size=704,
)


@cache
def model_of(name: str, dtype: torch.dtype, device: str = "cpu") -> GatedDeltaNetLM:
    """`chaotic`: large weights, six layers, negative eigenvalues: rounding grows with every layer and token."""
    if name == "gdn-mini":
        return load_model(resolve_folder("asset:gdn-mini"), dtype, device)
    if name == "24 layers":
        return random_model(DEEP, dtype, device)
    return tiny_model(dtype=dtype, num_v_heads=4, num_hidden_layers=6, allow_neg_eigval=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_ars_own_text_is_the_targets_choice_everywhere(dtype: torch.dtype, sampling: Sampling) -> None:
    """Where the nucleus is as small as one token, and where 16-bit logits tie, too."""
    model = tiny_model(dtype=dtype, num_v_heads=4)
    start = prefill(model, prompts(5, 9, 1, 6), sampling)
    texts = ar_texts(model, start, sampling, LIMIT)
    for text, found in zip(texts, forced_scores(model, start, texts, sampling), strict=True):
        assert found.choice == text[1:]
        assert set(found.margin) == {0.0}


def step_logits(model: GatedDeltaNetLM, start: Prefilled, texts: Tensor, pair: tuple[str, str], drafts: int) -> Tensor:
    """Logits after every token of texts [B, S], run so many at a time through a pair of strategies."""
    state = start.state.clone()
    recovery = EngineRecovery(pair[1], model, state, longest=drafts + 1)
    strategy = get_verify(pair[0], pairs.NEEDS[pair[1]])
    tree = tree_tensors(chain(drafts), model.device, model.config.conv_size)
    path = torch.arange(drafts + 1, device=model.device).expand(len(texts), -1)
    length = torch.full((len(texts),), drafts + 1, device=model.device)
    logits = []
    with torch.inference_mode():
        for at in range(0, texts.shape[1] - drafts, drafts + 1):
            hidden, records = model.forward_nodes(texts[:, at : at + drafts + 1], tree, recovery.layers(), strategy)
            logits.append(model.logits(hidden).float())
            recovery.commit(records, path, length)
            state.lengths += length
    return torch.cat(logits, dim=1)


CPU = [("chaotic", torch.float32), ("gdn-mini", torch.bfloat16)]


@pytest.mark.parametrize(("name", "dtype"), CPU, ids=str)
def test_the_bound_holds_what_strategies_move_scores_by_and_not_four_times_that(name: str, dtype: torch.dtype) -> None:
    """Noise just below the bound passes, and the bound is not much wider than the noise."""
    worst = most_moved(model_of(name, dtype))
    assert worst <= NEAR_TIE_NOISES <= 4 * worst


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["gdn-mini", "24 layers"])
def test_the_bound_holds_what_kernels_move_scores_by(name: str, dtype: torch.dtype) -> None:
    worst = most_moved(model_of(name, dtype, "cuda"))
    print(name, dtype, f"moved by up to {worst:.2f} noises")
    assert worst <= NEAR_TIE_NOISES


def most_moved(model: GatedDeltaNetLM) -> float:
    """How far, in noises, the best eight tokens' scores move against the best from AR's steps to verified chains."""
    sampling = Sampling(1.0, seed=3)
    start = prefill(model, prompts(9, 5, 7, 14, vocabulary=model.config.vocab_size), sampling)
    limit = 97 if model.config.vocab_size < 100 else 49
    texts = torch.tensor(ar_texts(model, start, sampling, limit), device=model.device)
    own = step_logits(model, start, texts[:, :-1], ("ar", "in_place"), 0)
    ids = own.topk(8, dim=-1).indices
    padded = [torch.nn.functional.pad(x, (0, 0, 1, 0)) for x in (ids, own.gather(-1, ids))]
    valid = torch.ones_like(texts, dtype=torch.bool)
    valid[:, 0] = False
    noise = score_noise(model, start, texts, valid, Candidates(*padded), sampling)[:, 1:]
    worst = 0.0
    for pair, drafts in ((("tree", "factors"), 3), (("chain", "replay_cached"), 7), (("hybrid", "factors_lazy"), 15)):
        other = step_logits(model, start, texts[:, :-1], pair, drafts)
        moved = (other - own[:, : other.shape[1]]).gather(-1, ids[:, : other.shape[1]])
        worst = max(worst, float(((moved - moved[..., :1]).abs().amax(-1) / noise[:, : other.shape[1]]).max()))
    return worst


def twins(below: float) -> GatedDeltaNetLM:
    """Token 96 - t reads as token t does, and scores less by this share of its logit."""
    model = raw_model(num_v_heads=4)
    embeddings, head = model.model.embeddings.weight.data, model.lm_head.weight.data
    embeddings[49:] = embeddings[:48].flip(0)
    head[49:] = head[:48].flip(0) * (1 - below)
    head[48] = 0
    return model.prepare()


def judged(below: float) -> tuple[Lossless, float, float]:
    """(verdict, margin, bound) of a text that took the lower of two twins once."""
    model, sampling = twins(below), Sampling()
    start = prefill(model, prompts(5, 9), sampling)
    texts = ar_texts(model, start, sampling, 24)
    other = [[*texts[0][:11], 96 - texts[0][11], *texts[0][12:]], texts[1]]
    found = forced_scores(model, start, other, sampling)[0]
    assert sum(margin > 0 for margin in found.margin) == 1
    verdict = check_texts(model, start, other, texts, sampling, StopRule(24)).lossless
    return verdict, found.margin[10], found.bound[10]


def test_a_token_just_below_the_bound_ties_and_one_just_above_fails() -> None:
    """The whole way from the head's weights to the verdict, at nine tenths and at eleven tenths of the bound."""
    _, margin, bound = judged(2**-15)
    assert margin > 2 * bound, "far above, as a token of another rounding never is"
    for share, wanted in ((0.9, Lossless.NEAR_TIE), (1.1, Lossless.FAILED)):
        verdict, found, allowed = judged(2**-15 * share * bound / margin)
        assert found / allowed == pytest.approx(share, rel=0.08)
        assert verdict is wanted


def test_one_place_of_a_rounded_logit_is_noise() -> None:
    """At 20.6 bfloat16 has eight places to the unit. A text whose logits move by less has that much noise still."""
    places = last_place(torch.tensor([20.6, 16.0, 15.9, 0.3]), torch.bfloat16)
    assert places.tolist() == [0.125, 0.125, 0.0625, 2**-9]
    model = tiny_model(dtype=torch.bfloat16)
    start = prefill(model, prompts(5), Sampling())
    texts = torch.tensor(ar_texts(model, start, Sampling(), 9))
    valid = torch.arange(9)[None] > 0
    own = torch.nn.functional.pad(step_logits(model, start, texts[:, :-1], ("ar", "in_place"), 0), (0, 0, 1, 0))
    ids = own.topk(1, dim=-1).indices
    # One candidate moves against nothing.
    alone = Candidates(ids.expand(-1, -1, 2), own.gather(-1, ids).expand(-1, -1, 2))
    for sampling, share in ((Sampling(), 1.0), (Sampling(0.5), 2.0)):
        noise = score_noise(model, start, texts, valid, alone, sampling)
        assert torch.equal(noise, share * last_place(own.amax(-1).abs(), torch.bfloat16))


@pytest.mark.parametrize("bound", [1e-6, 1e-3, 0.3])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.95])
def test_a_nucleus_within_a_bound(top_p: float, bound: float) -> None:
    """Logits moved anyhow within the bound: what is certain is always inside, and nothing is that is not possible."""
    generator = torch.Generator().manual_seed(11)
    logits = 2 * torch.randn(60, 200, generator=generator)
    sampling = Sampling(0.8, top_p)
    certain, possible = nucleus_within(logits, sampling, torch.full((60, 1), bound))
    assert not (certain & ~possible).any()
    exact = log_probabilities(logits, sampling).isfinite()
    seen_in, seen_out = exact.clone(), ~exact
    for _ in range(30):
        move = (torch.rand(logits.shape, generator=generator) - 0.5) * bound * 0.8
        inside = log_probabilities(logits + move, sampling).isfinite()
        seen_in, seen_out = seen_in | inside, seen_out | ~inside
    assert not (seen_in & ~possible).any() and not (seen_out & certain).any()
    if bound == 1e-6:
        # Hardly any token is in doubt: those alone before which the mass is top_p to within what sums round.
        assert (possible & ~certain).float().mean() < 0.002


def test_two_ranks_that_may_swap_at_the_edge_are_both_possible() -> None:
    """log p of the second and the third are 5e-7 apart, and the nucleus has room for one of them."""
    log_p = torch.tensor([0.5, 0.2, 0.2 * (1 - 5e-7), 0.1]).log()
    sampling = Sampling(1.0, 0.6)
    certain, possible = nucleus_within(log_p, sampling, torch.tensor([2e-6]))
    assert certain.tolist() == [True, False, False, False] and possible.tolist() == [True, True, True, False]
    certain, possible = nucleus_within(log_p, sampling, torch.tensor([1e-8]))
    assert certain.tolist() == possible.tolist() == [True, True, False, False]


BIASED, BIASED_LIMIT = Sampling(1.0, 0.9, seed=7), 120


@cache
def sampled() -> tuple[Prefilled, list[list[int]]]:
    """Four prompts, and AR's texts of them."""
    start = prefill(lively_model(), prompts(5, 9, 7, 14), BIASED)
    return start, ar_texts(lively_model(), start, BIASED, BIASED_LIMIT + 4)


@pytest.mark.parametrize("fault", ["temperature", "top_p", "seed", "position", "row"])
def test_a_sampler_that_is_a_hundredth_off_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification samples a little otherwise than AR does: in 480 tokens somebody is chosen who must not be."""

    def biased(logits: Tensor, sampling: Sampling, rows: Tensor, positions: Tensor) -> Tensor:
        if fault == "temperature":
            sampling = replace(sampling, temperature=sampling.temperature * 1.01)
        elif fault == "top_p":
            sampling = replace(sampling, top_p=sampling.top_p * 0.99)
        elif fault == "seed":
            sampling = replace(sampling, seed=0)
        return choose(logits, sampling, rows * (fault != "row"), positions * (fault != "position"))

    model, (start, texts) = lively_model(), sampled()
    drafter = oracle(model, texts, 0.9)
    monkeypatch.setattr(acceptance, "choose", biased)
    method = decoding(model, start, drafter, chain(4), ("tree", "factors"), BIASED_LIMIT, BIASED)
    finish(method)
    wanted = [text[:BIASED_LIMIT] for text in texts]
    result = check_texts(model, start, method.emitted, wanted, BIASED, StopRule(BIASED_LIMIT))
    assert result.lossless is Lossless.FAILED
