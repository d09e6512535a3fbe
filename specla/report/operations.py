"""What the timed operations show: how a strategy stands to its baseline over all cells, and which is fastest where."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specla.bench.stats import Interval
from specla.report.evidence import Evidence, hides_band, interval_text, noise_text, setting_differs
from specla.report.load import SETTING, Loaded, rows_of


@dataclass(frozen=True)
class Operation:
    """One ablation of a single operation, and the claim that is read off it."""

    kind: str
    varied: str
    """The column that names its strategies."""
    ours: str
    """The strategy of the claim."""
    baseline: str
    """What the claim holds it against."""
    band: tuple[float, float]
    """The range that the paper gives."""
    beside: tuple[str, ...] = ()
    """Strategies of ours that the claim does not know, to be told beside it."""
    trees_only: bool = False


VERIFY = Operation("verify", "verify", "hybrid", "sequential_replay", (1.80, 7.11), ("tree",), trees_only=True)
RECOVER = Operation("recover", "recover", "factors", "replay_tokens", (2.74, 4.28))
DEFER = Operation("defer", "recover", "factors_deferred", "factors", (1.15, 1.44), ("factors_lazy",))
OPERATIONS: Mapping[str, Operation] = {"VERIFY": VERIFY, "RECOVER": RECOVER, "DEFER": DEFER}
BY_KIND: Mapping[str, Operation] = {operation.kind: operation for operation in OPERATIONS.values()}

AUTO_ASIDE = "auto is left out: it runs one of the others"
"""Said wherever the fastest is named."""
POINT = ("shape", "topology", "nodes", "batch", "accepted", "variant")
"""The columns that strategies compared with each other share, within a setting."""


def where_columns(cells: pd.DataFrame, kind: str) -> list[str]:
    """The columns that name a point of an ablation in a table; a dial that is not turned is left out."""
    several = [name for name in ("variant",) if cells[name].nunique() > 1]
    if kind == "verify":
        return ["topology", "batch", *several]
    accepted = ["accepted"] if kind == "recover" or cells.accepted.nunique() > 1 else []
    return ["topology", "batch", *accepted, *(["verify"] if kind == "defer" else []), *several]


def measured(cells: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The operations of a kind that passed, with a time."""
    return cells[(cells.kind == kind) & (cells.status == "passed") & cells.time_us.notna()]


def against(cells: pd.DataFrame, ratios: pd.DataFrame, operation: Operation) -> pd.DataFrame:
    """Passed cells with `ratio`, `ratio_low`, `ratio_high`, `ratio_n`: the operation's baseline over each."""
    over = ratios[(ratios.over == operation.baseline) & ratios.ratio.notna()]
    found = measured(cells, operation.kind).merge(over.drop(columns="over"), on="cell")
    return found[found[operation.varied] != operation.baseline]


def extremes(rows: pd.DataFrame) -> tuple[Any, Any]:
    """The rows with the lowest and the highest ratio, the first of equals."""
    ordered = list(rows_of(rows.sort_values(["ratio", "cell"])))
    return ordered[0], ordered[-1]


def spread(rows: pd.DataFrame) -> Interval:
    """From the lowest bound to the highest over cells, and the median of their medians; n is the fewest repeats."""
    sure = rows[rows.ratio_low.notna() & rows.ratio_high.notna()]
    if sure.empty:
        return Interval(float(rows.ratio.median()), None, None, int(rows.ratio_n.min()))
    return Interval(
        float(sure.ratio.median()), float(sure.ratio_low.min()), float(sure.ratio_high.max()), int(sure.ratio_n.min())
    )


def span_text(rows: pd.DataFrame) -> str:
    """'1.52x (1.49 to 1.55)', a median and its interval, for one cell; '1.51x to 3.21x', medians, over several."""
    if len(rows) > 1:
        return f"{rows.ratio.min():.2f}x to {rows.ratio.max():.2f}x"
    row = next(rows_of(rows))
    return interval_text(row.ratio, row.ratio_low, row.ratio_high)


def where(row: Any) -> str:
    """The point that a cell was measured at, in a few words."""
    place = f"{row.topology}, batch {row.batch}" + (f", {row.variant}" if row.variant else "")
    return place + (f", {int(row.accepted)} accepted" if row.kind != "verify" and pd.notna(row.accepted) else "")


