"""What a cell decodes: the whole prompt's tokens, ended by any of the model's ends; what decides it tells it apart."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as LibraryTokenizer

from specla.bench.plan import plan
from specla.bench.settings import ModelSettings
from specla.bench.subject import Subject, load_target
from specla.bench.workloads.base import Prompt
from specla.models.checkpoint import resolve_folder, save_model
from tests.cli.conftest import Run, run
from tests.models.cases import raw_model

__all__ = ["run"]

TEXT = "The quick brown fox jumps over the lazy dog, again and again and again."
WORDS = "drafter=ngram topology.length=2 workload.max_new_tokens=3"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with gdn-mini's tokenizer."""
    folder = tmp_path_factory.mktemp("subject") / "model"
    save_model(raw_model(vocab_size=8192, eos_token_id=(0,)), folder, torch.float32)
    shutil.copy(resolve_folder("asset:gdn-mini") / "tokenizer.json", folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "model"))


def subject(folder: Path) -> Subject:
    settings = plan("bench e2e", WORDS.split()).cells[0].settings
    target = load_target(ModelSettings(path=str(folder)), torch.float32, "cpu", 0)
    return Subject(target, settings, 2, [Prompt("a", "prose", TEXT)])


def spoil(folder: Path) -> None:
    """Store what some training used."""
    file = folder / "tokenizer.json"
    tokenizer = LibraryTokenizer.from_file(str(file))
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=48)
    tokenizer.save(str(file))


def test_a_prompts_tokens_are_what_its_text_gives(folder: Path) -> None:
    wanted = LibraryTokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT).ids
    assert len(wanted) > 8
    spoil(folder)
    assert subject(folder).items[0].start.prompts == [wanted]


def test_generate_continues_the_whole_prompt(folder: Path, run: Run) -> None:
    code, plain, err = run(f"specla generate '{TEXT}' model.path={folder} {WORDS}")
    assert code == 0, err
    spoil(folder)
    assert run(f"specla generate '{TEXT}' model.path={folder} {WORDS}")[:2] == (0, plain)


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


def test_what_of_a_checkpoint_is_not_read_reaches_the_log(folder: Path, run: Run, tmp_path: Path) -> None:
    file = folder / "model.safetensors"
    unused = {f"model.layers.{i}.attn.D": torch.ones(2) for i in range(2)}
    save_file({**load_file(file), **unused}, file)
    told = f"{folder}: attn.D of 2 layers is not read"
    code, _, err = run(f"specla generate '{TEXT}' model.path={folder} {WORDS}")
    assert code == 0 and told in err
    words = f"model.path={folder} {WORDS} workload.prompts=1 measure=quick measure.repeats=1"
    code, _, err = run(f"specla bench e2e {words}")
    assert code in (0, 3) and err.count(told) == 1
    (log,) = tmp_path.glob("runs/*/log.txt")
    assert log.read_text().count(told) == 1
