"""Training a target: it leaves a checkpoint that everything else takes as it is, and an interrupt loses nothing."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specla.bench.settings import ModelSettings
from specla.bench.subject import load_target
from specla.errors import SpeclaError
from specla.interrupt import remembered
from specla.models.config import GatedDeltaNetConfig
from specla.models.tokenizer import read_tokenizer
from specla.train.drafter import start_training
from specla.train.drafter_data import DrafterOptions
from specla.train.target import TargetOptions, TargetTraining
from tests.disk import full
from tests.models.cases import tiny_config
from tests.train.corpora import VOCABULARY, write_corpus

CONFIG = tiny_config(vocab_size=VOCABULARY, initializer_range=0.02, bos_token_id=0, eos_token_id=(0,))


@pytest.fixture
def options(tmp_path: Path) -> TargetOptions:
    return TargetOptions(
        write_corpus(tmp_path / "corpus"), tmp_path / "out", 4, batch_size=2, sequence_length=32, save_every=100
    )


def test_the_folder_that_is_left_is_taken_as_it_is(options: TargetOptions, tmp_path: Path) -> None:
    training = TargetTraining(CONFIG, options)
    result = training.run()
    assert result.finished and set(result.bits_per_byte) == {"code", "prose", "all"}
    folder = training.model_folder
    assert sorted(path.name for path in folder.parent.iterdir()) == ["checkpoint.pt", "log.jsonl", "model"]
    settings = ModelSettings(path=str(folder))
    loaded = load_target(settings, torch.float32, "cpu", 0)
    assert loaded.model.config == CONFIG and loaded.notes == ()
    text = "The quick brown fox"
    wanted = read_tokenizer(options.corpus / "tokenizer.json", VOCABULARY).encode(text).ids
    assert loaded.tokenizer.encode(text) == wanted and loaded.tokenizer.decode(wanted) == text
    further = DrafterOptions(
        options.corpus, tmp_path / "drafter", 1, batch_size=2, sequence_length=40, depth=2, own_texts=2, own_prompt=10,
        heldout_texts=20,
    )  # fmt: skip
    drafter = start_training(settings, further)
    assert drafter.notes == [] and drafter.digest == loaded.digest


def test_a_disk_that_is_full_at_the_end_loses_no_step(options: TargetOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specla.train.target.save_model", full)
    with pytest.raises(OSError, match="No space") as raised:
        TargetTraining(CONFIG, options).run()
    assert raised.value.filename == str(options.out / "model")
    assert sorted(path.name for path in options.out.iterdir()) == ["checkpoint.pt", "log.jsonl"]
    monkeypatch.undo()
    again = TargetTraining(CONFIG, options)
    assert again.step == options.steps and again.run().finished and again.model_folder.is_dir()


def test_a_corpus_without_its_tokenizer_is_refused_before_training(options: TargetOptions) -> None:
    (options.corpus / "tokenizer.json").unlink()
    with pytest.raises(SpeclaError, match=r"corpus: no tokenizer.json"):
        TargetTraining(CONFIG, options)
    assert not options.out.exists()


def test_stored_truncation_does_not_reach_held_out_text(options: TargetOptions) -> None:
    """Training and evaluation read tokens; what a tokenizer's file says besides changes neither."""
    wanted = TargetTraining(CONFIG, options).run()
    tokenizer = read_tokenizer(options.corpus / "tokenizer.json", VOCABULARY)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=48)
    tokenizer.save(str(options.corpus / "tokenizer.json"))
    assert TargetTraining(CONFIG, replace(options, out=options.out.with_name("again"))).run() == wanted


def weights(training: TargetTraining) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in training.model.parameters()])


def test_an_interrupt_waits_for_the_step_and_saves_it(options: TargetOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TargetTraining(CONFIG, replace(options, out=options.out.with_name("whole")))
    whole.run()
    run, plain = TargetTraining(CONFIG, options), TargetTraining.step_loss

    def interrupted(self: TargetTraining) -> torch.Tensor:
        if self.step == 2:
            signal.raise_signal(signal.SIGINT)
        return plain(self)

    monkeypatch.setattr(TargetTraining, "step_loss", interrupted)
    with pytest.raises(KeyboardInterrupt), remembered():
        run.run()
    assert run.step == run.saved == 3
    monkeypatch.undo()
    again = TargetTraining(CONFIG, options)
    assert again.step == 3
    again.run()
    assert torch.equal(weights(again), weights(whole))


def test_an_interrupt_that_breaks_a_step_leaves_the_checkpoint_before_it(
    options: TargetOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TargetTraining(CONFIG, options)
    run.train_step()
    run.save()

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run.optimizer, "step", broken)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert run.saved == 1 and TargetTraining(CONFIG, options).step == 1


def test_damaged_checkpoints_and_logs_of_a_run(options: TargetOptions) -> None:
    TargetTraining(CONFIG, options).run(log_every=1)
    path = options.out / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    for change, told in (
        ({"step": 10**6}, "at step 1000000 of 4"),
        ({"model": {}}, "is missing"),
        ({"identity": {}}, "was written with another model, data_tokens, steps"),
    ):
        torch.save({**content, **change}, path)
        with pytest.raises(SpeclaError, match=told):
            TargetTraining(CONFIG, options)
    del content["identity"]
    torch.save(content, path)
    with pytest.raises(SpeclaError, match="does not say which run it is of"):
        TargetTraining(CONFIG, options)
    with pytest.raises(SpeclaError, match="was written with another model"):
        TargetTraining(CONFIG, replace_checkpoint(options, path))
    (options.out / "log.jsonl").write_text("{\n" + json.dumps({"step": 1}) + "\n")
    path.unlink()
    TargetTraining(CONFIG, options)


def replace_checkpoint(options: TargetOptions, path: Path) -> TargetOptions:
    """A run whose folder has the checkpoint of a model of another shape."""
    other = replace(options, out=path.parent.with_name("wider"))
    wider: GatedDeltaNetConfig = replace(CONFIG, intermediate_size=64)
    TargetTraining(wider, other).save()
    return other


def test_finished_runs_write_the_model_again(options: TargetOptions) -> None:
    """A kill while the model was written: the same command writes it, whole."""
    first = TargetTraining(CONFIG, options)
    first.run()
    shutil.rmtree(first.model_folder)
    (options.out / ".model.partial").mkdir()
    second = TargetTraining(CONFIG, options)
    assert second.step == 4 and second.run().finished
    assert load_target(ModelSettings(path=str(second.model_folder)), torch.float32, "cpu", 0).model.config == CONFIG
    assert not (options.out / ".model.partial").exists()