def operation_evidence(loaded: Loaded, operation: Operation) -> Evidence | None:
    """A claim on one operation: from the lowest to the highest of its cells, in the setting nearest the paper's.

    Noise earns no verdict: an interval that overlaps the claim's band and is wider than it would meet it whatever the
    truth is. Such a cell is left out, and where most are like that the claim is not judged. An interval that lies
    wholly outside of the band counts, however wide it is.
    """
    cells = loaded.cells[~loaded.cells.chain] if operation.trees_only else loaded.cells
    rows = against(cells, loaded.ratios, operation)
    ours = rows[rows[operation.varied] == operation.ours]
    if ours.empty:
        return None
    bounded = ours[ours.ratio_low.notna() & ours.ratio_high.notna()]
    ours = bounded if len(bounded) else ours
    settings = [group for _, group in ours.groupby(list(SETTING), sort=True)]
    chosen = min(settings, key=lambda group: (len(_differs(next(rows_of(group)))), -len(group)))
    first = next(rows_of(chosen))
    here = _in_setting(cells, first)
    lost = cells[here & (cells.kind == operation.kind) & (cells[operation.varied] == operation.ours)]
    differs = _differs(first)
    failures = int((lost.status == "failed").sum())
    differs += [f"{failures} cell{'s' * (failures != 1)} failed"] if failures else []
    rivals = rows[_in_setting(rows, first)]
    noise = [hides_band(row.ratio_low, row.ratio_high, operation.band) for row in rows_of(chosen)]
    sharp = chosen[~np.array(noise)]
    noisy = len(chosen) - len(sharp)
    wide = f"{noisy} cell{'s' * (noisy != 1)} too noisy ({noise_text(operation.band)})"
    if noisy > len(sharp):
        return Evidence(spread(chosen), first.device, _extremes(chosen, operation), tuple(differs), wide)
    told = _extremes(sharp, operation) + _beside(sharp, rivals, operation)
    return Evidence(spread(sharp), first.device, told, (*differs, *([wide] if noisy else [])), cells=len(sharp))


def _in_setting(cells: pd.DataFrame, row: Any) -> pd.Series:
    """Which cells share a row's device, model and dtype."""
    return (cells[list(SETTING)] == [row.device, row.model, row.dtype]).all(axis=1)


def _differs(row: Any) -> list[str]:
    return [
        *setting_differs(row),
        *([] if row.dtype == "bfloat16" else [f"dtype {row.dtype}"]),
        "synthetic inputs",
    ]


def _extremes(rows: pd.DataFrame, operation: Operation) -> str:
    """Which cells bound the range, and how many of them reach what the claim begins with."""
    least = operation.band[0]
    if len(rows) == 1:
        return f"{operation.ours}, {where(rows.iloc[0])}"
    lowest, highest = extremes(rows)
    reach = int((rows.ratio >= least).sum())
    told = f"{operation.ours} in {len(rows)} cells, {reach} of which reach {least:.2f}x by their medians: "
    return told + f"{lowest.ratio:.2f}x on {where(lowest)} to {highest.ratio:.2f}x on {where(highest)}"


def _beside(sharp: pd.DataFrame, rivals: pd.DataFrame, operation: Operation) -> str:
    """The best of our own strategies that the claim does not name, and whether it is ahead of the claim's."""
    found = [rivals[rivals[operation.varied] == name] for name in operation.beside]
    found = [rows for rows in found if len(rows)]
    if not found:
        return ""
    best = max(found, key=lambda rows: float(rows.ratio.median()))
    ahead = float(best.ratio.median()) > float(sharp.ratio.median())
    aside = f" ({AUTO_ASIDE})" if (rivals[operation.varied] == "auto").any() else ""
    told = "our best" if ahead else "beside it"
    return f"; {told}, {best.iloc[0][operation.varied]}: {span_text(best)}{aside}"


def winners(section_cells: pd.DataFrame, ratios: pd.DataFrame) -> pd.DataFrame:
    """The fastest way to verify at every point, a row each: `winner`, `next`, by how much, and whether that is sure.

    `auto` is left out: it is one of the others. `ahead` is the next one's time over the winner's, `gain` the
    sequential replay's; NaN where there is none.
    """
    cells = measured(section_cells, "verify")
    cells = cells[(cells.verify != "auto") & (cells.verify != "ar")]
    rows = [_winner(group, ratios) for _, group in cells.groupby(list(POINT), dropna=False, sort=True)]
    names = [*POINT, "cell", "winner", "winner_us", "next", "next_us", "ahead", "sure", "gain", "gain_low", "gain_high"]
    return pd.DataFrame(rows, columns=names)


def _winner(group: pd.DataFrame, ratios: pd.DataFrame) -> dict[str, Any]:
    ordered = list(rows_of(group.sort_values(["time_us", "verify", "cell"]).drop_duplicates("verify")))
    best = ordered[0]
    row: dict[str, Any] = {name: getattr(best, name) for name in (*POINT, "cell")}
    row |= {"winner": best.verify, "winner_us": best.time_us, "next": "", "sure": True}
    own = ratios[ratios.cell == best.cell].set_index("over")
    if len(ordered) > 1:
        rival = ordered[1]
        row |= {"next": rival.verify, "next_us": rival.time_us, "ahead": rival.time_us / best.time_us}
        # Paired timings tell two strategies apart that drift together; without them their intervals have to.
        paired = rival.verify in own.index and pd.notna(own.ratio_low[rival.verify])
        row["sure"] = bool(own.ratio_low[rival.verify] > 1 if paired else best.time_high_us < rival.time_low_us)
    if "sequential_replay" in own.index:
        base = own.loc["sequential_replay"]
        row |= {"gain": base.ratio, "gain_low": base.ratio_low, "gain_high": base.ratio_high}
    return row
