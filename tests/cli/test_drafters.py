"""Trained drafters from the command line: one that does not fit its target, or is not whole, is refused in one line."""

import json
import shutil
import subprocess
import sys
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
        (without_sizes, "no usable value of head_dim"),
    ],
)
@pytest.mark.parametrize("dry", ["", " --dry-run"])
def test_damaged_drafters(dry: str, damage: Callable[[Path], None], told: str, run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(resolve_folder("asset:gdn-mini-drafter", "drafter.path"), tmp_path / "drafter")
    damage(folder)
    code, out, err = run(f"specla bench e2e drafter=aligned drafter.path={folder}{dry}")
    assert code == 2 and out == ""
    assert told in err and err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "words",
    [
        "drafter.path=nowhere",
        "drafter.path=asset:nothing",
        "model=gdn-tiny",
        "model.weights=random",
        "model.path=/nowhere/at/all",
        "drafter.vocabulary=9000",
    ],
)
def test_a_dry_run_says_of_a_drafter_what_the_run_says(words: str, run: Run, tmp_path: Path) -> None:
    told = [run(f"specla bench e2e drafter=aligned {words}{dry}") for dry in ("", " --dry-run", " --dry-run --json")]
    assert told[0] == told[1] == told[2]
    code, out, err = told[0]
    assert code == 2 and out == "" and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_drafter_for_another_target_of_the_same_vocabulary(run: Run, tmp_path: Path) -> None:
    code, out, err = run("specla bench e2e drafter=aligned model.weights=random")
    assert code == 2 and out == ""
    assert "was trained for another target" in err and err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_lists_what_fits(run: Run) -> None:
    code, out, err = run("specla bench e2e drafter=aligned topology.length=2,4 --dry-run")
    assert code == 0 and err.startswith("workload=heldout: 120 prompts, the first: ") and "2 cells and AR (1)" in out
    assert err.count("\n") == 1


def test_a_dry_run_fetches_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object, **__: object) -> str:
        raise AssertionError("fetched")

    monkeypatch.setattr("specla.models.checkpoint.snapshot_download", fetch)
    code, out, err = run("specla bench e2e drafter=aligned drafter.path=some/drafter --dry-run")
    assert code == 0 and "nothing was run" in out
    assert err.count("\n") == 2
    assert err.endswith(
        "\ndrafter.path=some/drafter: no such folder here; a run asks the hub for it, a dry run does not\n"
    )
    code, _, err = run("specla bench e2e drafter=aligned model.path=some/model --dry-run")
    assert code == 0 and "model.path=some/model: no such folder here" in err
    code, out, err = run("specla bench e2e drafter=aligned model.path=some/model drafter.path=nowhere --dry-run")
    assert code == 2 and out == "" and "drafter.path=nowhere: no such folder" in err


def test_a_dry_run_without_a_trained_drafter_needs_no_torch() -> None:
    call = "import sys; sys.argv = ['specla', 'bench', 'e2e', 'drafter=oracle', '--dry-run']\n"
    call += "from specla.cli.main import main\ntry:\n    main()\nexcept SystemExit as end:\n"
    call += "    sys.exit(end.code or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", call], check=True, capture_output=True)
