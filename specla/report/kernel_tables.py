"""Tables of the timed operations: time and ratio by strategy at each point, what holds of it throughout."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from specla.report.escape import Markdown, bold, for_markdown
from specla.report.evidence import interval_text
from specla.report.load import rows_of
from specla.report.operations import AUTO_ASIDE, BY_KIND, where_columns
from specla.report.panels import ORDER
from specla.report.tables import Section, by_number, markdown

HEADINGS = {"verify": "Verification of one layer", "recover": "One layer's commit", "defer": "Commit and verification"}
"""Of the parts of a section that come after its decodes, in their order."""
_INTROS = {
    "verify": "`ablate verify`: one verification of one layer, on random inputs, checked before it is timed.",
    "recover": "`ablate recover`: one layer's commit of the root and the accepted drafts, verification off the clock.",
    "defer": "`ablate defer`: one layer's verification and the commit of what it accepted, at once or put off.",
}
_WORDS = {"factors": "factors, at once", "factors_deferred": "deferred", "factors_lazy": "lazy"}
_BASELINES = {"verify": "sequential replay", "recover": "token replay", "defer": "committing at once"}
_MOST = 60


@dataclass(frozen=True)
class Pivot:
    """Points downwards, strategies across."""

    points: Sequence[tuple[Any, ...]]
    columns: Sequence[str]
    cells: Mapping[tuple[tuple[Any, ...], str], Any]
    heads: Sequence[str]


def kernel_markdown(section: Section, kind: str) -> str:
    """Everything there is to tabulate of one ablation; empty where no cell of it was planned."""
    cells = section.kernels[(section.kernels.kind == kind) & (section.kernels.status != "pending")]
    if cells.empty:
        return ""
    pivot = _pivot(cells, kind)
    told = f"{_INTROS[kind]} Time in microseconds, median over repeats; bold is the fastest that passed"
    told += f" ({AUTO_ASIDE}).\n\n" if (cells.verify == "auto").any() else ".\n\n"
    told += _times(pivot)
    ratios = _ratios(pivot, section.ratios, BY_KIND[kind].baseline)
    if ratios:
        told += f"\nThe time of {_BASELINES[kind]} over each strategy's, paired within repeats, with its 95 % interval:"
        told += f"\n\n{ratios}"
    floors = _floors(pivot)
    if floors:
        told += "\nTime as a multiple of each strategy's floor, which moves every byte that must move once:"
        told += f"\n\n{floors}"
    return told + "\n" + _throughout(pivot) + _timings(cells)


def _pivot(cells: pd.DataFrame, kind: str) -> Pivot:
    heads = where_columns(cells, kind)
    if kind == "defer":
        names = cells.recover.map(lambda name: _WORDS.get(str(name), str(name).replace("_", " "))) + cells.tuning
    else:
        names = cells.label
    cells = cells.assign(column=names)
    rank = {str(row.column): _rank(row, kind) for row in rows_of(cells)}
    found = {(tuple(getattr(row, head) for head in heads), str(row.column)): row for row in rows_of(cells)}
    points = sorted({point for point, _ in found}, key=lambda point: [by_number(str(part)) for part in point])
    return Pivot(points, sorted(rank, key=lambda name: (rank[name], by_number(name))), found, heads)


def _rank(row: Any, kind: str) -> int:
    name = row.verify if kind == "verify" else row.recover
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _times(pivot: Pivot) -> str:
    def text(point: tuple[Any, ...], column: str, best: float) -> str:
        row = pivot.cells.get((point, column))
        if row is None or row.status == "not_applicable":
            return "-"
        if pd.isna(row.time_us):
            return str(row.status)
        shown = _time(row.time_us)
        if row.status != "passed":
            return Markdown(f"{shown} *{row.status}*")
        return bold(shown) if row.time_us == best and row.verify != "auto" else shown

    lines = []
    for point in pivot.points:
        rows = [pivot.cells[point, column] for column in pivot.columns if (point, column) in pivot.cells]
        # `auto` is one of the others, so that it is never the fastest itself.
        times = [row.time_us for row in rows if row.status == "passed" and row.verify != "auto"]
        floors = [row.floor_us for row in rows if pd.notna(row.floor_us)]
        best = min(times, default=float("nan"))
        lines.append([*_point(point), *(text(point, column, best) for column in pivot.columns), _floor(floors)])
    return _table(pivot, lines, "floor")


def _floor(floors: list[float]) -> str:
    """The least time of the bytes that must move; strategies that may move fewer have one of their own."""
    told = list(dict.fromkeys(_time(floor) for floor in sorted(floors)))
    return " to ".join((told[0], told[-1]) if len(told) > 1 else told) or "-"


def _time(time_us: float) -> str:
    return f"{time_us:,.{0 if time_us >= 100 else 1 if time_us >= 10 else 2}f}"


def _ratios(pivot: Pivot, ratios: pd.DataFrame, baseline: str) -> str:
    over = {int(row.cell): row for row in rows_of(ratios[ratios.over == baseline])}

    def text(point: tuple[Any, ...], column: str) -> str:
        row = pivot.cells.get((point, column))
        ratio = over.get(int(row.cell)) if row is not None else None
        return interval_text(ratio.ratio, ratio.ratio_low, ratio.ratio_high) if ratio else "-"

    names = [name for name in pivot.columns if any(text(point, name) != "-" for point in pivot.points)]
    lines = [[*_point(point), *(text(point, column) for column in names)] for point in pivot.points]
    kept = Pivot(pivot.points, names, pivot.cells, pivot.heads)
    return _table(kept, lines) if names else ""


def _floors(pivot: Pivot) -> str:
    """Every strategy's distance from the floor, point by point; empty where no floor is known."""

    def text(point: tuple[Any, ...], column: str) -> str:
        row = pivot.cells.get((point, column))
        return f"{row.x_floor:.2f}" if row is not None and pd.notna(row.x_floor) else "-"

    lines = [[*_point(point), *(text(point, column) for column in pivot.columns)] for point in pivot.points]
    known = any(value != "-" for line in lines for value in line[len(pivot.heads) :])
    return _table(pivot, lines) if known else ""


