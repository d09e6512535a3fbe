"""Pictures of `ablate recover` and `ablate defer`: what a commit costs, and what putting it off gains."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from specla.report.load import rows_of
from specla.report.operations import DEFER, RECOVER, against, extremes, measured, where
from specla.report.panels import (
    AT_ONCE,
    MOST_COLUMNS,
    draw_grid,
    figures,
    grid_of,
    log_time_axis,
    looks,
    shared_legend,
    time_lines,
)
from specla.report.plots import named
from specla.report.style import Plot, canvas, house_rules, legend_text, panel_title, spread_of
from specla.report.tables import Section, by_number


def recover_plot(section: Section) -> Plot | None:
    """Time of one commit against accepted drafts, a line a strategy, the floor below; panels by tree and batch."""
    cells = measured(section.kernels, "recover")
    cells = cells[cells.accepted.notna()]
    if cells.empty:
        return None
    grid = grid_of(cells, "topology")
    title = _recover_title(section, cells)
    note = "Time of one layer's commit, median and 95 % interval over repeats, on a logarithmic axis; the root is "
    note += "committed with the accepted drafts. The floor is the bytes that must move over the bandwidth measured in "
    note += f"the same run. {section.title}."
    least, most = int(cells.accepted.min()), int(cells.accepted.max())
    lines = looks(cells, "recover")

    def draw(axes: Axes, here: pd.DataFrame) -> None:
        time_lines(axes, here, lines, "accepted")
        log_time_axis(axes, cells[cells.batch == here.batch.iloc[0]])
        axes.set_xticks(range(least, most + 1, -(-(most - least) // 10) or 1))
        axes.set_xlim(least - 0.06 * (most - least) - 0.1, most + 0.06 * (most - least) + 0.1)

    with house_rules():
        figure, flat = draw_grid(cells, grid, "topology", draw, (2.2, title, note))
        _, columns = grid.shape
        for place, axes in enumerate(flat):
            axes.set_ylabel("time (us)" if place % columns == 0 else "")
            axes.set_xlabel("accepted drafts" if place >= len(flat) - columns else "")
        shared_legend(figure, flat)
    data = figures(cells, "error_rms").sort_values(["topology", "batch", "accepted", "label"])
    return Plot(named("recover-time", section), title, note + grid.left_out, data, figure, "recover")


def _recover_title(section: Section, cells: pd.DataFrame) -> str:
    """Compact factors beside token replay; without the pair, the fastest."""
    rows = against(cells, section.ratios, RECOVER)
    rows = rows[rows.recover == RECOVER.ours]
    if rows.empty:
        best = next(rows_of(cells.sort_values(["time_us", "cell"])))
        return f"{best.label} commits fastest, {best.time_us:.3g} us on {where(best)}"
    low, high = extremes(rows)
    if len(rows) == 1:
        return f"Commits from factors take 1/{low.ratio:.1f} of token replay's time on {where(low)}"
    if low.ratio < 1:
        best = f"up to {high.ratio:.1f}x token replay's speed"
        return f"Commits from factors: {best}, but {low.ratio:.2f}x on {where(low)}"
    return f"Commits from factors are {low.ratio:.1f}x to {high.ratio:.1f}x as fast as token replay"


def defer_plot(section: Section) -> Plot | None:
    """A commit with the next verification: at once over deferred and lazy, by batch, a panel a tree."""
    rows = against(section.kernels, section.ratios, DEFER)
    if rows.empty:
        return None
    several = rows.accepted.nunique() > 1
    place = rows.topology + (rows.accepted.map(lambda n: f", {n:g} accepted") if several else "")
    rows = rows.assign(panel=place)
    counts = rows.panel.value_counts()
    panels = sorted(sorted(counts.index, key=lambda name: (-int(counts[name]), name))[:MOST_COLUMNS], key=by_number)
    title = _defer_title(rows)
    low, high = DEFER.band
    note = "A commit and the next verification done at once, over the same put off: median and 95 % interval over "
    note += f"repeats; above 1 putting off is faster. Shaded: the paper's {low:.2f}x to {high:.2f}x. {section.title}."
    hidden = int((~rows.panel.isin(panels)).sum())
    note += f" {hidden} cells of other trees are in the CSV alone." if hidden else ""
    batches = sorted(int(batch) for batch in rows.batch.unique())
    lines, limits = looks(rows, "recover"), _defer_limits(rows)
    note += " Intervals beyond a panel are cut." if limits[1] < float(rows.ratio_high.max()) else ""
    with house_rules():
        figure, grid = canvas(2.75, title, note, 1, len(panels))
        for column, (axes, panel) in enumerate(zip(grid[0], panels, strict=True)):
            _defer_points(axes, rows[rows.panel == panel], batches, lines)
            panel_title(axes, panel, len(panels))
            axes.set_ylim(*limits)
            axes.set_xlabel("batch")
            axes.set_ylabel("time at once / time (x)" if column == 0 else "")
        shared_legend(figure, grid[0], most=4)
    names = ["topology", "batch", "accepted", "verify", "recover", "label", "time_us", "time_low_us", "time_high_us"]
    data = rows[[*names, "ratio", "ratio_low", "ratio_high", "ratio_n", "floor_us", "x_floor", "error_rms"]]
    data = data.sort_values(["topology", "batch", "accepted", "label"])
    return Plot(named("defer-ratio", section), title, note, data, figure, "defer")


def _defer_limits(rows: pd.DataFrame) -> tuple[float, float]:
    """Wide enough for every median and the paper's band; an interval that noise drew out may run off the panel."""
    most = max(float(rows.ratio.max()), DEFER.band[1])
    low = min(float(rows[["ratio", "ratio_low"]].min().min()), 1.0)
    high = min(max(float(rows[["ratio", "ratio_high"]].max().max()), most), 1.6 * most)
    room = 0.06 * (high - low)
    return low - room, high + room


def _defer_title(rows: pd.DataFrame) -> str:
    told: list[str] = []
    for name, words in ((DEFER.ours, "Deferred commits"), *((lazy, "a lazy ring") for lazy in DEFER.beside)):
        part = rows[rows.recover == name]
        if len(part):
            low, high = part.ratio.min(), part.ratio.max()
            span = f"{low:.2f}x to {high:.2f}x" if len(part) > 1 else f"{low:.2f}x"
            told.append(f"{words}: {span}{'' if told else ' the speed of commits at once'}")
    return "; ".join(told) or "Nothing but commits at once was measured"


def _defer_points(axes: Axes, rows: pd.DataFrame, batches: list[int], lines: Mapping[str, dict[str, Any]]) -> None:
    axes.axhspan(*DEFER.band, color="#eeeeee", lw=0, zorder=0)
    axes.axhline(1.0, color="black", lw=1, ls=(0, (4, 2)), label=AT_ONCE)
    axes.grid(axis="y")
    here = [label for label in lines if (rows.label == label).any()]
    step = min(0.16, 0.7 / max(1, len(here)))
    for place, label in enumerate(here):
        part = rows[rows.label == label].sort_values(["batch", "cell"])
        at = np.array([batches.index(int(batch)) for batch in part.batch]) + step * (place - (len(here) - 1) / 2)
        look = {**lines[label], "ls": "none", "ms": 5.5, "mew": 1.4}
        axes.errorbar(
            at,
            part.ratio,
            yerr=spread_of(part.ratio, part.ratio_low, part.ratio_high),
            label=legend_text(label),
            **look,
        )
    axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
    axes.set_xlim(-0.6, len(batches) - 0.4)
