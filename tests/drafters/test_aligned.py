"""The aligned drafter: AR's text on every tree, drafts as its equations have them, and a state of true inputs alone."""

from functools import cache

import pytest
import torch
from torch import Tensor

from specla.drafters.aligned import AlignedDrafter, Confidence
from specla.drafters.fixed import draft_tree, tree_plan
from specla.drafters.network import AlignedNetwork, DrafterState
from specla.engine.adaptive import Adaptive
from specla.engine.decode import Decoding, Prefilled, prefill
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops.noise import gumbel_noise
from specla.ops.sampling import Sampling, scores
from specla.topology import DraftTree, chain, kary
from tests.drafters.networks import untrained
from tests.engine.texts import GREEDY, SAMPLED, SPINE, ar_texts, decoding, finish, lively_model
from tests.models.cases import prompts

FEW = 5
"""Tokens of the target: so few that a drafter that knows nothing is often right."""
ENVELOPE = DraftTree((-1, 0, 1, 2, *[0] * 6), "confidence")
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])


@cache
def started(sampling: Sampling, vocabulary: int = FEW) -> tuple[GatedDeltaNetLM, Prefilled]:
    """A target and four prompts of different lengths, one of them a single token."""
    model = lively_model(vocab_size=vocabulary)
    return model, prefill(model, prompts(5, 9, 1, 14, vocabulary=vocabulary), sampling)


def drafter(network: AlignedNetwork, start: Prefilled, confidence: Confidence | None = None) -> AlignedDrafter:
    return AlignedDrafter(network, start.sampling, start.rows, confidence)


@SAMPLINGS
@pytest.mark.parametrize("tree", [chain(1), chain(4), kary(2, 8), SPINE], ids=lambda tree: tree.name)
@pytest.mark.parametrize("vocabulary", [None, 3])
def test_it_emits_ars_text(tree: DraftTree, vocabulary: int | None, sampling: Sampling) -> None:
    model, start = started(sampling)
    run = decoding(model, start, drafter(untrained(model, vocabulary), start), tree, sampling=sampling)
    steps = finish(run)
    assert run.emitted == ar_texts(model, start, sampling, 24)
    assert any(accepted for step in steps for accepted in step.accepted)


@SAMPLINGS
@pytest.mark.parametrize("pair", [("tree", "factors_deferred"), ("parent_pointer", "snapshot")], ids="-".join)
def test_trees_of_their_own_emit_ars_text(pair: tuple[str, str], sampling: Sampling) -> None:
    model, start = started(sampling)
    run = decoding(
        model, start, drafter(untrained(model), start, Confidence(2, 1.5)), ENVELOPE, pair, sampling=sampling
    )
    steps = finish(run)
    assert run.emitted == ar_texts(model, start, sampling, 24)
    assert any(step.trees for step in steps)
    for step in steps:
        for row in range(4):
            tree = step.tree_of(row)
            assert 2 <= tree.nodes <= ENVELOPE.nodes and tree.depth <= ENVELOPE.depth
            assert max(map(len, tree.children)) <= 2


def true_state(run: Decoding, network: AlignedNetwork) -> list[DrafterState]:
    """What each row's drafter state must be: a fresh start over its text's true hidden states."""
    states = []
    for prompt, emitted in zip(run.start.prompts, run.emitted, strict=True):
        text = torch.tensor([[*prompt, *emitted]])
        hidden = network.target(text[:, :-1])
        states.append(network.start(hidden, text[:, 1:], None))
    return states


