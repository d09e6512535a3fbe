"""Pictures of `ablate length`: how long to draft."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from specla.report.escape import bold
from specla.report.evidence import interval_text, passed_decodes
from specla.report.frames import LENGTH_SERIES
from specla.report.load import rows_of
from specla.report.panels import shared_legend
from specla.report.plots import MOST_PANELS, named
from specla.report.style import Plot, canvas, house_rules, legend_text, line_look, panel_title, spread_of
from specla.report.tables import Section, by_number, markdown, verify_rank


def length_cells(section: Section) -> pd.DataFrame:
    """The passed cells of sweeps over draft length, with `place` (the panel), `line` (the method) and `best`."""
    cells = passed_decodes(section.cells)
    cells = cells[cells.length_sweep & ~cells.baseline]
    if cells.empty:
        return cells.assign(place="", line="", best=False)
    drafts = (cells.drafter + " drafts " + cells.asked).str.strip()
    asked = np.where((cells.drafter == "oracle") & (cells.asked != ""), "alpha " + cells.asked, drafts)
    place = pd.Series(asked, index=cells.index) + cells["shape"].map(
        lambda name: "" if name == "chain" else f", {name}"
    )
    place = place + (", " + cells.panel if cells.panel.nunique() > 1 else "") + cells.text_told
    line = cells.method.str.replace(r", alpha [\d.]+$", "", regex=True)
    cells = cells.assign(place=place, line=line)
    top = cells.groupby(list(LENGTH_SERIES), dropna=False).speedup.transform("max")
    return cells.assign(best=cells.speedup == top).sort_values(["place", "line", "levels", "cell"])


def length_plot(section: Section) -> Plot | None:
    """Speedup against draft levels, a line a method, a panel an acceptance; the best length is ringed."""
    cells = length_cells(section)
    if cells.empty:
        return None
    panels = sorted(cells.place.unique(), key=by_number)[: 2 * MOST_PANELS]
    title = length_title(cells)
    note = "Speedup to AR against the levels of drafts, median and 95 % interval over repeats; a ring marks the best "
    note += f"length of a line, the line at 1 is AR.{' Synthetic acceptance.' if cells.synthetic.any() else ''} "
    note += f"{section.title}."
    columns = min(len(panels), MOST_PANELS)
    rows = -(-len(panels) // columns)
    lines = sorted({(verify_rank(str(row.verify)), str(row.line), str(row.verify)) for row in rows_of(cells)})
    top = float(np.nanmax(cells[["speedup", "high"]].to_numpy(dtype=float)))
    with house_rules():
        figure, grid = canvas(2.5 * rows + 0.3, title, note, rows, columns)
        flat = [axes for line in grid for axes in line]
        for axes, panel in zip(flat, panels, strict=False):
            for place, (_, name, verify) in enumerate(lines):
                alone = sum(other == verify for _, _, other in lines) == 1
                part = cells[(cells.place == panel) & (cells.line == name)]
                _length_line(axes, part, line_look(verify if alone else "", place), name)
            axes.axhline(1.0, color="black", lw=1, ls=(0, (4, 2)))
            axes.grid()
            axes.set_ylim(0, top * 1.08)
            panel_title(axes, panel, columns)
            levels = sorted(int(level) for level in cells.levels.unique())
            axes.set_xticks(levels if len(levels) <= 10 else levels[:: -(-len(levels) // 10)])
            axes.set_xlabel("draft levels")
        for axes in flat[len(panels) :]:
            axes.set_visible(False)
        for line in grid:
            line[0].set_ylabel("speedup to AR (x)")
        shared_legend(figure, flat)
    names = [
        "panel",
        "shape",
        "line",
        "drafter",
        "alpha_asked",
        "levels",
        "nodes",
        "speedup",
        "low",
        "high",
        "n",
        "tau",
    ]
    data = cells[[*names, "draft_efficiency", "best"]].rename(columns={"line": "method"})
    return Plot(named("speedup-length", section), title, note, data, figure)


def _length_line(axes: Axes, part: pd.DataFrame, look: dict[str, Any], name: str) -> None:
    if part.empty:
        return
    axes.errorbar(
        part.levels, part.speedup, yerr=spread_of(part.speedup, part.low, part.high), label=legend_text(name), **look
    )
    best = part[part.best]
    axes.plot(best.levels, best.speedup, ls="none", marker="o", ms=10, mfc="none", mec=look["color"], mew=1.3)


def length_title(cells: pd.DataFrame) -> str:
    """The best length of the fastest method at each acceptance."""
    told = []
    for place in sorted(cells.place.unique(), key=by_number):
        best = next(rows_of(cells[cells.place == place].sort_values(["speedup", "cell"], ascending=[False, True])))
        told.append(f"{int(best.levels)} level{'s' * (best.levels != 1)} at {place} ({best.line}, {best.speedup:.2f}x)")
    more = f"; {len(told) - 3} more in the CSV" if len(told) > 3 else ""
    return f"Best draft length: {'; '.join(told[:3])}{more}"


def length_markdown(section: Section) -> str:
    """Speedup by draft length, a row a line of the plot, the best in bold."""
    cells = length_cells(section)
    if cells.empty:
        return ""
    levels = sorted(int(level) for level in cells.levels.unique())
    rows = []
    for (place, line), part in cells.groupby(["place", "line"], sort=False):
        by_level = {int(row.levels): row for row in rows_of(part)}
        shown = []
        for level in levels:
            row = by_level.get(level)
            text = interval_text(row.speedup, row.low, row.high) if row is not None else "-"
            shown.append(bold(text) if row is not None and row.best else text)
        rows.append([str(place), str(line), *shown])
    return markdown(("drafts", "method", *(f"{level} level{'s' * (level != 1)}" for level in levels)), rows)


def length_sentences(section: Section) -> list[str]:
    """How far it pays to draft at each acceptance, for the fastest method there."""
    cells = length_cells(section)
    if cells.empty:
        return []
    title = length_title(cells)
    return [f"With synthetic acceptance, {title[0].lower()}{title[1:]}." if cells.synthetic.all() else f"{title}."]
