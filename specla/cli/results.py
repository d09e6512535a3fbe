"""Tables of cells on the terminal."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from specla.bench.cells import Cell, Plan
from specla.bench.estimate import estimate
from specla.bench.summary import Document
from specla.bench.validate import show

if TYPE_CHECKING:
    from specla.report.compare import Comparison

_PLAIN_WIDTH = 120
"""Where stdout is no terminal, a table is as wide as this."""


def console() -> Console:
    """Rich on stdout, as wide as the terminal."""
    return Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)


def print_plan(plan: Plan) -> None:
    """The cells of a plan with what they will take, and the sum."""
    table = _table("verify", "recover", "drafter", "topology", "nodes", "workload", "batch", "seconds", "memory")
    seconds = memory = 0.0
    for cell in plan.cells:
        if cell.status != "pending":
            row = (*_names(cell), "[dim]not applicable[/]", "")
        else:
            # What `auto` means for device and dtype is the CPU's until a GPU is asked for.
            dtype = "float32" if cell.settings.dtype == "auto" else cell.settings.dtype
            cost = estimate(cell, "cuda" if cell.settings.device.startswith("cuda") else "cpu", dtype)
            seconds, memory = seconds + cost.seconds, max(memory, cost.memory_bytes)
            row = (*_names(cell), _seconds(cost.seconds), _bytes(cost.memory_bytes))
        table.add_row(*row)
    shown = console()
    shown.print(table)
    for reason in dict.fromkeys(cell.reason for cell in plan.cells if cell.reason):
        shown.print(f"not applicable: {escape(reason)}")
    ar = sum(cell.method.verify == "ar" for cell in plan.cells)
    count = len(plan.cells) - ar
    shown.print(
        f"{count} cell{'s' * (count != 1)} and AR ({ar}): about {_seconds(seconds)}, {_bytes(memory)} at most, "
        "good to a factor of two or three; nothing was run"
    )


def _names(cell: Cell) -> tuple[str, ...]:
    method, workload = cell.method, cell.settings.workload
    alpha = cell.settings.drafter.alpha
    drafter = method.drafter if alpha is None else f"{method.drafter} {_alpha(alpha)}"
    return (
        method.verify,
        method.recover,
        escape(drafter),
        method.topology,
        str(cell.tree.nodes),
        workload.name,
        str(workload.batch),
    )


def print_results(document: Document) -> None:
    """The cells of a finished run: speedup over AR with its interval, only where the gate passed."""
    table = _table("verify", "drafter", "topology", "workload", "speedup (95 %)", "tau", "tok/s", "text")
    shown = console()
    reasons: dict[str, list[str]] = {}
    for cell in document["cells"]:
        table.add_row(*_result(cell))
        if cell["status"] in ("failed", "inconclusive"):
            reasons.setdefault(f"{cell['status']}: {cell['reason']}", []).append(" ".join(cell["overrides"]))
    shown.print(table)
    for reason, cells in reasons.items():
        where = cells[0] if len(cells) == 1 else f"{len(cells)} cells"
        shown.print(escape(f"{reason} ({where})"))
    synthetic = any(cell.get("synthetic") for cell in document["cells"])
    note = "; [dim]~ synthetic acceptance[/]" if synthetic else ""
    shown.print(f"{document['status']} on {escape(document['device'])}{note}")


def print_comparison(found: "Comparison") -> None:
    """What became of every cell, what a reader must not miss first, and below it what has no ratio."""
    from specla.report import compare_text

    shown, names = console(), compare_text.all_labels(found)
    # The time alone is a column of its own where something else is judged.
    witness = any(compare_text.time_text(cell) for cell in found.cells)
    table = _table("cell", "NEW / BASE", *(["time"] if witness else []), "verdict")
    for column in table.columns[1:]:
        column.no_wrap = True
    for cell in compare_text.ordered(found):
        table.add_row(
            escape(names[id(cell.new)]),
            escape(compare_text.ratio_text(cell.change)),
            *([compare_text.time_text(cell)] if witness else []),
            f"[{_COLOURS[cell.verdict.value]}]{cell.verdict.value}[/]",
        )
    if found.cells:
        shown.print(table)
    for heading, lines in compare_text.listings(found):
        shown.print(f"[bold]{heading}[/]")
        for line in lines:
            shown.print(f"  {escape(line)}")
    shown.print(f"[dim]{escape(compare_text.rule_text(found))}[/]")
    shown.print(f"{escape(compare_text.sentence(found))}, on {escape(found.device)}")


_COLOURS = {"slower": "red", "inconclusive": "yellow", "faster": "green", "same": "dim"}


def _result(cell: Mapping[str, Any]) -> tuple[str, ...]:
    method = cell["method"]
    names = (method["verify"], escape(_drafter(cell)), method["topology"], str(cell.get("workload", "")))
    if cell["status"] in ("not_applicable", "pending", "failed"):
        return (*names, f"[dim]{cell['status'].replace('_', ' ')}[/]", "", "", str(cell.get("lossless") or ""))
    speedup = cell.get("speedup") or {}
    return (
        *names,
        _interval(speedup),
        _number(cell.get("tau")),
        _number(cell.get("tok_s"), 0),
        str(cell.get("lossless") or "").replace("_", " "),
    )


def _drafter(cell: Mapping[str, Any]) -> str:
    alpha = cell.get("alpha_asked")
    name = cell["method"]["drafter"]
    return f"{name}{'' if alpha is None else ' ' + _alpha(alpha)}{' ~' if cell.get('synthetic') else ''}"


def _alpha(alpha: Any) -> str:
    """A number, or a table by depth and rank, as the user types it."""
    if isinstance(alpha, int | float):
        return show(alpha)
    return f"[{','.join(_alpha(inner) for inner in alpha)}]"


def _interval(value: Mapping[str, Any]) -> str:
    if not value or value.get("median") is None:
        return ""
    if value.get("low") is None:
        return f"{value['median']:.2f}x"
    return f"{value['median']:.2f}x [{value['low']:.2f}, {value['high']:.2f}]".replace("[", r"\[")


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    right = {"nodes", "batch", "seconds", "memory", "tau", "tok/s", "time"}
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _bytes(count: float) -> str:
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
