"""Speedup by batch: for which trees and which acceptance speculation still pays where rows share the weights."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from specla.report.evidence import passed_decodes
from specla.report.load import rows_of
from specla.report.plots import named
from specla.report.style import BLUE, GREY, VERMILION, Plot, canvas, house_rules, pale, row_text
from specla.report.tables import Section, number, panel_labels

_STRONGEST = 3.0
"""The speedup whose colour is the deepest; a slowdown's is at one over it."""


def batch_cells(section: Section) -> pd.DataFrame:
    """The passed cells of trees and acceptances that were measured at several batches, the fastest method of each.

    Returns:
        With `line`, what was drafted, and `verdict`: pays, does not pay, or unsure.
    """
    cells = passed_decodes(section.cells)
    cells = cells[~cells.baseline & (cells.verify != "ar") & (cells.engine == "specla")]
    asked = cells.asked.where(cells.asked == "", " " + cells.asked)
    # The batch is a column; what else tells places apart stands in the line.
    cells = cells.assign(line=cells.shown + ", " + cells.drafter + asked, place=panel_labels(cells.assign(batch=0)))
    cells = cells[cells.groupby(["line", "place"]).batch.transform("nunique") > 1]
    if cells.place.nunique() > 1:
        cells = cells.assign(line=cells.line + ", " + cells.place)
    cells = cells.sort_values(["speedup", "cell"], ascending=[False, True])
    cells = cells.drop_duplicates(["line", "batch"])
    verdict = pd.Series("unsure", index=cells.index)
    verdict[cells.low > 1] = "pays"
    verdict[cells.high < 1] = "does not pay"
    return cells.assign(verdict=verdict).sort_values(["line", "batch"])


def batch_plot(section: Section) -> Plot | None:
    """A heat map: a row for what was drafted, a column a batch."""
    cells = batch_cells(section)
    if cells.empty:
        return None
    # Best first, by the smallest batch that a line has.
    first = cells.sort_values("batch").groupby("line").speedup.first()
    lines = sorted(first.index, key=lambda line: (-float(first[line]), line))
    batches = sorted(int(batch) for batch in cells.batch.unique())
    title = _title(cells)
    note = (
        "Speedup to AR at the same batch, median over repeats; '~' where its 95 % interval includes 1. Of several ways "
    )
    note += (
        f"to verify one draft the fastest.{' Synthetic acceptance.' if cells.synthetic.any() else ''} {section.title}."
    )
    with house_rules():
        figure, grid = canvas(0.34 * len(lines) + 0.6, title, note)
        axes = grid[0][0]
        for row in rows_of(cells):
            _draw(axes, row, batches.index(int(row.batch)), lines.index(str(row.line)))
        axes.set_xlim(-0.5, len(batches) - 0.5)
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
        axes.set_yticks(range(len(lines)), list(map(row_text, lines)))
        axes.set_xlabel("batch")
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
    kept = ["line", "batch", "nodes", "verify", "recover", "speedup", "low", "high", "verdict", "tau", "tok_s"]
    return Plot(named("speedup-batch", section), title, note, cells[kept], figure)


def _draw(axes: Axes, row: Any, x: int, y: int) -> None:
    gain = min(max(float(row.speedup), 1 / _STRONGEST), _STRONGEST)
    deep = abs(gain - 1) / (_STRONGEST - 1) if gain >= 1 else (1 / gain - 1) / (_STRONGEST - 1)
    colour = GREY if row.verdict == "unsure" else BLUE if row.verdict == "pays" else VERMILION
    axes.add_patch(Rectangle((x - 0.49, y - 0.46), 0.98, 0.92, color=pale(colour, 0.12 + 0.55 * deep), lw=0))
    told = f"{'~ ' if row.verdict == 'unsure' else ''}{row.speedup:.2f}x"
    axes.text(
        x, y, told, ha="center", va="center", fontsize=8, fontweight="bold" if row.verdict == "pays" else "normal"
    )


def _title(cells: pd.DataFrame) -> str:
    best = cells.sort_values("speedup", ascending=False).drop_duplicates("batch").sort_values("batch")
    told = ", ".join(f"{number(row.speedup, 2)}x at batch {int(row.batch)}" for row in rows_of(best))
    return f"The best of what was drafted: {told}"


def batch_sentences(section: Section) -> list[str]:
    """In words: at which batch drafting what does not pay."""
    cells = batch_cells(section)
    found = []
    for batch, group in cells.groupby("batch", sort=True):
        losing, unsure = group[group.verdict == "does not pay"], group[group.verdict == "unsure"]
        told = f"At batch {batch} drafting pays in {int((group.verdict == 'pays').sum())} of {len(group)} cases"
        if len(losing):
            worst = losing.sort_values("speedup")
            names = "; ".join(f"{row.line} ({number(row.speedup, 2)}x)" for row in rows_of(worst))
            told += f", and does not with {names}"
        if len(unsure):
            told += f"; {len(unsure)} not told apart from AR"
        found.append(told + ".")
    return found
