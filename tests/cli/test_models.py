"""Checkpoints from the command line: one line for each that is not run, and one for what is not read of another."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.cli.conftest import Run
from tests.models.folders import spoil, write_checkpoint

TEXT = "The quick brown fox jumps over the lazy dog, again and again and again."
WORDS = "drafter=ngram topology.length=2 workload.max_new_tokens=3"
NAME = "model.layers.1.attn.q_proj.weight"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    write_checkpoint(root / "model")
    write_checkpoint(root / "shards", "300KB")
    return root


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written / "model", tmp_path / "model"))


def test_generate_continues_the_whole_prompt(folder: Path, run: Run) -> None:
    code, plain, err = run(f"specla generate '{TEXT}' model.path={folder} {WORDS}")
    assert code == 0, err
    spoil(folder)
    assert run(f"specla generate '{TEXT}' model.path={folder} {WORDS}")[:2] == (0, plain)


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


def config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        raw = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**raw, **changes}))

    return change


def deep(folder: Path) -> None:
    (folder / "config.json").write_text('{"a":' * 100_000)


def weight(cast: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "model.safetensors"
        weights = load_file(file)
        save_file({**weights, NAME: cast(weights[NAME])}, file)

    return change


def pickled(folder: Path) -> None:
    torch.save({}, folder / "model.safetensors")


def overlapping(folder: Path) -> None:
    shards = folder.with_name("shards")
    first, second, *_ = sorted(shards.glob("*.safetensors"))
    name, tensor = next(iter(load_file(first).items()))
    save_file({**load_file(second), name: tensor}, second)
    shutil.rmtree(folder)
    shards.rename(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (deep, "config.json: not valid JSON (nested too deeply)"),
        (config(num_hidden_layers=2.7), "config.json: num_hidden_layers=2.7: give a whole number"),
        (config(num_hidden_layers=10**9), "config.json does not fit the weights"),
        (config(hidden_size=10**6), "config.json asks for (8192, 1000000)"),
        (config(eos_token_id=[0, 8192]), "config.json: eos_token_id=8192: the vocabulary has the tokens 0 to 8191"),
        (config(vocab_size=8191), "has shape (8192, 32), config.json asks for (8191, 32)"),
        (weight(lambda tensor: tensor.to(torch.int8)), f"weight '{NAME}' is I8"),
        (weight(lambda tensor: tensor / 0), f"weight '{NAME}' holds NaN or infinity"),
        (pickled, "is a file of torch.save under another name"),
        (overlapping, "as well"),
    ],
)
def test_what_is_not_run_is_one_line(
    change: Callable[[Path], None], told: str, folder: Path, written: Path, run: Run, tmp_path: Path
) -> None:
    shutil.copytree(written / "shards", tmp_path / "shards")
    change(folder)
    code, out, err = run(f"specla generate '{TEXT}' model.path={folder} {WORDS}")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert told in err and str(folder) in err
