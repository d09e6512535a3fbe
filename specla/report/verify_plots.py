"""Pictures of `ablate verify`: time against nodes, and which strategy is fastest where."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from specla.report.escape import for_figure
from specla.report.load import rows_of
from specla.report.operations import AUTO_ASIDE, measured, winners
from specla.report.panels import (
    draw_grid,
    figures,
    grid_of,
    log_count_axis,
    log_time_axis,
    looks,
    shared_legend,
    time_lines,
)
from specla.report.plots import named
from specla.report.style import Plot, canvas, colour_of, house_rules, pale, panel_title
from specla.report.tables import Section

_SHORT = {"sequential_replay": "replay", "naive_batched": "naive", "parent_pointer": "pointer"}
_WIDEST = 8
"""Columns of a heat map that fit beside each other."""
_FEWEST = 3
"""A panel is as wide as this many columns even where it has fewer: a cell across the page is no map."""


def verify_time_plot(section: Section) -> Plot | None:
    """Time of one verification against nodes, a line a strategy, the floor below; panels by tree and batch."""
    cells = measured(section.kernels, "verify")
    cells = cells[cells.verify != "ar"]
    if cells.empty:
        return None
    grid = grid_of(cells, "shape")
    title = _time_title(cells)
    note = "Time of one layer's verification, median and 95 % interval over repeats, both axes logarithmic. The floor "
    note += f"is the bytes that must move over the bandwidth measured in the same run. {section.title}."

    lines = looks(cells, "verify")

    def draw(axes: Axes, here: pd.DataFrame) -> None:
        time_lines(axes, here, lines, "nodes")
        log_count_axis(axes, [int(count) for count in here.nodes])
        log_time_axis(axes, cells[cells.batch == here.batch.iloc[0]])

    with house_rules():
        figure, flat = draw_grid(cells, grid, "shape", draw, (2.35, title, note))
        _, columns = grid.shape
        for place, axes in enumerate(flat):
            axes.set_ylabel("time (us)" if place % columns == 0 else "")
            axes.set_xlabel("nodes, root included" if place >= len(flat) - columns else "")
        shared_legend(figure, flat)
    data = figures(cells, "error_rms").sort_values(["shape", "batch", "nodes", "verify"])
    return Plot(named("verify-time", section), title, note + grid.left_out, data, figure, "verify")


def _time_title(cells: pd.DataFrame) -> str:
    """The largest tree at the smallest batch: its fastest strategy beside sequential replay and the floor."""
    last = cells[cells.batch == cells.batch.min()]
    trees = last if last.chain.all() else last[~last.chain]
    last = trees[trees.nodes == trees.nodes.max()]
    named = last[last.verify != "auto"]
    best = next(rows_of((named if len(named) else last).sort_values(["time_us", "cell"])))
    told = f"{best.nodes} nodes verified in {micro(best.time_us)} by {best.label}"
    replay = last[last.verify == "sequential_replay"]
    if len(replay) and best.verify != "sequential_replay":
        told += f", in {micro(float(replay.time_us.iloc[0]))} by sequential replay"
    return told + (f"; the floor is {micro(best.floor_us)}" if best.floor_us > 0 else "")


def micro(time_us: float) -> str:
    """Microseconds with three figures: '4.20 us', '1,370 us'."""
    digits = 0 if time_us >= 100 else 1 if time_us >= 10 else 2
    rounded = float(f"{time_us:.3g}") if digits == 0 else time_us
    return f"{rounded:,.{digits}f} us"


def winner_plot(section: Section) -> Plot | None:
    """The fastest strategy by nodes and batch, a panel a kind of tree."""
    found = winners(section.kernels, section.ratios)
    if found.empty or (found.next == "").all():
        return None
    # Trees of one kind and size that differ in shape get a row of their own.
    twice = found.duplicated(["shape", "nodes", "batch"], keep=False).groupby(found["shape"]).transform("any")
    found = found.assign(panel=found["shape"].where(~twice, found.topology))
    title = winner_title(found)
    note = "The fastest strategy; below it how many times faster than sequential replay, then than the next one; '~' "
    note += "where the two are not told apart. Only cells that passed count. "
    note += f"{AUTO_ASIDE}. ".capitalize() if (section.kernels.verify == "auto").any() else ""
    note += f"{section.title}."
    long = [name for name in _SHORT if name in {"sequential_replay", *found.winner, *found.next}]
    note += f" Here {', '.join(f'{_SHORT[name]} is {name}' for name in long).replace('_', ' ')}."
    panels = sorted(found.panel.unique())
    sizes = [max(_FEWEST, found[found.panel == panel].nodes.nunique()) for panel in panels]
    beside = sum(sizes) <= _WIDEST
    batches = sorted(int(batch) for batch in found.batch.unique())
    tall = 0.52 * len(batches) + 0.45
    with house_rules():
        if beside:
            figure, grid = canvas(tall + 0.15, title, note, 1, len(panels), [size + 0.15 for size in sizes])
        else:
            figure, grid = canvas((tall + 0.25) * len(panels), title, note, len(panels), 1)
        flat = [axes for line in grid for axes in line]
        for place, (axes, panel) in enumerate(zip(flat, panels, strict=True)):
            here = found[found.panel == panel]
            _winner_cells(axes, here, batches, sizes[place] if not beside else sum(sizes))
            panel_title(axes, panel, len(panels) if beside else 1)
            axes.set_ylabel("batch" if place == 0 or not beside else "")
            axes.set_xlabel("nodes, root included" if place == len(panels) - 1 or beside else "", loc="left")
    return Plot(
        named("verify-best", section), title, note, found.drop(columns=["cell", "panel", "accepted"]), figure, "verify"
    )


def winner_title(found: pd.DataFrame) -> str:
    """Who wins how often, and against sequential replay by how much."""
    counts = {str(name): int(count) for name, count in found.winner.value_counts().items()}
    order = sorted(counts, key=lambda name: (-counts[name], name))
    total = len(found)
    lead = order[0].replace("_", " ")
    share = f"all {total}" if counts[order[0]] == total else f"{counts[order[0]]} of {total}"
    told = f"Fastest verification: {lead}" + (f" in {share} cases" if total > 1 else "")
    told += "".join(f", {name.replace('_', ' ')} in {counts[name]}" for name in order[1:])
    gains = found[found.gain.notna()].gain
    span = f"{gains.min():.1f}x to {gains.max():.1f}x" if len(gains) > 1 else f"{gains.max():.1f}x"
    return told + (f"; {span} sequential replay's speed" if len(gains) else "")


def _short(name: str, most: int) -> str:
    """A strategy's name in at most `most` letters."""
    shown = _SHORT.get(name, for_figure(name.replace("_", " ")))
    return shown if len(shown) <= most else shown[: most - 1].rstrip() + "\u2026"


