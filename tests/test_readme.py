"""Every command of README.md runs, in the order in which it stands there."""

import re
import shlex
import sys
from pathlib import Path

import pytest

import specla
from specla.cli.main import main

ROOT = Path(specla.__file__).parents[1]
NEEDS_THE_READER = ("OWNER/NAME",)
"""Commands that name something only the reader has."""


def commands() -> list[str]:
    """The lines of the README's shell blocks, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {line.split()[1] for line in commands() if line.startswith("make ")}
    assert {"bench", "test"} <= asked <= targets


@pytest.mark.slow
def test_every_command_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = [line for line in commands() if line.startswith("specla ")]
    assert len(typed) > 8
    for line in typed:
        if any(mark in line for mark in NEEDS_THE_READER):
            continue
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, f"{line}\n{capsys.readouterr().err}"
