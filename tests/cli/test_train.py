"""`specla train`: a target that `bench` and `generate` take as it is, and what an interrupt says."""

import re
import signal
import sys
from pathlib import Path

import pytest
import torch

from specla.train.target import TargetTraining
from tests.cli.conftest import Run
from tests.train.corpora import write_corpus

TRAIN = (
    "specla train target model=gdn-tiny model.vocab_size=300 corpus=corpus out=out steps=4 batch_size=2 "
    "sequence_length=32 warmup_steps=2 device=cpu"
)


def test_what_is_trained_is_benched_and_drafted_for(run: Run, tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    code, out, err = run(TRAIN)
    assert code == 0, err
    assert out.startswith("out: finished, bench it with model.path=out/model. ")
    words = "model.path=out/model drafter=ngram topology.length=2 workload.max_new_tokens=4"
    code, out, err = run(f"specla generate 'The quick brown' {words}")
    assert code == 0 and "tokens" in err, err
    code, out, err = run(f"specla bench e2e {words} workload.prompts=1 measure=quick measure.repeats=1")
    # Windows of a few tokens say nothing about speed, but everything about exactness.
    assert code in (0, 3), err
    assert "exact" in out
    drafter = "specla train drafter model.path=out/model corpus=corpus out=drafter steps=1 batch_size=2 device=cpu"
    code, out, err = run(f"{drafter} sequence_length=40 depth=2 own_texts=2 own_prompt=10 heldout_texts=20")
    assert code == 0 and out.startswith("drafter: finished"), err
    foreign = drafter.replace("model.path=out/model", "model=gdn-mini").replace("out=drafter", "out=other")
    code, out, err = run(f"{foreign} sequence_length=40 depth=2 own_texts=2 own_prompt=10 heldout_texts=20")
    assert (code, out) == (2, "") and "corpus=corpus: its tokens are not those of " in err and err.count("\n") == 1
    words = words.replace("drafter=ngram", "drafter=aligned drafter.path=drafter/drafter")
    code, out, err = run(f"specla generate 'The quick' {words}")
    assert code == 0, err


def test_an_interrupt_says_what_is_saved_and_names_no_option_that_is_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "corpus")
    plain = TargetTraining.step_loss

    def interrupted(self: TargetTraining) -> torch.Tensor:
        if self.step == 2:
            signal.raise_signal(signal.SIGINT)
        return plain(self)

    monkeypatch.setattr(TargetTraining, "step_loss", interrupted)
    code, _, err = run(TRAIN)
    monkeypatch.setattr(TargetTraining, "step_loss", plain)
    assert code == 130
    saved, ended = err.splitlines()[-2:]
    assert saved == "out: step 3 of 4 is saved; the same command goes on from it"
    assert ended == "specla: interrupted; what was finished is kept: the same command goes on"
    code, out, err = run(TRAIN)
    assert code == 0 and "out: going on from step 3 of 4" in err and "finished" in out


def test_no_resume_is_named_where_it_was_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for option, told in (("", "the same command goes on"), ("--no-resume", "the same command without --no-resume")):
        monkeypatch.setattr(sys.modules["specla.bench.plan"], "plan", interrupted)
        code, _, err = run(f"specla bench e2e {option}")
        assert code == 130 and told in err


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("checkpoint.pt", b"half", "checkpoint.pt: the checkpoint is damaged"),
        ("log.jsonl", b"{\n", "log.jsonl:1: not valid JSON"),
    ],
)
def test_what_a_run_cannot_go_on_from(name: str, content: bytes, told: str, run: Run, tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    assert run(TRAIN)[0] == 0
    (tmp_path / "out" / name).write_bytes(content)
    code, out, err = run(TRAIN)
    assert code == 2 and out == ""
    assert re.fullmatch(r"specla: [^\n]+\n", err) and told in err