@torch.inference_mode()
@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("confidence", [None, Confidence(2, None)])
def test_its_state_comes_from_true_hidden_states(confidence: Confidence | None, adaptive: bool) -> None:
    model, start = started(GREEDY)
    network = untrained(model)
    aligned = drafter(network, start, confidence)
    run = decoding(model, start, aligned, kary(2, 8), sampling=GREEDY, limit=1000)
    if adaptive:
        run.adapt(Adaptive(kary(2, 8)))
    # No row ends here: an ended one is not caught up further.
    while len(run.emitted[0]) < 40:
        run.step()
    found = aligned._caught_up()
    for row, wanted in enumerate(true_state(run, network)):
        torch.testing.assert_close(found.recurrent[row], wanted.recurrent[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.window[row], wanted.window[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.predicted[row], wanted.predicted[0], rtol=1e-4, atol=1e-4)


def predicted_after(network: AlignedNetwork, hidden: Tensor, tokens: Tensor, drafts: list[int]) -> Tensor:
    """The prediction at the end of a path of drafts, every step of it run again from the empty state."""
    state = network.start(hidden, tokens, None)
    for token in drafts:
        hidden = torch.cat((hidden, state.predicted[:, None]), dim=1)
        tokens = torch.cat((tokens, torch.tensor([[token]])), dim=1)
        state = network.start(hidden, tokens, None)
    return state.predicted


@torch.inference_mode()
@pytest.mark.parametrize("tree", [chain(6), kary(3, 13), SPINE], ids=lambda tree: tree.name)
def test_drafts_are_those_of_the_whole_text_run_again(tree: DraftTree) -> None:
    model = lively_model(vocab_size=97)
    network = untrained(model)
    text = torch.tensor(prompts(12, vocabulary=97))
    hidden, tokens = model(text[:, :-1]), text[:, 1:]
    state = network.start(hidden, tokens, None)
    before = state.recurrent.clone(), state.window.clone(), state.predicted.clone()
    rows = torch.zeros(1, dtype=torch.int64)
    plan = tree_plan(tree, rows.device, 4)
    drafted = [-1, *draft_tree(network, state, plan, GREEDY, rows, rows + 11)[0].tolist()]
    for was, now in zip(before, (state.recurrent, state.window, state.predicted), strict=True):
        assert torch.equal(was, now)
    for node, children in enumerate(tree.children):
        if children:
            path = [drafted[i] for i in tree.path(node)[1:]]
            best = model.logits(predicted_after(network, hidden, tokens, path))[0].topk(len(children)).indices
            assert [drafted[child] for child in children] == best.tolist()


def test_scores_share_the_targets_noise() -> None:
    model = lively_model(vocab_size=97)
    hidden = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(0))
    rows, positions = torch.tensor([[3, 3, 3], [8, 8, 8]]), torch.tensor([[5, 6, 7], [9, 9, 9]])
    for sampling in (Sampling(0.8, 1.0, 4), Sampling(0.8, 0.9, 4)):
        wanted = scores(model.logits(hidden), sampling, rows, positions)
        found = untrained(model).scores(hidden, sampling, rows, positions)
        torch.testing.assert_close(found, wanted)
    few = untrained(model, 20)
    assert few.ids is not None and len(few.ids) == 20
    noise = gumbel_noise(4, rows, positions, 97)[..., few.ids]
    logits = model.logits(hidden)[..., few.ids]
    found = few.scores(hidden, Sampling(1.0, 1.0, 4), rows, positions)
    torch.testing.assert_close(found, logits.log_softmax(-1) + noise, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_drafter_that_agrees_is_always_right_when_sampling_too() -> None:
    """Its head reads the target's own hidden state here: the first draft is then the target's choice, noise and all."""
    model, start = started(SAMPLED, 97)
    network = untrained(model)
    text = torch.tensor([[*start.prompts[1], start.roots[1]]])
    state = network.start(model(text[:, :-1]), text[:, 1:], None)
    state.predicted = model(text)[:, -1]
    rows, lengths = start.rows[1:2], torch.tensor([len(start.prompts[1])])
    drafted = draft_tree(network, state, tree_plan(chain(1), rows.device, 4), SAMPLED, rows, lengths)
    assert drafted.tolist() == [[ar_texts(model, start, SAMPLED, 2)[1][1]]]


def test_it_says_what_it_lacks() -> None:
    model, start = started(GREEDY)
    aligned = drafter(untrained(model), start)
    aligned.begin(start.prompts, start.roots)
    assert aligned.draft(chain(0)).tokens == [[root] for root in start.roots]
    with pytest.raises(RuntimeError, match="hidden states"):
        aligned.draft(chain(2))
