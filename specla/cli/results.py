"""Tables of cells on the terminal."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from specla.bench.cells import Cell, Plan
from specla.bench.estimate import DOES_NOT_FIT, accepted_drafts
from specla.bench.identity import seen_info
from specla.bench.normalise import KERNEL_COMMANDS
from specla.bench.summary import Document
from specla.bench.unseen import unseen_estimate
from specla.bench.workload_labels import source_of, workload_labels
from specla.cli.kernels import kernel_lines
from specla.cli.labels import drafter_in, place_in, place_labels, place_of
from specla.cli.narrow import show_table
from specla.report.escape import for_terminal

if TYPE_CHECKING:
    from specla.report.compare import Comparison

_DECODE_COLUMNS = ("verify", "drafter", "topology", "workload", "speedup (95 %)", "tau", "tok/s", "text")
_PLAIN_WIDTH = 120
"""Where stdout is no terminal, a table is as wide as this, unless COLUMNS says otherwise."""


def console() -> Console:
    """Rich on stdout, as wide as COLUMNS says, or the terminal is."""
    told = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if told else _PLAIN_WIDTH, highlight=False, emoji=False)


def print_plan(plan: Plan, unfit: Mapping[str, str]) -> None:
    """The cells of a plan with what they will take, and the sum; `unfit` says by config_hash why a cell cannot run."""
    shown, seconds, memory = console(), 0.0, 0.0
    operations = [cell for cell in plan.cells if cell.command in KERNEL_COMMANDS]
    decodes = [cell for cell in plan.cells if cell.command not in KERNEL_COMMANDS]
    accepted = () if all(cell.command == "ablate verify" for cell in operations) else ("accepted",)
    own = ("topology", "nodes", *accepted)
    models = _plan_models(decodes)
    read = [(cell.settings.workload.name, source_of(cell.settings.workload)) for cell in decodes]
    told = place_labels(list(map(place_of, decodes, models, workload_labels(read))))
    for cells, columns in ((decodes, ("drafter", "topology", "nodes", "workload")), (operations, own)):
        table = _table("verify", "recover", *columns, "batch", "time", "memory", padding=int(shown.width > 90))
        places = told if cells is decodes else [""] * len(cells)
        for cell, place in zip(cells, places, strict=True):
            names = _names(cell, place) if cells is decodes else _operation_names(cell, bool(accepted))
            if cell.status != "pending":
                table.add_row(*names, "[dim]n/a[/]", "")
                continue
            cost = unseen_estimate(cell)
            held = _bytes(cost.memory_bytes)
            if cell.config_hash in unfit:
                table.add_row(*names, f"[red]{DOES_NOT_FIT}[/]", held)
                continue
            seconds, memory = seconds + cost.seconds, max(memory, cost.memory_bytes)
            table.add_row(*names, _seconds(cost.seconds), held)
        if cells:
            show_table(shown, table)
    if len(set(models)) == 1:
        shown.print(f"model: {for_terminal(models[0])}")
    for reason in dict.fromkeys(cell.reason for cell in plan.cells if cell.reason):
        shown.print(f"n/a, not applicable: {for_terminal(reason)}")
    for reason in dict.fromkeys(unfit.values()):
        shown.print(for_terminal(reason))
    ar = sum(cell.method.verify == "ar" for cell in decodes)
    count = len(plan.cells) - ar
    shown.print(
        f"{count} cell{'s' * (count != 1)}{f' and AR ({ar})' if ar else ''}: about {_seconds(seconds)} (to a factor of "
        f"two or three), up to {_bytes(memory)} of memory; nothing was run"
    )


def _plan_models(cells: Sequence[Cell]) -> list[str]:
    """The model of each decode of a plan, by its config.json; one that is not here is called as its option is."""
    seen = {(cell.settings.model, cell.settings.seed): cell for cell in cells}
    models = {key: seen_info(*key, cell.command) for key, cell in seen.items()}
    names = {key: info.label if info else key[0].name for key, info in models.items()}
    if len(set(names.values())) < len({key[0] for key in names}):
        # Two of a name are told apart by where they lie.
        names = {key: f"{name} at {key[0].path}" if key[0].path else name for key, name in names.items()}
    return [names[cell.settings.model, cell.settings.seed] for cell in cells]


def _operation_names(cell: Cell, with_accepted: bool) -> tuple[str, ...]:
    method, batch = cell.method, str(cell.settings.workload.batch)
    accepted = "" if cell.command == "ablate verify" else str(accepted_drafts(cell))
    names = (method.verify, method.recover, method.topology, str(cell.tree.nodes))
    return (*names, accepted, batch) if with_accepted else (*names, batch)


def _names(cell: Cell, place: str) -> tuple[str, ...]:
    method = cell.method
    return (
        method.verify if method.engine == "specla" else method.engine,
        method.recover,
        for_terminal(cell.drafter_label),
        method.topology,
        f"{'<= ' * cell.is_open}{cell.tree.nodes}",
        escape(place),
        str(cell.settings.workload.batch),
    )


def print_results(document: Document) -> None:
    """The cells of a finished run, decodes before single operations; figures only where what came out was right."""
    shown = console()
    decodes = [cell for cell in document["cells"] if "time_us" not in cell]
    narrow, places = shown.width < 100, [place_in(cell) for cell in decodes]
    labels = place_labels(places, short=narrow)
    # One workload is told once, where lines are short.
    alone = places[0].workload if narrow and len({place.workload for place in places}) == 1 else ""
    if decodes:
        _print_decodes(shown, decodes, labels if any(labels) else None)
    for line in kernel_lines([cell for cell in document["cells"] if "time_us" in cell]):
        shown.print(line, soft_wrap=True)
    _print_reasons(shown, document["cells"])
    if any(cell.get("worst_tie") is not None and cell["lossless"] == "near_tie" for cell in decodes):
        shown.print("[dim]near tie: the worst of the text, as a share of the bound that it must stay within[/]")
    synthetic = any(cell.get("synthetic") for cell in decodes)
    note = "; [dim]~ synthetic acceptance[/]" if synthetic else ""
    on = f", workload {alone}" if alone else ""
    models = {place.model for place in places}
    on += f", model {models.pop()}" if len(models) == 1 else ""
    shown.print(f"{document['status']} on {for_terminal(document['device'])}{for_terminal(on)}{note}")


def _print_decodes(shown: Console, cells: Sequence[Mapping[str, Any]], places: Sequence[str] | None) -> None:
    """`places` says what each decoded; None leaves the column out."""
    left_out = "workload" if places is None else ""
    names = (name for name in _DECODE_COLUMNS if name != left_out)
    table = _table(*names, padding=int(shown.width > 90))
    for column in table.columns:
        column.no_wrap = column.header in ("speedup (95 %)", "text")
    recovers: dict[str, set[str]] = {}
    for cell in cells:
        recovers.setdefault(cell["method"]["verify"], set()).add(cell["method"]["recover"])
    for cell, place in zip(cells, places or [""] * len(cells), strict=True):
        told = _result(cell, place, len(recovers[cell["method"]["verify"]]) > 1)
        table.add_row(*(text for name, text in zip(_DECODE_COLUMNS, told, strict=True) if name != left_out))
    show_table(shown, table)


def _print_reasons(shown: Console, cells: Sequence[Mapping[str, Any]]) -> None:
    """Why cells failed, are inconclusive or do not apply; each reason once."""
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        if cell["status"] in ("failed", "inconclusive", "not_applicable"):
            told = f"{cell['status'].replace('_', ' ')}: {cell['reason']}"
            reasons.setdefault(told, []).append(" ".join(cell["overrides"]))
    for reason, where in reasons.items():
        shown.print(for_terminal(f"{reason} ({where[0] if len(where) == 1 else f'{len(where)} cells'})"))


def print_comparison(found: "Comparison") -> None:
    """What became of every cell, what a reader must not miss first, and below it what has no ratio."""
    from specla.report import compare_text
    from specla.report.load import DAMAGED

    shown, names = console(), compare_text.all_labels(found)
    if found.damage:
        shown.print(f"[bold red]{DAMAGED}[/]")
        for line in found.damage:
            shown.print(f"  {for_terminal(line)}")
    # The time alone is a column of its own where something else is judged.
    witness = any(compare_text.time_text(cell) for cell in found.cells)
    table = _table("cell", "NEW / BASE", *(["time"] if witness else []), "verdict")
    for column in table.columns[1:]:
        column.no_wrap = True
    for cell in compare_text.ordered(found):
        table.add_row(
            for_terminal(names[id(cell.new)]),
            for_terminal(compare_text.ratio_text(cell.change)),
            *([compare_text.time_text(cell)] if witness else []),
            f"[{_COLOURS[cell.verdict.value]}]{cell.verdict.value}[/]",
        )
    if found.cells:
        show_table(shown, table)
    for heading, lines in compare_text.listings(found):
        shown.print(f"[bold]{heading}[/]")
        for line in lines:
            shown.print(f"  {for_terminal(line)}")
    shown.print(f"[dim]{for_terminal(compare_text.rule_text(found), None)}[/]")
    shown.print(f"{for_terminal(compare_text.sentence(found))}, on {for_terminal(found.device)}")


_COLOURS = {"slower": "red", "inconclusive": "yellow", "faster": "green", "same": "dim"}


def _result(cell: Mapping[str, Any], place: str, with_recovery: bool) -> tuple[str, ...]:
    method = cell["method"]
    verify = f"{method['verify']} + {method['recover']}" if with_recovery else method["verify"]
    if method.get("engine", "specla") != "specla":
        verify = method["engine"]
    names = (for_terminal(verify), for_terminal(drafter_in(cell)), for_terminal(method["topology"]), escape(place))
    if cell["status"] in ("not_applicable", "pending", "failed"):
        return (*names, f"[dim]{cell['status'].replace('_', ' ')}[/]", "", "", _lossless(cell))
    speedup = cell.get("speedup") or {}
    return (
        *names,
        _interval(speedup),
        _number(cell.get("tau")),
        _number(cell.get("tok_s"), 0),
        _lossless(cell),
    )


def _lossless(cell: Mapping[str, Any]) -> str:
    """Whether the text is AR's: 'exact', 'near tie 0.31' where the worst near tie is at 0.31 of its bound."""
    told, worst = str(cell.get("lossless") or "").replace("_", " "), cell.get("worst_tie")
    return told if worst is None or told != "near tie" else f"{told} {worst:.2f}"


def _interval(value: Mapping[str, Any]) -> str:
    if not value or value.get("median") is None:
        return ""
    if value.get("low") is None:
        return f"{value['median']:.2f}x"
    return f"{value['median']:.2f}x [{value['low']:.2f}, {value['high']:.2f}]".replace("[", r"\[")


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _table(*columns: str, padding: int = 1) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, padding), collapse_padding=True, show_edge=False)
    right = {"nodes", "accepted", "batch", "time", "memory", "tau", "tok/s"}
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def _seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _bytes(count: float) -> str:
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
