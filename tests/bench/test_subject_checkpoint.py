"""What a cell decodes: the whole prompt's tokens, ended by any of the model's ends; what decides it tells it apart."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as LibraryTokenizer

from specla.bench.plan import plan
from specla.bench.settings import ModelSettings
from specla.bench.subject import Subject, load_target
from specla.bench.workloads.prompt import Prompt
from tests.models.folders import spoil, write_checkpoint

TEXT = "The quick brown fox jumps over the lazy dog, again and again and again."
WORDS = "drafter=ngram topology.length=2 workload.max_new_tokens=3"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("subject") / "model")


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "model"))


def subject(folder: Path) -> Subject:
    settings = plan("bench e2e", WORDS.split()).cells[0].settings
    target = load_target(ModelSettings(path=str(folder)), torch.float32, "cpu", 0)
    return Subject(target, settings, 2, [Prompt("a", "prose", TEXT)])


def test_a_prompts_tokens_are_what_its_text_gives(folder: Path) -> None:
    wanted = LibraryTokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT).ids
    assert len(wanted) > 8
    spoil(folder)
    assert subject(folder).items[0].start.prompts == [wanted]


def test_any_of_the_ends_ends_a_text(folder: Path) -> None:
    first = subject(folder)
    trace = first.traces[0][0]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [8000, trace[1]]}))
    again = subject(folder)
    assert again.stop.eos_token_ids == {8000, trace[1]}
    assert again.reference(again.items[0])[0] == trace[: trace.index(trace[1]) + 1]


def test_what_decides_a_text_is_in_the_digest(folder: Path) -> None:
    """Weights, tokenizer and ends; a drafter is for the weights alone, and fits whatever ends a text."""
    first = subject(folder)
    spoil(folder)
    assert subject(folder).digest == first.digest
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    ended = subject(folder)
    file = folder / "tokenizer.json"
    raw = json.loads(file.read_text())
    raw["model"]["ignore_merges"] = True
    file.write_text(json.dumps(raw))
    retold = subject(folder)
    assert len({first.digest, ended.digest, retold.digest}) == 3
    assert first.target.digest == ended.target.digest == retold.target.digest
