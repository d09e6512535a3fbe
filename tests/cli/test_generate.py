"""`specla generate`: what it says at the end, of models that say nothing, and what a terminal gets of the text."""

import json
import re
from types import SimpleNamespace

import pytest
import torch

from specla.bench.generate import stream
from specla.bench.plan import plan
from specla.bench.subject import random_model
from specla.engine.decode import Decoding, Step, StopRule
from specla.errors import SpeclaError
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.tokenizer import ByteTokenizer
from tests.cli.conftest import Run

TINY = "model=gdn-tiny model.weights=random threads=1 drafter=ngram topology.length=2"
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes."


def scaled(monkeypatch: pytest.MonkeyPatch, name: str, by: float) -> None:
    """Multiply the weights of the random model that have `name` in theirs."""

    def made(*given: object) -> GatedDeltaNetLM:
        model = random_model(*given)  # type: ignore[arg-type]
        for key, parameter in model.named_parameters():
            if name in key:
                parameter.data *= by
        return model

    monkeypatch.setattr("specla.bench.subject.random_model", made)


@pytest.mark.parametrize("words", ["", "sampling.temperature=1"])
def test_a_model_that_says_nothing_is_told(words: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of zeros make every logit the same; a measurement says so too."""
    scaled(monkeypatch, "model.norm", 0.0)
    told = "model=gdn-tiny: all logits after a prompt are equal: its weights are zero or too large, and its text means"
    code, _, err = run(f"specla generate hi {TINY} workload.max_new_tokens=3 {words}")
    assert code == 0 and err.count(told) == 1
    measured = f"{TINY} {words} measure=quick workload.prompts=1 workload.max_new_tokens=2"
    assert run(f"specla bench e2e {measured}")[2].count(told) == 1
    monkeypatch.undo()
    assert "logits" not in run(f"specla generate hi {TINY} workload.max_new_tokens=3 {words}")[2]


def test_a_model_whose_logits_overflow_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scaled(monkeypatch, "model.norm", 3e38)
    code, out, err = run(f"specla generate hi {TINY}")
    assert (code, out) == (2, "") and err.startswith("specla: model=gdn-tiny: the model's logits are not finite after")


def test_a_state_that_overflows_on_the_way_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(decoding: Decoding) -> Step:
        decoding.state.recurrent[0, 0, 0, 0, 0] = torch.inf
        return taken(decoding)

    taken = Decoding.step
    monkeypatch.setattr(Decoding, "step", step)
    code, _, err = run(f"specla generate hi {TINY} workload.max_new_tokens=4")
    assert code == 0 and "model=gdn-tiny: its state is not finite any more, and the text means nothing" in err


def test_the_end_says_how_many_tokens_and_why_it_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(f"specla generate hi {TINY} workload.max_new_tokens=1 --json")
    assert code == 0 and err == "1 token (auto, ngram, chain-l2)\n"
    assert json.loads(out.splitlines()[-1])["end_of_text"] is False
    assert run(f"specla generate hi {TINY} workload.max_new_tokens=2")[2].startswith("2 tokens, ")
    # Of equal logits the first token is chosen, and that one ends a text.
    scaled(monkeypatch, "model.norm", 0.0)
    monkeypatch.setattr("specla.bench.subject.StopRule", lambda most, ends: StopRule(most, frozenset({0})))
    code, out, err = run(f"specla generate hi {TINY} workload.max_new_tokens=9 --json")
    assert code == 0 and err.splitlines()[-1] == "1 token, ended by end of text (auto, ngram, chain-l2)"
    assert json.loads(out.splitlines()[-1])["end_of_text"] is True


def test_no_control_character_of_a_text_reaches_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByteTokenizer, "decode", lambda self, ids: "a\n\tb\x1b]0;title\x07\x1b[2Jü"[: 4 * len(ids)])
    code, out, _ = run(f"specla generate hi {TINY} workload.max_new_tokens=6 --json")
    text, _, document = out.rstrip("\n").rpartition("\n")
    assert code == 0 and text == "a\n\tb\\u{1b}]0;title\\u{7}\\u{1b}[2Jü"
    assert "\x1b" not in document and json.loads(document)["text"] == "a\n\tb\x1b]0;title\x07\x1b[2Jü"


def test_one_text_is_one_row(run: Run) -> None:
    told = "specla: workload.batch=4: generate goes on from one text; leave it out\n"
    assert run(f"specla generate hi {TINY} workload.batch=4") == (2, "", told)


def test_what_the_memory_does_not_hold_is_told_with_what_it_would(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RuntimeError(NO_MEMORY)

    told = "specla: generate: out of memory (4.0 GiB more were asked for): "
    monkeypatch.setattr(Decoding, "step", full)
    code, _, err = run(f"specla generate hi {TINY.replace('=2', '=6')}")
    assert (code, err) == (4, f"{told}topology=chain topology.length=2 would fit\n")
    monkeypatch.setattr("specla.bench.generate.load_target", full)
    code, _, err = run(f"specla generate hi {TINY}")
    assert (code, err) == (4, f"{told}use shorter prompts (workload.prompt_tokens), a smaller tree or model\n")


def test_what_the_memory_will_not_hold_is_not_loaded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specla.bench.generate.load_target", None)
    monkeypatch.setattr("specla.bench.generate.clock_for", lambda device: SimpleNamespace(free_bytes=0))
    code, out, err = run(f"specla generate hi {TINY}")
    assert (code, out) == (4, "") and err.startswith("specla: generate: does not fit: takes about 0.")


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("drafter=ngram", "generate: drafter=ngram stands where the text to continue does; give the text first"),
        ("workload.max_new_tokens=4", "stands where the text to continue does"),
        ("a\udcffb", "generate: the prompt is not UTF-8; give text in UTF-8"),
    ],
)
def test_what_is_no_text_to_continue_is_refused(prompt: str, told: str) -> None:
    with pytest.raises(SpeclaError, match=re.escape(told)):
        next(stream(plan("generate", ["model=gdn-tiny", "drafter=ngram"]), prompt))


def test_a_folder_is_the_model_whatever_lends_its_name(run: Run) -> None:
    """A preset of random weights went on before, with no word of the folder."""
    code, _, err = run("specla generate text model=gdn-tiny model.path=/nowhere drafter=ngram")
    assert code == 2 and err == "specla: model.path=/nowhere: no such folder\n"
    code, _, err = run("specla generate text model=gdn-tiny model.path=/nowhere model.weights=random drafter=ngram")
    assert code == 0