def _timings(cells: pd.DataFrame) -> str:
    """On a GPU: how many cells were timed as graphs, and of the others why not."""
    timed = cells[cells.time_us.notna() & (cells.timing != "")]
    if timed.empty:
        return ""
    graphs = int(timed.timing.str.startswith("graph").sum())
    told = (
        f"\n{graphs} of {len(timed)} times are of a captured CUDA graph over all layers in turn, replayed between two "
    )
    told += "events.\n"
    others = timed[timed.timing != "graph"]
    told += "".join(
        for_markdown(f"{', '.join(sorted(some.label.unique()))} ({len(some)} cells): {timing}").join(("\n- ", ""))
        for timing, some in others.groupby("timing")
    )
    return told + "\n" * bool(len(others))


def _throughout(pivot: Pivot) -> str:
    """By strategy: how far from the floor, how exact, and what it keeps of a draft until the commit."""
    columns: list[tuple[str, Callable[[list[Any]], str]]] = [
        ("cells passed", lambda rows: f"{sum(row.status == 'passed' for row in rows)} of {len(rows)}"),
        ("x_floor", lambda rows: _span([row.x_floor for row in rows], "{:.1f}")),
        ("error_rms, worst", lambda rows: _worst([row.error_rms for row in rows])),
        ("bytes kept per draft token", lambda rows: _span([row.kept_bytes for row in rows], "{:,.0f}")),
    ]
    table = []
    for name in pivot.columns:
        rows = [row for (_, column), row in pivot.cells.items() if column == name and row.status != "not_applicable"]
        if rows:
            table.append([name, *(text(rows) for _, text in columns)])
    kept = [place for place in range(len(columns) + 1) if any(line[place] != "-" for line in table)]
    heads = ("strategy", *(head for head, _ in columns))
    return markdown([heads[place] for place in kept], [[line[place] for place in kept] for line in table])


def _span(values: Sequence[float], form: str) -> str:
    known = [value for value in values if pd.notna(value)]
    if not known:
        return "-"
    low, high = form.format(min(known)), form.format(max(known))
    return low if low == high else f"{low} to {high}"


def _worst(values: Sequence[float]) -> str:
    known = [value for value in values if pd.notna(value)]
    return f"{max(known):.1e}" if known else "-"


def _point(point: tuple[Any, ...]) -> list[str]:
    return [f"{part:g}" if isinstance(part, float) else str(part) for part in point]


def _table(pivot: Pivot, lines: Sequence[list[str]], *more: str) -> str:
    heads = [{"topology": "tree"}.get(head, head) for head in pivot.heads]
    text = markdown([*heads, *pivot.columns, *more], lines[:_MOST])
    return text + (f"\n{len(lines) - _MOST} more rows are in cells.csv.\n" if len(lines) > _MOST else "")
