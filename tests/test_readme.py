"""Every command of README.md runs, in the order in which it stands there."""

import csv
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


GPU_REPORT = "gdn-1.3b-h200"
TREES = ["sequential_replay", "naive_batched", "parent_pointer", "hybrid", "tree"]
COMMITS = ["replay_tokens", "replay_cached", "snapshot", "factors"]
KERNELS = {
    "verify 16 nodes": ("verify", "kary-b2-n16", "", "verify", TREES),
    "commit 4 tokens": ("recover", "chain-l7", "3", "recover", COMMITS),
    "commit, then verify 16 nodes": (
        *("defer", "kary-b2-n16", "4", "recover"),
        ["factors", "factors_deferred", "factors_lazy"],
    ),
}
"""By operation: the group of its cells, their topology and accepted drafts, and what tells its strategies apart."""


def kernels() -> str:
    """The README's second table, from the GPU's report."""
    with (ROOT / "reports" / GPU_REPORT / "cells.csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    batches = ["1", "8", "32", "128"]
    rows = [["microseconds, one layer", *(f"batch {batch}" for batch in batches)], ["---"] * 5]
    for operation, (group, topology, accepted, part, strategies) in KERNELS.items():
        of = [x for x in cells if (x["group"], x["topology"], x["accepted"]) == (group, topology, accepted)]
        times = {(x[part], x["batch"]): microseconds(x["time_us"]) for x in of}
        floors = {name: [] for name in strategies}
        for name in strategies:
            rows.append([f"{operation}: `{name}`", *(times[name, batch] for batch in batches)])
            floors[name] = [
                microseconds(x["floor_us"]) for batch in batches for x in of if (x[part], x["batch"]) == (name, batch)
            ]
        # One floor where all strategies move the same bytes at least.
        for name, floor in floors.items():
            if name == strategies[0] or floor != floors[strategies[0]]:
                whose = "floor" if name == strategies[0] else f"floor of `{name}`"
                rows.append([f"{operation}: {whose}", *floor])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


DRAFTED = {
    "chain of 4, alpha 0.8": ("chain-l4", "0.8"),
    "the same, drafting paid for": ("chain-l4", "0.8 paid"),
    "tree of 8 nodes, alpha 0.8 and 0.1": ("kary-b2-n8", "[[0.8,0.1]]"),
}
"""By words: the tree, and what its oracle was asked for."""


FOREIGN = {
    "flash-linear-attention, its step in a graph (24 tokens)": "fla-graph",
    "flash-linear-attention, `generate` (24 tokens)": "fla-generate",
}


def decoding() -> str:
    """The README's third table, from the same report: whole decodes by batch."""
    with (ROOT / "reports" / GPU_REPORT / "cells.csv").open(encoding="utf-8", newline="") as file:
        cells = [x for x in csv.DictReader(file) if x["model"].startswith("gdn-1.3b") and x["command"] == "bench e2e"]
    batches = ["1", "8", "32", "128"]
    rows = [["gdn-1.3b, decoding", *(f"batch {batch}" for batch in batches)], ["---"] * 5]
    ar = {x["batch"]: x for x in cells if x["baseline"] == "True"}
    rows.append(["AR, tokens/s", *(f"{float(ar[batch]['tok_s']):,.0f}" for batch in batches)])
    rows.append(["AR, share of the bandwidth", *(f"{float(ar[batch]['mbu']):.0%}" for batch in batches)])
    for words, engine in FOREIGN.items():
        found = {x["batch"]: interval_of(x) for x in cells if x["engine"] == engine}
        rows.append([f"speedup over AR: {words}", *(found.get(batch, "-") for batch in batches)])
    for words, asked in DRAFTED.items():
        # Of several ways to verify one draft the fastest.
        of = sorted((x for x in cells if (x["topology"], x["asked"]) == asked), key=lambda x: float(x["speedup"]))
        found = {x["batch"]: interval_of(x) for x in of}
        rows.append([f"speedup over AR: {words}", *(found.get(batch, "-") for batch in batches)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def microseconds(value: str) -> str:
    """Three digits, or as many as there are before the point."""
    return f"{float(value):,.0f}" if float(value) >= 100 else f"{float(value):.3g}"


def interval_of(cell: dict[str, str]) -> str:
    """Of a row of cells.csv."""
    return interval({name: float(cell[key]) for name, key in (("median", "speedup"), ("low", "low"), ("high", "high"))})


def interval(speedup: dict[str, Any]) -> str:
    """As in '2.31x (2.25 to 2.40)'."""
    return f"{speedup['median']:.2f}x ({speedup['low']:.2f} to {speedup['high']:.2f})"


def test_the_tables_are_the_reports() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert headline() in text
    assert kernels() in text
    assert decoding() in text


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
    second = re.compile(r"\| microseconds, one layer.*?(?=\n\n)", re.DOTALL)
    third = re.compile(r"\| gdn-1.3b, decoding.*?(?=\n\n)", re.DOTALL)
    text = second.sub(lambda _: kernels(), table.sub(lambda _: headline(), text))
    text = third.sub(lambda _: decoding(), text)
    (ROOT / "README.md").write_text(text, encoding="utf-8")
