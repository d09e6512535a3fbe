"""The curves of a report: acceptance by depth, and speedup by category of prompt."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specla.report.escape import NAMELESS
from specla.report.evidence import passed_decodes
from specla.report.load import Loaded, rows_of
from specla.report.plots import hidden_panels, main_cells, panels_of
from specla.report.style import (
    LINES,
    MARKERS,
    SERIES_COLOURS,
    Plot,
    canvas,
    colour_of,
    house_rules,
    legend_columns,
    legend_text,
    panel_title,
    row_text,
    spread_of,
)
from specla.report.tables import Section


def depth_plot(section: Section, loaded: Loaded) -> Plot | None:
    """Left alpha by depth, right tau if drafts were cut at that depth; a row a workload, a line a tree and drafter."""
    cells = passed_decodes(main_cells(section))
    # The text is the same whatever verifies it, so that one cell speaks for all of a tree. An oracle's acceptance is a
    # dial: of the settings of a tree the one that emits most is drawn.
    told = (cells.drafter + " " + cells.asked).str.strip()
    cells = cells.assign(told=told, alike=cells.drafter.where(cells.drafter == "oracle", told))
    cells = cells.sort_values(["tau", "asked"], ascending=[False, True]).drop_duplicates(["panel", "shown", "alike"])
    cells = cells.assign(drafter=cells.told).sort_index()
    names = ["cell", "panel", "shown", "drafter", "synthetic", "tau"]
    data = loaded.depths.merge(cells[names].rename(columns={"tau": "pooled"}), on="cell")
    if data.empty:
        return None
    panels, everything = panels_of(data), data
    data = data[data.panel.isin(panels)]
    lines = sorted(set(zip(data.shown, data.drafter, strict=True)))
    last = everything.loc[everything.groupby(["panel", "shown", "drafter"]).depth.idxmax()].sort_values("pooled")
    best = last[~last.synthetic].iloc[-1] if not last.synthetic.all() else last.iloc[-1]
    whose = "" if best.synthetic or not last.synthetic.any() else "Of real drafts, "
    title = f"{whose}{best.shown} with {best.drafter} emits most: tau {best.pooled:.2f} tokens a step on {best.panel}"
    title += ", synthetic" if best.synthetic else ""
    note = "Left: share accepted among the steps that reached a depth, with Wilson's 95 % interval. Right: tokens per "
    note += "verify step if drafts were cut there, bonus included; AR has 1. The title's tau is the table's, of all "
    note += (
        "that was emitted: a line's end may lie above it, for it counts a bonus where EOS or the limit cut a step too. "
    )
    note += "The oracle's acceptance is synthetic. " if data.drafter.str.startswith("oracle").any() else ""
    note += f"{section.title}." + hidden_panels(cells, panels)
    with house_rules():
        figure, grid = canvas(2.25 * len(panels) + 0.45, title, note, len(panels), 2)
        for (left, right), panel in zip(grid, panels, strict=True):
            for place, (tree, drafter) in enumerate(lines):
                part = data[(data.panel == panel) & (data.shown == tree) & (data.drafter == drafter)]
                if part.empty:
                    continue
                _depth_lines(left, right, part, place, len(lines), legend_text(f"{tree}, {drafter}"))
            _depth_axes(left, right, panel, int(data.depth.max()))
            left.set_xlabel("draft depth" if panel == panels[-1] else "")
            right.set_xlabel("draft depth" if panel == panels[-1] else "")
        # A line may be missing in the first panel.
        drawn = {
            name: handle for left, _ in grid for handle, name in zip(*left.get_legend_handles_labels(), strict=True)
        }
        shown = [name for name in (legend_text(f"{tree}, {drafter}") for tree, drafter in lines) if name in drawn]
        handles = [drawn[name] for name in shown]
        figure.legend(handles, shown, loc="outside lower center", ncols=legend_columns(shown, 3))
    kept = ["panel", "shown", "drafter", "depth", "reached", "alpha", "alpha_low", "alpha_high", "tau"]
    name = f"depth-{section.slug}" if section.slug else "depth"
    return Plot(name, title, note, everything[kept].rename(columns={"shown": "tree"}), figure)


def _depth_lines(left: Axes, right: Axes, part: pd.DataFrame, place: int, of: int, label: str) -> None:
    # A little apart, so that the intervals of trees which accept alike do not hide each other.
    aside = 0.06 * (place - (of - 1) / 2)
    look: dict[str, Any] = {"color": SERIES_COLOURS[place % len(SERIES_COLOURS)], "lw": 1.5, "label": label}
    look |= {"marker": MARKERS[place % len(MARKERS)], "ms": 4.5, "ls": LINES[place % len(LINES)]}
    # Where colours and markers come round again they are hollow.
    look |= {"mfc": "white"} if place >= len(MARKERS) else {}
    spread = spread_of(part.alpha, part.alpha_low, part.alpha_high)
    left.errorbar(part.depth + aside, part.alpha, yerr=spread, capsize=2, elinewidth=0.9, **look)
    right.plot([0, *part.depth], [1.0, *part.tau], **look)


def _depth_axes(left: Axes, right: Axes, panel: str, deepest: int) -> None:
    left.set_ylim(0, 1.04)
    left.set_xlim(0.7, deepest + 0.3)
    left.set_xticks(range(1, deepest + 1, -(-deepest // 12)))
    left.set_ylabel("alpha")
    panel_title(left, panel, 2)
    right.set_ylim(bottom=0.9)
    right.set_xticks(range(0, deepest + 1, -(-deepest // 12)))
    right.set_ylabel("tau (tokens per step)")
    for axes in (left, right):
        axes.grid()


def category_plot(section: Section, loaded: Loaded, most: int = 4) -> Plot | None:
    """Speedup by category of prompt for the fastest methods, each with the tree that suits it best."""
    cells = passed_decodes(main_cells(section))
    names = [*("cell", "panel", "shown", "method", "verify", "speedup"), "synthetic"]
    data = loaded.categories.merge(cells[names].rename(columns={"speedup": "overall"}), on="cell")
    data = data[data.speedup.notna() & (data.verify != "ar")]
    data = data if data.synthetic.all() else data[~data.synthetic]
    # Categories are compared where they were decoded alike.
    if data.empty or data.groupby("panel").category.nunique().max() < 2:
        return None
    means = data.drop_duplicates("cell").groupby(["method", "shown"]).overall.mean().sort_values(ascending=False)
    best = means.reset_index().drop_duplicates("method").head(most)
    data = data.merge(best[["method", "shown"]], on=["method", "shown"])
    named = data.category.replace("", NAMELESS)
    data = data.assign(prompts=named if data.panel.nunique() == 1 else data.panel + ": " + named)
    order = list(data.groupby("prompts").speedup.max().sort_values(ascending=False).index)
    lead = data[data.method == best.iloc[0].method].set_index("prompts").speedup
    high, low = lead.idxmax(), lead.idxmin()
    title = f"{best.iloc[0].method} gains most on {high} ({lead[high]:.2f}x), least on {low} ({lead[low]:.2f}x)"
    if high == low:
        title = "Speedup by category of prompt"
    note = (
        "Speedup to AR by category of prompt, median and 95 % interval over repeats, for the fastest methods on their "
    )
    note += f"best tree; the line at 1 is AR. {section.title}."
    note += " Synthetic acceptance." if data.synthetic.any() else ""
    with house_rules():
        figure, grid = canvas(0.8 + max(0.16 * (len(best) + 1), 0.36) * len(order), title, note)
        _category_points(grid[0][0], data, order, best)
        labels = grid[0][0].get_legend_handles_labels()[1]
        figure.legend(loc="outside lower center", ncols=legend_columns(labels, 2))
    kept = ["panel", "category", "prompt_count", "method", "shown", "speedup", "low", "high", "n", "tau"]
    name = f"category-{section.slug}" if section.slug else "category"
    return Plot(name, title, note, data[kept].rename(columns={"shown": "tree"}), figure)


def _category_points(axes: Axes, data: pd.DataFrame, order: Sequence[str], best: pd.DataFrame) -> None:
    step = 0.8 / max(1, len(best))
    for place, choice in enumerate(rows_of(best)):
        part = data[data.method == choice.method].drop_duplicates("prompts")
        at = [order.index(name) - 0.4 + step * (place + 0.5) for name in part.prompts]
        colour = colour_of(str(part.iloc[0].verify)) if best.method.nunique() == data.verify.nunique() else ""
        axes.errorbar(
            part.speedup,
            at,
            xerr=spread_of(part.speedup, part.low, part.high),
            color=colour or SERIES_COLOURS[place % len(SERIES_COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            ms=5,
            ls="none",
            capsize=2.5,
            lw=1.2,
            label=legend_text(f"{choice.method} on {choice.shown}"),
        )
    axes.axvline(1.0, color="black", lw=1, ls=(0, (4, 2)))
    counts = data.groupby("prompts").prompt_count.max()
    axes.set_yticks(range(len(order)), [f"{row_text(name)}{_prompts_text(int(counts[name]))}" for name in order])
    axes.set_ylim(len(order) - 0.45, -0.55)
    for line in range(1, len(order)):
        axes.axhline(line - 0.5, color="#dddddd", lw=0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel("speedup to AR (x)")


def _prompts_text(count: int) -> str:
    return f"\n{count} prompt{'s' * (count != 1)}" if count else ""
