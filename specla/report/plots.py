"""The bars of a report: speedup by method, and where a step's time goes. Curves are in `curves`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from specla.report.evidence import passed_decodes
from specla.report.load import rows_of
from specla.report.style import SPLIT_COLOURS, Plot, canvas, colour_of, house_rules, panel_title, row_text
from specla.report.tables import Section, by_number

MOST_ROWS = 45
MOST_PANELS = 3
_NAMED = 6
"""Of the panels that are not drawn."""
_ROW_INCHES = 0.185
_HEAD = "\0"  # opens the key of a row that is a group's heading, so that it is never a method's name


def main_cells(section: Section) -> pd.DataFrame:
    """The section's cells that are methods of their own: no sweep's points, not the baseline."""
    return section.cells[~section.cells.study & ~section.cells.baseline]


def panels_of(cells: pd.DataFrame) -> list[str]:
    """The panels worth drawing: those with most cells, by name and number."""
    counts = {str(name): int(count) for name, count in cells.panel.value_counts().items()}
    return sorted(sorted(counts, key=lambda name: (-counts[name], name))[:MOST_PANELS], key=by_number)


def speedup_plot(section: Section) -> Plot | None:
    """Horizontal bars with intervals, grouped by tree, a panel a workload."""
    cells = main_cells(section)
    passed = passed_decodes(cells)
    if passed.empty:
        return None
    panels = panels_of(passed)
    rows = _bar_rows(passed[passed.panel.isin(panels)])
    title = _speed_title(passed)
    note = f"Speedup to AR, median over repeats with its 95 % interval; the line at 1 is AR. {section.title}."
    note += _synthetic_note(passed)
    dropped = len(_keys(passed)) - sum(not key[1].startswith(_HEAD) for key in rows)
    note += f" {dropped} slower rows are in the CSV alone." if dropped else ""
    note += hidden_panels(passed, panels)
    with house_rules():
        figure, grid = canvas(0.55 + _ROW_INCHES * len(rows), title, note, 1, len(panels))
        limit = float(np.nanmax(passed[["speedup", "high"]].to_numpy(dtype=float))) * 1.17
        for place, (axes, panel) in enumerate(zip(grid[0], panels, strict=True)):
            _frame_rows(axes, rows, panel, len(panels), labelled=place == 0)
            _speed_bars(axes, cells[cells.panel == panel], rows, limit)
            axes.set_xlim(0, max(limit, 1.1))
            axes.set_xlabel("speedup to AR (x)")
    columns = ["panel", "shown", "method", "recover", "drafter", "speedup", "low", "high", "n", "synthetic", "status"]
    return Plot(named("speedup", section), title, note, cells[columns].rename(columns={"shown": "tree"}), figure)


def _speed_title(passed: pd.DataFrame) -> str:
    """The fastest with true acceptance; made-up acceptance is named beside it, or alone where there is no other."""
    drafting = passed[passed.verify != "ar"]
    ordered = (drafting if len(drafting) else passed).sort_values("speedup", ascending=False, kind="stable")
    real = ordered[~ordered.synthetic]
    best = next(rows_of(real if len(real) else ordered))
    span = f" ({best.low:.2f} to {best.high:.2f})" if pd.notna(best.low) else ""
    rank = "Ahead, within noise," if _overlapped(best, real if len(real) else ordered) else "Fastest"
    title = f"{rank} on {best.panel}: {best.method} on {best.shown}, {best.speedup:.2f}x AR{span}"
    if best.speedup < 1:
        title = (
            f"Nothing beats AR here: {best.method} on {best.shown} is nearest, {best.speedup:.2f}x{span}, {best.panel}"
        )
    if best.synthetic:
        return title + ", synthetic"
    made_up = float(ordered.speedup.iloc[0])
    return title + (f"; synthetic acceptance {made_up:.2f}x" if made_up > best.speedup else "")


def _overlapped(best: Any, ordered: pd.DataFrame) -> bool:
    """Whether the interval of the next of its panel reaches into that of the best."""
    rivals = ordered[(ordered.panel == best.panel) & (ordered.cell != best.cell)]
    return len(rivals) > 0 and bool(rivals.iloc[0].high >= best.low)


def _keys(cells: pd.DataFrame) -> dict[tuple[str, str], float]:
    """The mean speedup of each (tree, method) over its panels."""
    means = cells.groupby(["shown", "method"]).speedup.mean()
    return {(str(tree), str(method)): float(means[tree, method]) for tree, method in means.index}


def _bar_rows(cells: pd.DataFrame) -> list[tuple[str, str]]:
    """(tree, method) from top to bottom: trees with the fastest first, a heading above each, methods by speed."""
    speeds = _keys(cells)
    kept = sorted(speeds, key=lambda key: (-speeds[key], key))[:MOST_ROWS]
    trees = sorted({tree for tree, _ in kept}, key=lambda tree: (-max(speeds[k] for k in kept if k[0] == tree), tree))
    rows: list[tuple[str, str]] = []
    for tree in trees:
        rows.append((tree, _HEAD))
        rows += [key for key in kept if key[0] == tree]
    return rows


def _frame_rows(axes: Axes, rows: Sequence[tuple[str, str]], panel: str, columns: int, labelled: bool) -> None:
    """One line a row, group headings in bold beside the axis; `columns` panels stand side by side."""
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)))
    if labelled:
        axes.set_yticklabels([row_text(tree if method == _HEAD else method) for tree, method in rows])
        for label, (_, method) in zip(axes.get_yticklabels(), rows, strict=True):
            if method == _HEAD:
                label.set_fontweight("bold")
    else:
        axes.set_yticklabels([])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    panel_title(axes, panel, columns, max(len(row_text(name)) for row in rows for name in row if name != _HEAD))


def _speed_bars(axes: Axes, cells: pd.DataFrame, rows: Sequence[tuple[str, str]], limit: float) -> None:
    found = {(row.shown, row.method): row for row in rows_of(cells)}
    # Words in the place of a bar stand on one side of the line at 1, the wider one: it would run through them.
    words_at = limit * 0.012 if limit < 2 else 1 + limit * 0.018
    for at, key in enumerate(rows):
        row = found.get(key)
        if key[1] == _HEAD:
            continue
        if row is None or pd.isna(row.speedup):
            said = "not measured" if row is None else str(row.status).replace("_", " ")
            axes.text(words_at, at, said, va="center", fontsize=7.5, color="#777777", style="italic")
            continue
        hatch = "////" if row.synthetic else None
        colour = colour_of(row.verify, at)
        axes.barh(at, row.speedup, height=0.72, color=colour, edgecolor="white" if hatch else colour, hatch=hatch, lw=0)
        end = row.speedup
        if pd.notna(row.low):
            end = row.high
            spread = np.array([[row.speedup - row.low], [row.high - row.speedup]])
            axes.errorbar(row.speedup, at, xerr=spread, color="black", capsize=2, lw=0.9, capthick=0.9)
        # A white ground keeps a figure readable where it comes to lie on the line at 1.
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        axes.text(end + limit * 0.014, at, f"{row.speedup:.2f}", va="center", fontsize=7.5, bbox=ground, zorder=4)
    axes.axvline(1.0, color="black", lw=1, ls=(0, (4, 2)), zorder=3)


def split_plot(section: Section) -> Plot | None:
    """What a step is made of: stacked bars in microseconds, AR on top."""
    parts = [f"{name}_us" for name in SPLIT_COLOURS]
    # Another engine's step is not cut into ours, and an adaptive one differs from step to step.
    whole = section.cells.engine.eq("specla") & (section.cells[parts].sum(axis=1) > 0)
    cells = section.cells[~section.cells.study & whole]
    cells = cells.assign(method=cells.method.where(~cells.baseline, "AR"))
    drafting = cells[cells.verify != "ar"]
    if drafting.empty:
        return None
    panels, everything = panels_of(drafting), cells
    cells = cells[cells.panel.isin(panels)]
    rows = [*_bar_rows(cells[cells.verify == "ar"]), *_bar_rows(passed_decodes(drafting[drafting.panel.isin(panels)]))]
    shares = drafting[parts].div(drafting[parts].sum(axis=1), axis=0)
    lead = str(shares.median().idxmax())
    low, high = 100 * shares[lead].quantile([0.0, 1.0])
    verb = {"draft": "Drafting", "verify": "Verification", "accept": "Acceptance", "commit": "The commit"}
    span = f"{low:.0f} %" if round(low) == round(high) else f"{low:.0f} to {high:.0f} %"
    largest = int(shares.idxmax(axis=1).eq(lead).sum())
    where = "" if largest == len(shares) else f" in {largest} of {len(shares)} cells"
    title = f"{verb[lead.removesuffix('_us')]} takes {span} of a step, the largest part{where}"
    note = "Microseconds per verify step, each phase's median over repeats; the figure beside a bar is their sum. "
    note += "The oracle's acceptance is synthetic. " if drafting.drafter.eq("oracle").any() else ""
    note += f"{section.title}." + hidden_panels(drafting, panels)
    with house_rules():
        figure, grid = canvas(0.85 + _ROW_INCHES * len(rows), title, note, 1, len(panels))
        limit = float(cells[parts].sum(axis=1).max()) * 1.14
        for place, (axes, panel) in enumerate(zip(grid[0], panels, strict=True)):
            _frame_rows(axes, rows, panel, len(panels), labelled=place == 0)
            _split_bars(axes, cells[cells.panel == panel], rows, limit)
            axes.set_xlim(0, limit)
            axes.set_xlabel("time per step (us)")
            axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        handles = [Patch(facecolor=colour, label=name) for name, colour in SPLIT_COLOURS.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    data = everything[["panel", "shown", "method", *parts]].rename(columns={"shown": "tree"})
    return Plot(named("split", section), title, note, data, figure)


def _split_bars(axes: Axes, cells: pd.DataFrame, rows: Sequence[tuple[str, str]], limit: float) -> None:
    found = {(row.shown, row.method): row for row in rows_of(cells)}
    for at, key in enumerate(rows):
        row, left = found.get(key), 0.0
        if row is None:
            said = "" if key[1] == _HEAD else "not measured"
            axes.text(limit * 0.012, at, said, va="center", fontsize=7.5, color="#777777", style="italic")
            continue
        for name, colour in SPLIT_COLOURS.items():
            width = float(getattr(row, f"{name}_us"))
            axes.barh(at, width, left=left, height=0.72, color=colour)
            left += width
        axes.text(left + limit * 0.012, at, f"{left:,.0f}", va="center", fontsize=7.5)


def hidden_panels(cells: pd.DataFrame, panels: Sequence[str]) -> str:
    """What is not drawn, as a sentence; empty where everything is."""
    hidden = sorted(set(cells.panel.astype(str)) - set(panels), key=by_number)
    more = f"; {len(hidden) - _NAMED} more" if len(hidden) > _NAMED else ""
    return f" In the CSV alone: {'; '.join(hidden[:_NAMED])}{more}." if hidden else ""


def _synthetic_note(cells: pd.DataFrame) -> str:
    return " Hatched bars: synthetic acceptance." if cells.synthetic.any() else ""


def named(name: str, section: Section) -> str:
    """A plot's file name, told apart where a report has several sections."""
    return f"{name}-{section.slug}" if section.slug else name
