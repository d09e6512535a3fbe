"""Training a drafter: rollouts against the drafter run for real, kill and resume, learning, and every refusal."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from specla.errors import SpeclaError
from specla.models.checkpoint import random_model
from specla.models.drafter import AlignedNet
from specla.models.drafter_checkpoint import load_drafter
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.train.drafter import DrafterTraining
from specla.train.drafter_data import DrafterOptions
from specla.train.options import drafter_options
from specla.train.rollout import rollout
from tests.drafters.networks import raw_net
from tests.models.cases import tiny_config, tiny_model

DIGEST = "ab" * 32


@pytest.fixture(scope="module")
def target() -> GatedDeltaNetLM:
    return random_model(tiny_config(vocab_size=61, initializer_range=0.1), torch.float32)


def write_corpus(folder: Path, heldout: int = 600, vocabulary: int = 61) -> Path:
    """Token files as `specla train corpus` writes them, of made-up tokens."""
    folder.mkdir()
    random = np.random.default_rng(0)
    np.save(folder / "train.npy", random.integers(0, vocabulary, 4000).astype(np.uint16))
    np.save(folder / "heldout.npy", random.integers(0, vocabulary, heldout).astype(np.uint16))
    half = heldout // 2
    entry = {"source": "made up", "name": "", "tokens": half, "bytes": half, "again": None}
    documents = [{**entry, "category": "code", "start": 0}, {**entry, "category": "prose", "start": half}]
    (folder / "heldout.json").write_text(json.dumps({"documents": documents}))
    return folder


@pytest.fixture
def options(tmp_path: Path) -> DrafterOptions:
    return DrafterOptions(
        corpus=write_corpus(tmp_path / "corpus"),
        out=tmp_path / "out",
        steps=6,
        batch_size=4,
        sequence_length=40,
        depth=3,
        own_texts=8,
        own_prompt=10,
        heldout_texts=20,
        warmup_steps=2,
        save_every=2,
        evaluate_every=4,
    )


def test_a_rollout_is_the_drafter_run_for_real() -> None:
    """More tokens than a chunk, and every step from every start against the whole text run again."""
    net, depth = raw_net(tiny_model()), 5
    random = torch.Generator().manual_seed(0)
    hidden, embedded = torch.randn(2, 2, 80, 32, generator=random)
    steps = rollout(net, hidden, embedded, depth)
    assert len(steps) == depth and steps[0].shape == (2, 75, 32)
    for start in (0, 1, 2, 63, 64, 74):
        seen = hidden[:, : start + 1]
        for step, found in enumerate(steps):
            entered = net.enter(seen, embedded[:, 1 : start + 2 + step])
            mixed, _ = net.block.attn.sequence(net.block.attn_norm(entered))
            wanted = net.leave(entered + mixed)[:, -1]
            torch.testing.assert_close(found[:, start], wanted, rtol=1e-3, atol=1e-4)
            seen = torch.cat((seen, wanted[:, None]), dim=1)
    steps[-1].sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_it_learns_its_target(target: GatedDeltaNetLM, options: DrafterOptions) -> None:
    longer = replace(options, steps=60, learning_rate=1e-2, evaluate_every=1000)
    training = DrafterTraining(target, DIGEST, longer)
    before = training.evaluate()["all"]
    result = training.run()
    lines = [json.loads(line) for line in (options.out / "log.jsonl").read_text().splitlines()]
    assert result.finished and set(result.acceptances) == {"code", "prose", "all"}
    assert result.acceptances["all"].alpha[0] > before.alpha[0] + 0.05
    assert lines[-1]["alpha_by_category"]["all"] == result.acceptances["all"].rounded()
    found = result.acceptances["all"]
    for reached, within, ranked in zip(found.reached, found.within, found.ranked, strict=True):
        assert 0 < reached <= within and sum(ranked) <= within


class KilledError(Exception):
    """Stands for a kill."""


def weights(net: AlignedNet) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_killed_run_goes_on_without_loss(target: GatedDeltaNetLM, options: DrafterOptions, at: int) -> None:
    whole = DrafterTraining(target, DIGEST, replace(options, out=options.out.with_name("whole")))
    whole.run(log_every=1)

    run = DrafterTraining(target, DIGEST, options)

    def kill(fields: dict[str, object]) -> None:
        if run.step == at:
            raise KilledError

    with pytest.raises(KilledError):
        run.run(kill, log_every=1)
    # A kill in the middle of a write leaves a part beside the whole file.
    (options.out / "checkpoint.partial").write_bytes(b"half")
    again = DrafterTraining(target, DIGEST, options)
    # What is logged is saved: a step past the last checkpoint runs again.
    assert again.step == (at - 1) // 2 * 2
    again.run(log_every=1)
    assert torch.equal(weights(again.net), weights(whole.net))
    logs = [(run.options.out / "log.jsonl").read_text().splitlines() for run in (whole, again)]
    figures = [[{k: v for k, v in json.loads(line).items() if k != "tok_s"} for line in lines] for lines in logs]
    assert figures[0] == figures[1]


def test_a_time_limit_leaves_a_drafter_that_can_go_on(target: GatedDeltaNetLM, options: DrafterOptions) -> None:
    result = DrafterTraining(target, DIGEST, replace(options, minutes=0.0)).run()
    assert (result.step, result.finished) == (0, False)
    trained = load_drafter(options.out / "drafter", DIGEST, 61, torch.float32)
    assert trained.draft_vocabulary == 61 and sorted(trained.order.tolist()) == list(range(61))
    further = DrafterTraining(target, DIGEST, replace(options, start=options.out / "drafter", out=options.out / "more"))
    torch.testing.assert_close(weights(further.net), weights(trained.net))


def test_a_start_with_another_draft_vocabulary_is_told(target: GatedDeltaNetLM, options: DrafterOptions) -> None:
    DrafterTraining(target, DIGEST, replace(options, minutes=0.0, draft_vocabulary=40)).run()
    start = options.out / "drafter"
    further = replace(options, start=start, out=options.out.with_name("further"))
    told = f"start={start}: drafts from 40 tokens, what is trained here from 61; give draft_vocabulary=40 to keep it"
    assert DrafterTraining(target, DIGEST, further).notes == [told]
    assert DrafterTraining(target, DIGEST, replace(further, draft_vocabulary=40)).notes == []


def test_what_does_not_fit_is_refused_before_the_target_writes(
    target: GatedDeltaNetLM, options: DrafterOptions
) -> None:
    with pytest.raises(SpeclaError, match="draft_vocabulary=62: the target has 61 tokens"):
        DrafterTraining(target, DIGEST, replace(options, draft_vocabulary=62))
    with pytest.raises(SpeclaError, match=r"nowhere: no config.json there"):
        DrafterTraining(target, DIGEST, replace(options, start=options.out / "nowhere"))
    assert not options.out.exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"own": None}, "it does not hold texts of 40 tokens"),
        ({"own": torch.zeros(8, 39, dtype=torch.int32)}, "it does not hold texts of 40 tokens"),
        ({"own": torch.zeros(8, 40)}, "it does not hold texts of 40 tokens"),
        ({"own": torch.full((8, 40), 61, dtype=torch.int32)}, "it has tokens beyond the target's 61"),
        ({"heldout": {}}, "its held-out texts are not those of the corpus"),
        ({"order": torch.zeros(61, dtype=torch.int64)}, "its order of tokens is not every one of the 61 once"),
    ],
)
def test_texts_that_no_run_wrote(
    change: dict[str, object], told: str, target: GatedDeltaNetLM, options: DrafterOptions
) -> None:
    DrafterTraining(target, DIGEST, options)
    path = options.out / "texts.pt"
    torch.save({**torch.load(path, weights_only=True), **change}, path)
    with pytest.raises(SpeclaError, match=f"texts.pt: .*{told}"):
        DrafterTraining(target, DIGEST, options)


def test_a_checkpoint_beyond_the_last_step(target: GatedDeltaNetLM, options: DrafterOptions) -> None:
    DrafterTraining(target, DIGEST, options).save()
    path = options.out / "checkpoint.pt"
    torch.save({**torch.load(path, weights_only=True), "step": 10**6}, path)
    with pytest.raises(SpeclaError, match=r"checkpoint.pt: the checkpoint is damaged \(at step 1000000 of 6\)"):
        DrafterTraining(target, DIGEST, options)


def test_another_run_in_the_same_folder_is_refused(target: GatedDeltaNetLM, options: DrafterOptions) -> None:
    DrafterTraining(target, DIGEST, options).save()
    with pytest.raises(SpeclaError, match=r"checkpoint.pt: was written with another learning_rate"):
        DrafterTraining(target, DIGEST, replace(options, learning_rate=1.0))
    with pytest.raises(SpeclaError, match=r"texts.pt: was written with another target"):
        DrafterTraining(target, "cd" * 32, options)


def test_bad_corpora_are_refused(target: GatedDeltaNetLM, options: DrafterOptions, tmp_path: Path) -> None:
    small = replace(options, corpus=write_corpus(tmp_path / "small", heldout=24))
    with pytest.raises(SpeclaError, match=r"its held-out text gives 54 drafts to judge acceptance by; at least 256"):
        DrafterTraining(target, DIGEST, small)
    with pytest.raises(SpeclaError, match=r"no train.npy there; make it with `specla train corpus`"):
        DrafterTraining(target, DIGEST, replace(options, corpus=tmp_path / "nothing"))
    foreign = replace(options, corpus=write_corpus(tmp_path / "foreign", vocabulary=200))
    with pytest.raises(SpeclaError, match=r"does not fit the model's vocabulary of 61"):
        DrafterTraining(target, DIGEST, foreign)
    (options.corpus / "heldout.json").unlink()
    with pytest.raises(SpeclaError, match=r"no held-out text there"):
        DrafterTraining(target, DIGEST, options)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("stepz=3", "no key 'stepz'; did you mean 'steps'?"),
        ("steps=0", "steps=0: give 1 or more"),
        ("steps=99999999999999999999", "steps=99999999999999999999: give at most 2147483647"),
        ("seed=99999999999999999999", "seed=99999999999999999999: give at most 9007199254740992"),
        ("own_share=2", "own_share=2.0: give a share from 0 to 1"),
        ("own_texts=0", "own_texts=0: give 1 or more, or own_share=0"),
        ("sequence_length=100", "sequence_length=100: own_prompt and depth need 199 or more"),
        ("draft_vocabulary=0", "draft_vocabulary=0: give 1 or more, or null for all"),
        ("device=abacus", "device=abacus: give auto, cpu, or cuda where there is a GPU"),
        ("start=/nowhere/at/all", "start=/nowhere/at/all: no such folder"),
    ],
)
def test_bad_words_are_refused(words: str, message: str) -> None:
    with pytest.raises(SpeclaError) as caught:
        drafter_options(words.split())
    assert str(caught.value) == message
