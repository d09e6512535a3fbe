"""A sweep with a checkpoint, a drafter or a prompt file that is bad beside one that is good: its own cells fail."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specla.models.checkpoint import resolve_folder
from tests.cli.conftest import Run

QUICK = "drafter=ngram topology.length=1 engine.verify=tree workload.prompts=1 workload.max_new_tokens=4 measure=quick"


def nan_checkpoint(folder: Path) -> Path:
    """The bundled model with a norm of no numbers."""
    shutil.copytree(resolve_folder("asset:gdn-mini"), folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    name = "model.norm.weight"
    shard = folder / index["weight_map"][name]
    weights = load_file(shard)
    weights[name] = torch.full_like(weights[name], torch.nan)
    save_file(weights, shard)
    return folder


def test_a_checkpoint_of_no_numbers_fails_its_cells_alone(run: Run, tmp_path: Path) -> None:
    folder = nan_checkpoint(tmp_path / "nan")
    code, out, err = run(f"specla bench e2e model.path={folder},asset:gdn-mini {QUICK} --json")
    assert code == 4, err
    cells = json.loads(out.splitlines()[-1])["cells"]
    assert sorted(cell["status"] for cell in cells) == ["failed", "failed", "passed", "passed"]
    bad = [cell for cell in cells if cell["status"] == "failed"]
    assert all(str(folder) in " ".join(cell["overrides"]) and str(folder) in cell["reason"] for cell in bad)
    told = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert len(told) == 2 and "Traceback" not in err
    (tmp_path / "runs").rename(tmp_path / "before")
    code, out, err = run(f"specla bench e2e model.path={folder} {QUICK}")
    assert (code, out, err.count("\n")) == (2, "", 1) and str(folder) in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("workload=dataset workload.path=good.txt,missing.txt drafter=ngram", "missing.txt: no such file"),
        ("drafter=oracle drafter.profile=good.json,bad.json", "drafter.profile=bad.json: damaged, not JSON"),
        ("drafter=ngram,oracle drafter.profile=none.json", "drafter.profile=none.json: no such file"),
        ("drafter=aligned drafter.path=asset:gdn-mini-drafter,drafter", "perhaps cut short"),
    ],
)
def test_other_bad_inputs_fail_their_cells_alone(words: str, told: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("One text to go on from.\n" * 4)
    (tmp_path / "good.json").write_text('{"schema": 1, "alpha": [[0.6]]}')
    (tmp_path / "bad.json").write_text('{"schema": 1, "alpha": [[0.6')
    drafter = shutil.copytree(resolve_folder("asset:gdn-mini-drafter", "drafter.path"), tmp_path / "drafter")
    weights = drafter / "drafter.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    code, out, err = run(f"specla bench e2e {QUICK.partition(' ')[2]} {words} --json")
    assert code == 4, err
    reasons = [cell["reason"] for cell in json.loads(out.splitlines()[-1])["cells"]]
    assert reasons.count("") == 2 and any(told in reason for reason in reasons)
