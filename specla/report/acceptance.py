"""Pictures of `ablate acceptance`: speedup against alpha and against draft_efficiency, and where it starts to pay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from specla.report.evidence import BreakEven, break_even_of, sweeps
from specla.report.load import SETTING, Loaded
from specla.report.plots import named
from specla.report.style import Plot, canvas, house_rules, line_look, panel_title, row_text, spread_of
from specla.report.tables import Section, verify_rank

DIALS = {"alpha_asked": "alpha asked", "draft_efficiency": "draft_efficiency (accepted / drafted)"}
"""What a sweep is drawn against, and what it is called."""
MOST_TREES = 4


@dataclass(frozen=True)
class Curve:
    """One sweep with its labels, and where it crosses 1 along each dial."""

    points: pd.DataFrame
    evens: dict[str, BreakEven]

    @property
    def first(self) -> Any:
        """One of its cells, for what they share."""
        return self.points.iloc[0]


def acceptance_plot(section: Section, loaded: Loaded) -> Plot | None:
    """Speedup against the acceptance asked of the oracle and what became of it; a row a tree, break-evens marked."""
    found = _curves(section, loaded)
    if not found:
        return None
    several = len({curve.first.panel for curve in found}) > 1
    places = [f"{c.first.shown}, {c.first.panel}" if several else str(c.first.shown) for c in found]
    trees = sorted(set(places))[:MOST_TREES]
    dials = [dial for dial in DIALS if all(curve.points[dial].notna().all() for curve in found)]
    title = acceptance_title(found)
    note = "Speedup to AR against the share of first-rank drafts that the oracle gets right, and against the share of "
    note += "all drafts that was accepted; median and 95 % interval over repeats. "
    drawn = [curve for curve, place in zip(found, places, strict=True) if place in trees]
    if any(curve.evens[dial].interval.median is not None for curve in drawn for dial in dials):
        note += "A diamond and its bar: break-even and its interval. "
    note += f"Synthetic acceptance. {section.title}."
    note += (
        f" {len(set(places)) - len(trees)} more trees are in the CSV alone." if len(set(places)) > len(trees) else ""
    )
    with house_rules():
        figure, grid = canvas(2.75 * len(trees), title, note, len(trees), len(dials))
        top = max(float(np.nanmax(curve.points[["speedup", "high"]].to_numpy(dtype=float))) for curve in found)
        for line, tree in zip(grid, trees, strict=True):
            here = [curve for curve, place in zip(found, places, strict=True) if place == tree]
            for axes, dial in zip(line, dials, strict=True):
                _lines(axes, here, dial)
                axes.set_ylim(0, top * (1.1 + 0.085 * len(here)))
                axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
                axes.set_xlabel(DIALS[dial] if line is grid[-1] else "")
            panel_title(line[0], tree, len(dials))
            line[0].set_ylabel("speedup to AR (x)")
    return Plot(named("speedup-alpha", section), title, note, pd.concat([_figures(curve) for curve in found]), figure)


def _curves(section: Section, loaded: Loaded) -> list[Curve]:
    setting = (section.device, section.model, section.dtype)
    labels = section.cells.set_index("cell")[["method", "panel", "shown"]]
    found = []
    for sweep in sweeps(loaded):
        if tuple(sweep.iloc[0][list(SETTING)]) == setting:
            points = sweep.join(labels, on="cell")
            points = points.assign(method=points.method.str.replace(r", alpha [\d.]+( paid.*)?$", "", regex=True))
            found.append(Curve(points, {dial: break_even_of(loaded, sweep, dial) for dial in DIALS}))
    return sorted(found, key=lambda curve: (verify_rank(str(curve.first.verify)), str(curve.first.method)))


def acceptance_title(found: Sequence[Curve]) -> str:
    """Which method pays first, from which alpha and share of accepted drafts on; then the one that pays last."""
    throughout = [curve for curve in found if curve.evens["alpha_asked"].side == "below"]
    if throughout:
        row = throughout[0].first
        return f"{row.method} on {row.shown} pays at every alpha swept, from {row.alpha_asked:g} on"
    reached = [(c.evens["alpha_asked"].interval.median, c) for c in found]
    crossed = sorted(((at, curve) for at, curve in reached if at is not None), key=lambda pair: pair[0])
    if not crossed:
        return f"Speculation does not pay at any alpha up to {max(c.points.alpha_asked.max() for c in found):g}"
    value, best = crossed[0]
    share = best.evens["draft_efficiency"].interval.median
    title = f"{best.first.method} on {best.first.shown} pays from alpha {value:.2f}"
    title += f", {100 * share:.0f} % of drafts accepted" if share is not None else ""
    worst, other = crossed[-1]
    return title + (f"; {other.first.method} on {other.first.shown} from {worst:.2f}" if len(crossed) > 1 else "")


def even_text(even: BreakEven, dial: str = "") -> str:
    """A break-even in a few words, with its interval; `dial` names what was swept."""
    found = even.interval
    if found.median is None:
        return "pays throughout" if even.side == "below" else "does not pay"
    span = f" ({found.low:.2f} to {found.high:.2f})" if found.has_bounds else ""
    return f"pays from {dial}{found.median:.2f}{span}"


def _lines(axes: Axes, here: Sequence[Curve], dial: str) -> None:
    axes.axhline(1.0, color="black", lw=1, ls=(0, (4, 2)))
    axes.grid()
    for place, curve in enumerate(here):
        row, even = curve.first, curve.evens[dial]
        alone = sum(other.first.verify == row.verify for other in here) == 1
        look = line_look(str(row.verify) if alone else "", place)
        points = curve.points.sort_values(dial, kind="stable")
        spread = spread_of(points.speedup, points.low, points.high)
        label = f"{row_text(row.method)}: {even_text(even)}"
        axes.errorbar(points[dial], points.speedup, yerr=spread, label=label, **{**look, "ms": 3.8})
        found = even.interval
        if found.median is not None:
            bar = None if not found.has_bounds else [[found.median - found.low], [found.high - found.median]]  # type: ignore[operator]
            diamond: dict[str, Any] = {"marker": "D", "ms": 6, "mfc": "white", "mec": look["color"], "mew": 1.6}
            axes.errorbar(found.median, 1.0, xerr=bar, ecolor=look["color"], elinewidth=2.2, zorder=5, **diamond)
    axes.legend(loc="upper left", borderaxespad=0.2, frameon=True, framealpha=1.0, edgecolor="none")


def _figures(curve: Curve) -> pd.DataFrame:
    """The rows of one sweep in the CSV."""
    kept = ["panel", "shown", "method", "alpha_asked", "draft_efficiency", "speedup", "low", "high", "n"]
    data = curve.points[kept].rename(columns={"shown": "tree"})
    for dial, name in (("alpha_asked", "alpha"), ("draft_efficiency", "draft_efficiency")):
        found = curve.evens[dial].interval
        data = data.assign(
            **{
                f"break_even_{name}": found.median,
                f"break_even_{name}_low": found.low,
                f"break_even_{name}_high": found.high,
            }
        )
    return data
