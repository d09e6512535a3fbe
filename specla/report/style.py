"""How every plot looks: colours that the colour-blind tell apart (Okabe and Ito), sizes for a page 880 pixels wide."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import fill, wrap
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from specla.report.escape import for_figure

WIDTH_INCHES = 8.0
DPI = 160
ROW_LETTERS = 52
"""Of what stands beside a row."""
LEGEND_LETTERS = 118
"""Of a line of a legend below its panels, its lines and markers aside."""
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    *("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"),
)
GREY = "#666666"
OLIVE = "#8C7A00"
"""Yellow is a fine bar and a poor line: this stands for it there."""
VERIFY_COLOURS = {
    "ar": GREY,
    "sequential_replay": ORANGE,
    "naive_batched": YELLOW,
    "parent_pointer": PURPLE,
    "chain": SKY,
    "tree": BLUE,
    "hybrid": GREEN,
    "auto": VERMILION,
}
RECOVER_COLOURS = {
    "replay_tokens": ORANGE,
    "replay_cached": OLIVE,
    "snapshot": PURPLE,
    "factors": BLUE,
    "factors_deferred": GREEN,
    "factors_lazy": VERMILION,
}
SPLIT_COLOURS = {"draft": ORANGE, "verify": BLUE, "accept": YELLOW, "commit": GREEN}
SERIES_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
_LINE_COLOURS = {**VERIFY_COLOURS, **RECOVER_COLOURS, "naive_batched": OLIVE}
_LINE_MARKERS = {
    **{"sequential_replay": "o", "naive_batched": "v", "parent_pointer": "P", "chain": "D", "tree": "s", "hybrid": "^"},
    **{"auto": "X", "replay_tokens": "o", "replay_cached": "v", "snapshot": "P", "factors": "s"},
    **{"factors_deferred": "^", "factors_lazy": "D"},
}
_TEXT_WIDTH = 0.98
"""Of the page, for its heading."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
_RULES: Any = {
    # Names and categories are data: a dollar sign in them begins no formula.
    "text.parse_math": False,
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@dataclass(frozen=True)
class Plot:
    """A finished picture, the sentence it shows, and the figures behind it."""

    name: str
    """Of the PNG and the CSV, without ending."""
    title: str
    note: str
    """What is drawn, units and intervals."""
    data: pd.DataFrame
    figure: Figure
    about: str = "e2e"
    """The part of its section that it belongs to: e2e, or the operation: verify, recover, defer."""

    def png(self, path: str) -> None:
        """Write the picture; the same figures give the same bytes with the same matplotlib."""
        with house_rules():
            self.figure.savefig(path, dpi=DPI, metadata={"Software": None})


@contextmanager
def house_rules() -> Iterator[None]:
    """Our defaults, for as long as the block lasts."""
    with matplotlib.rc_context(_RULES):
        yield


def canvas(
    height: float,
    title: str,
    note: str,
    rows: int = 1,
    columns: int = 1,
    widths: Sequence[float] | None = None,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure `height` inches tall below its heading: what was found, in bold, and below it what is drawn.

    Args:
        height: inches for the panels.
        title: what was found.
        note: what is drawn.
        rows: of panels.
        columns: of panels.
        widths: of the columns, in proportion; None makes them equal.
    """
    bold, plain = wrap(for_figure(title), 95), wrap(for_figure(note), 134)
    head = 0.12 + 0.19 * len(bold) + 0.16 * len(plain)
    total = height + head
    figure = Figure(figsize=(WIDTH_INCHES, total))
    FigureCanvasAgg(figure)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0.005, 0.01, 0.985, 1 - head / total - 0.015)))
    below = 1 - (0.09 + 0.19 * len(bold)) / total
    look: dict[str, Any] = {"va": "top", "linespacing": 1.25}
    heading = figure.text(0.012, 1 - 0.07 / total, "\n".join(bold), fontsize=10.5, fontweight="bold", **look)
    _fit(heading, figure)
    _fit(figure.text(0.012, below, "\n".join(plain), fontsize=8, color="#444444", **look), figure)
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=widths)
    return figure, [list(line) for line in grid]


def _fit(text: Text, figure: Figure) -> None:
    """Lines are broken by their letters: those of wide ones are drawn smaller."""
    width = text.get_window_extent().width / figure.bbox.width
    if width > _TEXT_WIDTH:
        text.set_fontsize(float(text.get_fontsize()) * _TEXT_WIDTH / width)


def row_text(text: str) -> str:
    """What stands beside a row, however long it was: the panels keep most of the page's width."""
    return for_figure(text, ROW_LETTERS)


def legend_text(text: str) -> str:
    """An entry of a legend below its panels, however long it was."""
    return for_figure(text, LEGEND_LETTERS)


def panel_title(axes: Axes, text: str, columns: int = 1, beside: int = 0) -> None:
    """What stands above one of so many panels side by side, in lines that do not reach into the next.

    Args:
        axes: of the panel.
        text: of any length.
        columns: of panels.
        beside: letters of what stands to the left of them all.
    """
    letters = int(102 - 0.75 * beside) // columns
    axes.set_title(fill(for_figure(text, 2 * ROW_LETTERS), letters), loc="left", fontweight="bold")


def legend_columns(labels: Sequence[str], most: int) -> int:
    """How many entries of a legend the page's width has room for, side by side."""
    return max(1, min(most, len(labels), LEGEND_LETTERS // max(map(len, labels), default=1)))


def colour_of(verify: str, place: int = 0) -> str:
    """A strategy's own colour; one that is not ours gets the next of the series."""
    return VERIFY_COLOURS.get(verify, SERIES_COLOURS[place % len(SERIES_COLOURS)])


def line_look(strategy: str, place: int = 0) -> dict[str, Any]:
    """Colour and marker of a strategy's line, the same in every plot; one that is not ours gets the series' next."""
    return {
        "color": _LINE_COLOURS.get(strategy, SERIES_COLOURS[place % len(SERIES_COLOURS)]),
        "marker": _LINE_MARKERS.get(strategy, MARKERS[place % len(MARKERS)]),
        "ms": 4.5,
        "lw": 1.4,
        "capsize": 2,
        "elinewidth": 0.9,
    }


def pale(colour: str, part: float = 0.45) -> tuple[float, float, float]:
    """A colour thinned with white, so that black figures read on it."""
    red, green, blue = to_rgb(colour)
    return (1 - part * (1 - red), 1 - part * (1 - green), 1 - part * (1 - blue))


def spread_of(middle: pd.Series, low: pd.Series, high: pd.Series) -> np.ndarray:
    """Error bars' lengths; none where there is no interval."""
    return np.vstack([(middle - low).fillna(0.0).clip(lower=0), (high - middle).fillna(0.0).clip(lower=0)])
