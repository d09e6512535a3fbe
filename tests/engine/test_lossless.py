"""Every pair of verification and recovery emits AR's text, token for token: the claim that all else stands on."""

from functools import cache

import pytest

from specla.bench.gate import check_texts
from specla.bench.record import Lossless
from specla.bench.settings import WorkloadSettings
from specla.bench.workloads.base import load_prompts
from specla.drafters.base import Drafter, NoDrafter
from specla.drafters.ngram import NgramDrafter
from specla.engine.decode import Prefilled, StopRule, prefill, trace_rows
from specla.models.checkpoint import load_model, resolve_folder
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.tokenizer import TextTokenizer
from specla.ops.sampling import Sampling
from specla.topology import DraftTree, chain, kary
from tests.engine.texts import (
    GREEDY,
    PAIRS,
    SAMPLED,
    SPECULATIVE,
    SPINE,
    ar_texts,
    decoding,
    finish,
    full_recompute,
    lively_model,
    oracle,
)
from tests.models.cases import prompts

BY_RANK = [[0.7, 0.2]]
TREE = kary(2, 8)
DEEPEST = 8
"""Of all trees below: how far an oracle's texts must go on past the limit."""
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])


def pairs_named(pairs: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pair", pairs, ids=["-".join(pair) for pair in pairs])


@cache
def small(sampling: Sampling, vocabulary: int = 97) -> tuple[Prefilled, list[list[int]], int]:
    """Four prompts, one of them a single token; AR's texts; the limit."""
    model, limit = lively_model(vocab_size=vocabulary), 32
    start = prefill(model, prompts(5, 9, 1, 14, vocabulary=vocabulary), sampling)
    return start, ar_texts(model, start, sampling, limit + DEEPEST), limit


@cache
def mini() -> GatedDeltaNetLM:
    """The bundled model."""
    import torch

    return load_model(resolve_folder("asset:gdn-mini"), torch.float32)


@cache
def bundled(sampling: Sampling, count: int, limit: int, shortest: int | None) -> tuple[Prefilled, list[list[int]], int]:
    """Held-out prompts of all kinds as one batch, cut to lengths of their own where `shortest` is given."""
    folder = resolve_folder("asset:gdn-mini")
    tokenizer = TextTokenizer(folder, mini().config)
    texts = load_prompts(WorkloadSettings(name="heldout", batch=count, prompts=count))
    ids = [tokenizer.encode(prompt.text) for prompt in texts]
    if shortest is not None:
        ids = [tokens[-shortest - 7 * i :] for i, tokens in enumerate(ids)]
    start = prefill(mini(), ids, sampling)
    return start, ar_texts(mini(), start, sampling, limit + DEEPEST), limit


def accepted_by(
    model: GatedDeltaNetLM,
    pair: tuple[str, str],
    sampling: Sampling,
    drafter: Drafter,
    tree: DraftTree,
    case: tuple[Prefilled, list[list[int]], int],
) -> list[int]:
    """Decode, compare every row with AR's text, and return how many drafts each row and step accepted."""
    start, texts, limit = case
    speculative = decoding(model, start, drafter, tree, pair, limit, sampling)
    steps = finish(speculative)
    for row, (found, wanted) in enumerate(zip(speculative.emitted, texts, strict=True)):
        assert found == wanted[:limit], f"row {row}, {tree.name}, {drafter.name}"
    assert not drafter.rows_off_trace()
    return [a for step in steps for a, kept in zip(step.accepted, step.emitted, strict=True) if kept]


def trees(pair: tuple[str, str]) -> list[DraftTree]:
    return [chain(4)] if pair[0] == "chain" else [chain(4), TREE, SPINE]


@SAMPLINGS
def test_ar_needs_no_state(sampling: Sampling) -> None:
    """AR itself against running the whole text again for every token."""
    start, texts, limit = small(sampling)
    for row, prompt in enumerate(start.prompts):
        assert texts[row][:limit] == full_recompute(lively_model(), prompt, sampling, row, limit)


def test_sampling_is_not_ignored() -> None:
    """Greedy, sampled and sampled with another seed are three texts; so are two rows of one prompt."""
    model, ids = lively_model(), prompts(6) * 2
    texts = []
    for sampling in (GREEDY, SAMPLED, Sampling(0.8, 0.95, seed=2)):
        start = prefill(model, ids, sampling)
        texts += ar_texts(model, start, sampling, 24)
    assert texts[0] == texts[1]
    assert len({tuple(text) for text in texts}) == 5


@SAMPLINGS
@pairs_named(PAIRS)
def test_small_model(pair: tuple[str, str], sampling: Sampling) -> None:
    model, case = lively_model(), small(sampling)
    if pair[0] == "ar":
        accepted_by(model, pair, sampling, NoDrafter(), chain(0), case)
        return
    for tree in trees(pair):
        alpha = [[0.2, 0.7]] if tree is SPINE else BY_RANK
        accepted = accepted_by(model, pair, sampling, oracle(model, case[1], alpha), tree, case)
        assert min(accepted) == 0 and max(accepted) >= 3


@SAMPLINGS
@pairs_named(SPECULATIVE)
def test_small_model_with_prompt_lookup(pair: tuple[str, str], sampling: Sampling) -> None:
    """Trees that differ from step to step; of eight tokens, some that follow are soon guessed right."""
    for tree in trees(pair)[:2]:
        drafter = NgramDrafter(1, 3)
        accepted = accepted_by(lively_model(vocab_size=8), pair, sampling, drafter, tree, small(sampling, 8))
        assert min(accepted) == 0 and sum(accepted) > 10


@pytest.mark.slow
@SAMPLINGS
@pairs_named(PAIRS)
def test_bundled_model(pair: tuple[str, str], sampling: Sampling) -> None:
    case = bundled(sampling, 4, 32, 32)
    if pair[0] == "ar":
        accepted_by(mini(), pair, sampling, NoDrafter(), chain(0), case)
        return
    tree = chain(4) if pair[0] == "chain" else TREE
    accepted = accepted_by(mini(), pair, sampling, oracle(mini(), case[1], BY_RANK), tree, case)
    assert min(accepted) == 0 and max(accepted) >= 3


@pytest.mark.slow
@SAMPLINGS
@pairs_named([("chain", "snapshot"), ("tree", "factors_deferred"), ("hybrid", "factors_lazy")])
def test_bundled_model_with_prompt_lookup(pair: tuple[str, str], sampling: Sampling) -> None:
    """A node stays where any row has a candidate; the others hold fillers there."""
    case = bundled(sampling, 4, 32, 32)
    accepted = accepted_by(mini(), pair, sampling, NgramDrafter(1, 4), trees(pair)[:2][-1], case)
    assert sum(accepted) > 10


@pytest.mark.exhaustive
@SAMPLINGS
@pairs_named(SPECULATIVE)
def test_bundled_model_in_full(pair: tuple[str, str], sampling: Sampling) -> None:
    """Twenty whole prompts as one batch, 256 tokens each."""
    case = bundled(sampling, 20, 256, None)
    tree = chain(4) if pair[0] == "chain" else TREE
    accepted_by(mini(), pair, sampling, oracle(mini(), case[1], BY_RANK), tree, case)


@pytest.mark.exhaustive
@pairs_named(
    [
        ("ar", "factors_lazy"),
        ("chain", "snapshot"),
        ("tree", "replay_tokens"),
        ("tree", "replay_cached"),
        ("tree", "factors"),
        ("tree", "factors_deferred"),
        ("tree", "factors_lazy"),
    ]
)
def test_a_long_text(pair: tuple[str, str]) -> None:
    """8,192 greedy tokens, every way to recover: no token beyond the rounding bound."""
    start, texts, limit = bundled(GREEDY, 1, 8192, None)
    drafts = pair[0] != "ar"
    drafter = oracle(mini(), texts, BY_RANK) if drafts else NoDrafter()
    tree = (chain(4) if pair[0] == "chain" else TREE) if drafts else chain(0)
    long = decoding(mini(), start, drafter, tree, pair, limit, GREEDY)
    while not long.done:
        long.step()
        trace_rows(long)
    found = check_texts(mini(), start, long.emitted, [texts[0][:limit]], GREEDY, StopRule(limit))
    print(pair, found.lossless.value, found.near_ties, "near ties of", found.positions)
    assert found.lossless is not Lossless.FAILED, found.reason
