"""Tables at any width: numbers whole, words readable."""

import io
import re

import pytest
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from specla.cli.narrow import show_table
from specla.cli.results import console

ROWS = [
    ("tree", "confidence-b4-m1-n16-l8", "heldout (arithmetic), T = 0.8", r"1.57x \[1.54, 1.60]", "2.16", "847 MiB"),
    ("sequential_replay", "chain-l4", "", "[dim]not applicable[/]", "", ""),
]


def shown(width: int) -> str:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0), show_edge=False)
    for name in ("verify", "topology", "workload"):
        table.add_column(name, overflow="fold")
    table.add_column("speedup (95 %)", no_wrap=True)
    table.add_column("tau", justify="right")
    table.add_column("memory", justify="right")
    for row in ROWS:
        table.add_row(*row)
    out = io.StringIO()
    show_table(Console(width=width, file=out, highlight=False), table)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_no_number_is_split_at_any_width(width: int) -> None:
    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    for whole in ("1.57x [1.54, 1.60]", "2.16", "847 MiB", "not applicable"):
        assert whole in text


def test_a_narrow_terminal_gets_a_paragraph_a_row() -> None:
    lines = shown(40).splitlines()
    assert lines[0].startswith("tree confidence-b4-m1-n16-l8")
    assert re.search(r"^  speedup \(95 %\) 1\.57x \[1\.54, 1\.60\]", "\n".join(lines), re.MULTILINE)
    assert lines[-2:] == ["sequential_replay chain-l4", "  speedup (95 %) not applicable"]
    assert "───" not in shown(40) and "───" in shown(100)


def test_columns_is_heeded_where_stdout_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    for told, width in (("40", 40), ("", 120), ("wide", 120)):
        monkeypatch.setenv("COLUMNS", told)
        assert console().width == width
    monkeypatch.delenv("COLUMNS")
    assert console().width == 120
