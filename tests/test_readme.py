"""Every command of README.md runs, in the order in which it stands there."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import specla
from specla.cli.main import main

ROOT = Path(specla.__file__).parents[1]
NEEDS_THE_READER = ("OWNER/NAME",)
"""Commands that name something only the reader has."""


REPORT = "gdn-mini-cpu"
"""The committed report that the headline table is taken from."""
HEADLINE = (
    ("oracle", "kary-b2-n8", "heldout"),
    ("oracle", "kary-b2-n16", "heldout"),
    ("ngram", "chain-l4", "heldout"),
)


def headline() -> str:
    """The README's table, from the report: `python -m tests.test_readme` writes it anew."""
    cells = json.loads((ROOT / "reports" / REPORT / "summary.json").read_text(encoding="utf-8"))["cells"]
    columns: list[dict[str, str]] = [{} for _ in HEADLINE]
    for cell in cells:
        method = cell["method"]
        asked = (method["drafter"], method["topology"], cell["workload"])
        if asked in HEADLINE and not isinstance(cell["alpha_asked"], float):
            columns[HEADLINE.index(asked)][method["verify"]] = interval(cell["speedup"])
    names = ["sequential_replay", "naive_batched", "parent_pointer", "hybrid", "tree", "auto"]
    heads = ["tree of 8 nodes, oracle", "tree of 16 nodes, oracle", "chain of 4, prompt lookup"]
    rows = [["speedup over AR (95 %)", *heads], ["---"] * 4]
    rows += [[f"`{name}`", *(column.get(name, "-") for column in columns)] for name in names]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def interval(speedup: dict[str, Any]) -> str:
    """As in '2.31x (2.25 to 2.40)'."""
    return f"{speedup['median']:.2f}x ({speedup['low']:.2f} to {speedup['high']:.2f})"


def test_the_headline_is_the_reports() -> None:
    assert headline() in (ROOT / "README.md").read_text(encoding="utf-8")


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


if __name__ == "__main__":
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.compile(r"\| speedup over AR.*?(?=\n\n)", re.DOTALL)
    (ROOT / "README.md").write_text(table.sub(lambda _: headline(), text), encoding="utf-8")