def _winner_cells(axes: Axes, found: pd.DataFrame, batches: Sequence[int], columns: int) -> None:
    nodes = sorted(int(count) for count in found.nodes.unique())
    small = 6.6 if columns > 6 else 7.4
    # Letters that fit a cell beside '1.23x '.
    most = max(7, 92 // columns - 6)
    for row in rows_of(found):
        x, y = nodes.index(int(row.nodes)), batches.index(int(row.batch))
        colour = pale(colour_of(row.winner), 0.45 if row.sure else 0.25)
        axes.add_patch(Rectangle((x - 0.48, y - 0.47), 0.96, 0.94, color=colour, lw=0))
        middle: dict[str, Any] = {"ha": "center", "va": "center"}
        axes.text(x, y - 0.25, _short(row.winner, most), fontsize=small + 0.8, fontweight="bold", **middle)
        gain = f"{row.gain:.1f}x replay" if pd.notna(row.gain) else ""
        axes.text(x, y + 0.04, gain, fontsize=small, **middle)
        rival = _short(row.next, most)
        ahead = f"{row.ahead:.2f}x {rival}" if row.sure else f"~ {rival}"
        axes.text(x, y + 0.3, ahead if rival else "", fontsize=small, **middle)
    axes.set_xlim(-0.55, max(_FEWEST, len(nodes)) - 0.45)
    axes.set_ylim(len(batches) - 0.45, -0.55)
    axes.set_xticks(range(len(nodes)), [str(count) for count in nodes])
    axes.set_yticks(range(len(batches)), [str(batch) for batch in batches])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
