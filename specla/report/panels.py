"""What the plots of timed operations share: a grid of panels, log axes with plain figures, lines with their floor."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from specla.report.style import (
    BLACK,
    LINES,
    SERIES_COLOURS,
    canvas,
    legend_columns,
    legend_text,
    line_look,
    panel_title,
    spread_of,
)
from specla.report.tables import VERIFY_ORDER, by_number

RECOVER_ORDER = ("replay_tokens", "replay_cached", "snapshot", "factors", "factors_deferred", "factors_lazy")
ORDER = (*VERIFY_ORDER, *RECOVER_ORDER)
MOST_ROWS, MOST_COLUMNS = 3, 3
FLOOR, AT_ONCE = "floor", "at once"
"""Labels of lines that no strategy draws: they end a legend."""


@dataclass(frozen=True)
class Grid:
    """Panels by batch (downwards) and by kind of tree (across)."""

    batches: tuple[int, ...]
    columns: tuple[str, ...]
    left_out: str
    """What has no panel, as a sentence; empty where everything is drawn."""

    @property
    def turned(self) -> bool:
        """Whether batches run across: where there is one kind of tree only."""
        return len(self.columns) == 1 and len(self.batches) > 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        return (1, len(self.batches)) if self.turned else (len(self.batches), len(self.columns))

    def places(self) -> list[tuple[int, str]]:
        """(batch, column) of each panel, in reading order."""
        return [(batch, column) for batch in self.batches for column in self.columns]

    def title(self, batch: int, column: str) -> str:
        """What stands above a panel."""
        return f"{column}, batch {batch}"


def grid_of(cells: pd.DataFrame, column: str) -> Grid:
    """The panels worth drawing: the smallest, a middle and the largest batch, the kinds of tree with most cells."""
    batches = sorted(int(batch) for batch in cells.batch.unique())
    if len(batches) > MOST_ROWS:
        batches = [batches[0], batches[len(batches) // 2], batches[-1]]
    counts = {str(name): int(count) for name, count in cells[column].value_counts().items()}
    names = sorted(sorted(counts, key=lambda name: (-counts[name], name))[:MOST_COLUMNS], key=by_number)
    hidden = int((~cells.batch.isin(batches) | ~cells[column].isin(names)).sum())
    left_out = f" {hidden} cells of other batches or trees are in the CSV alone." if hidden else ""
    return Grid(tuple(batches), tuple(names), left_out)


def ordered_strategies(cells: pd.DataFrame, column: str) -> list[tuple[str, str]]:
    """(strategy, label) of every line, in the order of legends."""
    pairs = sorted({(str(row[0]), str(row[1])) for row in zip(cells[column], cells.label, strict=True)})
    return sorted(pairs, key=lambda pair: (ORDER.index(pair[0]) if pair[0] in ORDER else len(ORDER), pair[1]))


def looks(cells: pd.DataFrame, column: str) -> dict[str, dict[str, Any]]:
    """By label, in the order of legends, how its line looks in every panel.

    A strategy has its own colour and marker; of several lines of one, the second is dashed and hollow.
    """
    lines = ordered_strategies(cells, column)
    unknown = list(dict.fromkeys(strategy for strategy, _ in lines if strategy not in ORDER))
    found: dict[str, dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for strategy, label in lines:
        place = SERIES_COLOURS.index(BLACK) + unknown.index(strategy) if strategy in unknown else 0
        again = {"ls": LINES[seen[strategy] % len(LINES)], "mfc": "white"} if seen[strategy] else {}
        # `auto` is one of the others: a ring around the one that it picked hides none of them.
        ring = {"ls": "none", "mfc": "none", "marker": "o", "ms": 9, "mew": 1.4} if strategy == "auto" else {}
        found[label] = {**line_look(strategy, place), **again, **ring}
        seen[strategy] += 1
    return found


def draw_grid(
    cells: pd.DataFrame,
    grid: Grid,
    column: str,
    draw: Callable[[Axes, pd.DataFrame], None],
    heading: tuple[float, str, str],
) -> tuple[Figure, list[Axes]]:
    """A figure of `grid`, each panel drawn by `draw` from its cells; one without any says so.

    Args:
        cells: that are drawn.
        grid: of panels.
        column: of the cells, that names a panel's column.
        draw: is given the axes and the panel's cells.
        heading: inches a row of panels, title, note.
    """
    rows, columns = grid.shape
    height, title, note = heading
    figure, lines = canvas(height * rows + 0.45, title, note + grid.left_out, rows, columns)
    flat = [axes for line in lines for axes in line]
    for axes, (batch, name) in zip(flat, grid.places(), strict=True):
        here = cells[(cells.batch == batch) & (cells[column] == name)]
        panel_title(axes, grid.title(batch, name), columns)
        if here.empty:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="#777777", style="italic")
        else:
            axes.grid()
            draw(axes, here)
    return figure, flat


def time_lines(axes: Axes, cells: pd.DataFrame, lines: Mapping[str, dict[str, Any]], at: str) -> None:
    """Time against `at`, a line a strategy, with intervals, and the floor below them.

    Args:
        axes: to draw on.
        cells: of one panel.
        lines: of all panels, as `looks` has them.
        at: the column along x.
    """
    for label, look in lines.items():
        part = cells[cells.label == label].sort_values([at, "cell"])
        if len(part):
            spread = spread_of(part.time_us, part.time_low_us, part.time_high_us)
            axes.errorbar(part[at], part.time_us, yerr=spread, label=legend_text(label), **look)
    floor = cells[cells.floor_us > 0].groupby(at).floor_us.min()
    if len(floor):
        dashed: dict[str, Any] = {"color": BLACK, "lw": 1.2, "ls": (0, (4, 2)), "label": FLOOR}
        axes.plot(floor.index, floor, marker="_" if len(floor) == 1 else "", ms=14, **dashed)


def log_time_axis(axes: Axes, cells: pd.DataFrame) -> None:
    """Microseconds on a log axis with plain figures, its limits from all of `cells`, so that panels compare."""
    top = float(cells[["time_us", "time_high_us"]].max().max())
    bottom = float(cells[["time_us", "time_low_us", "floor_us"]].min().min())
    axes.set_yscale("log")
    axes.set_ylim(bottom / 1.5 if bottom > 0 else None, top * 1.5)
    reach = top / bottom if bottom > 0 else 10.0
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if reach < 300 else (1, 3) if reach < 3000 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def log_count_axis(axes: Axes, counts: Sequence[int]) -> None:
    """Counts on a log axis, a tick at each of them; a figure below it where the one before leaves room."""
    axes.set_xscale("log", base=2)
    low, high = min(counts), max(counts)
    axes.set_xlim(low / 1.2, high * 1.2)
    least = (high / low) ** (1 / 9)
    ticks: list[int] = []
    for count in sorted(set(counts)):
        if not ticks or count > ticks[-1] * max(least, 1.12):
            ticks.append(count)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(FixedLocator([count for count in sorted(set(counts)) if count not in ticks]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=3.5)


def shared_legend(figure: Figure, axes: Sequence[Axes], most: int = 4) -> None:
    """One legend below all panels, each entry once, in the order of strategies."""
    found: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        rows = math.ceil(len(found) / legend_columns(list(found), most))
        last = [label for label in found if label in (FLOOR, AT_ONCE)]
        names = [label for label in found if label not in last] + last
        figure.legend(
            [found[name] for name in names], names, loc="outside lower center", ncols=math.ceil(len(names) / rows)
        )


def figures(cells: pd.DataFrame, *extra: str) -> pd.DataFrame:
    """The columns of a plot's CSV."""
    names = ["topology", "shape", "nodes", "batch", "accepted", "verify", "recover", "label", "time_us"]
    return cells[[*names, "time_low_us", "time_high_us", "floor_us", "x_floor", *extra]]
