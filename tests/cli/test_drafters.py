"""Trained drafters from the command line: one that does not fit its target, or is not whole, is refused in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from specla.models.checkpoint import resolve_folder
from tests.cli.conftest import Run


def cut_short(folder: Path) -> None:
    file = folder / "drafter.safetensors"
    file.write_bytes(file.read_bytes()[:100_000])


def changed(folder: Path) -> None:
    file = folder / "drafter.safetensors"
    whole = bytearray(file.read_bytes())
    whole[-1] ^= 1
    file.write_bytes(whole)


def half_written(folder: Path) -> None:
    """config.json is written last."""
    (folder / "config.json").unlink()


def without_weights(folder: Path) -> None:
    (folder / "drafter.safetensors").unlink()


def torn_config(folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(file.read_text()[:50])


def without_sizes(folder: Path) -> None:
    file = folder / "config.json"
    raw = json.loads(file.read_text())
    del raw["head_dim"]
    file.write_text(json.dumps(raw))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (cut_short, "perhaps cut short"),
        (changed, "is not the file that config.json was written with"),
        (half_written, "no config.json there"),
        (without_weights, "is missing; the folder is incomplete"),
        (torn_config, "not valid JSON"),
        (without_sizes, "no usable value ('head_dim')"),
    ],
)
def test_damaged_drafters(damage: Callable[[Path], None], told: str, run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(resolve_folder("asset:gdn-mini-drafter", "drafter.path"), tmp_path / "drafter")
    damage(folder)
    code, out, err = run(f"specla bench e2e drafter=aligned drafter.path={folder}")
    assert code == 2 and out == ""
    assert told in err and err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_drafter_for_another_target_of_the_same_vocabulary(run: Run, tmp_path: Path) -> None:
    code, out, err = run("specla bench e2e drafter=aligned model.weights=random")
    assert code == 2 and out == ""
    assert "was trained for another target" in err and err.count("\n") == 1
    assert not (tmp_path / "runs").exists()
