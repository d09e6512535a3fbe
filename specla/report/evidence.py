"""Which measured cells speak to a claim, and what in them is not as the claim has it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specla.bench.stats import LEAST_REPEATS, Interval, median_interval
from specla.report.frames import SERIES
from specla.report.load import Loaded, rows_of

ACCEPT_BAND = (0.70, 0.80)
"""From which share of accepted drafts on the paper has speculation pay."""
OURS = ("chain", "tree", "hybrid", "auto")
"""The verification strategies that are SpecLA's; the others are what it is compared with."""
STUDIES = ("acceptance", "length")
"""Groups that turn a dial on purpose; end-to-end speed is not read off them."""
REAL_DRAFTERS = ("aligned", "ngram")
PUBLISHED_SHAPE = (24, 2048, 8, 8, 256, 256, 5632, 32000, 1_466_343_808)
"""`ModelInfo.shape` of the pure GDN-1.3B that the paper measured, conf/model/gdn-1.3b.yaml."""
CONDITIONS = ("device", "model", "dtype", "workload", "batch", "temperature", "top_p")
_CODE, _MATHS = ("code",), ("arithmetic", "math", "maths", "math_reasoning")
_BENCHMARKS = {"GSM8K": ("gsm8k", _MATHS), "HumanEval": ("human-eval", _CODE), "mix": ("", ())}
_SINGLE = [workload for workload, _ in _BENCHMARKS.values() if workload]


@dataclass(frozen=True)
class Evidence:
    """An interval with the device and the method it was measured on."""

    measured: Interval
    device: str
    method: str
    differs: tuple[str, ...]
    barred: str = ""
    """Why no verdict may be drawn from it; empty where one may."""
    cells: int = 0
    """How many cells the interval ranges over, where it is no single cell's."""
    is_shown: bool = False
    """Whether what was measured is shown though it earns no verdict."""


@dataclass(frozen=True)
class BreakEven:
    """Where a rising curve crosses 1. `side` is 'below' or 'above' where it lies outside of what was swept."""

    interval: Interval
    side: str = ""


def with_drafts_only(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells, decodes by AR never `synthetic`: it has no drafts, whatever older records say beside an oracle."""
    return cells.assign(synthetic=cells.synthetic & (cells.kernel | (cells.verify != "ar")))


def hides_band(low: float | None, high: float | None, band: tuple[float, float]) -> bool:
    """Whether an interval is noise to a claim: it overlaps the band and is wider, high over low, than the band is.

    One that lies wholly outside says short or exceeded however wide it is; one with a missing end is judged elsewhere.
    """
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return False
    return low <= band[1] and high >= band[0] and high * band[0] > low * band[1]


def noise_text(band: tuple[float, float]) -> str:
    """What `hides_band` found, in words."""
    return (
        f"an interval that overlaps the claim's band and is wider: its high end over {band[1] / band[0]:.2f}x its low"
    )


def describe(row: Any, swept: bool = False) -> str:
    """A method in words, from a row of the cells frame; of a sweep's rows without what the oracle was asked for."""
    parts = [row.verify if row.recover in ("none", "in_place") else f"{row.verify} + {row.recover}"]
    asked = "" if swept else row.asked
    parts += [f"{row.drafter} {asked}".strip()] if row.drafter != "none" else []
    parts += [row.topology] if row.topology != "root" else []
    return ", ".join(parts)


def interval_text(median: float | None, low: float | None, high: float | None, unit: str = "x") -> str:
    """'1.52x (1.49 to 1.55)', or without bounds '1.52x (no interval)'."""
    if median is None or pd.isna(median):
        return "-"
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return f"{median:.2f}{unit} (no interval)"
    return f"{median:.2f}{unit} ({low:.2f} to {high:.2f})"


def setting_differs(row: Any) -> list[str]:
    """What of device, model and weights is not the paper's."""
    found = [] if "H100" in row.device else [f"device {row.device}{' (a CPU)' if row.on_cpu else ''}"]
    found += [] if _published_shape(row) else [f"model {row.model}"]
    return found + (["random weights"] if _random_weights(row) else [])


def _published_shape(row: Any) -> bool:
    """Older records do not tell the shape of a checkpoint; without one, they name that of their option."""
    if row.shape_of_model is not None:
        return bool(row.shape_of_model == PUBLISHED_SHAPE)
    return row.model in ("gdn-1.3b", "gdn-1.3b (random weights)") and not row.variant


def _random_weights(row: Any) -> bool:
    return row.weights.startswith("random") or "model.weights=random" in row.overrides.split()


def _not_the_model(row: Any) -> str:
    """Why end-to-end speed on a model says nothing of the paper's; empty where it does."""
    if not _published_shape(row):
        return "not the published model"
    if _random_weights(row):
        return "random weights"
    return "" if row.weights else "the record does not say which weights"


def passed_decodes(cells: pd.DataFrame) -> pd.DataFrame:
    """The decode cells that passed and have a speedup."""
    return cells[(cells.status == "passed") & ~cells.kernel & cells.speedup.notna()]


def end_to_end(loaded: Loaded, part: str) -> Evidence | None:
    """The speedup of the fastest SpecLA method on a benchmark, or on prompts of its kind."""
    found = passed_decodes(loaded.cells)
    found = found[found.verify.isin(OURS) & (found.engine == "specla") & ~found.sweep & ~found.group.isin(STUDIES)]
    rows = [row for cell in rows_of(found) for row in _on_benchmark(loaded, cell, part)]
    if not rows:
        return None
    real = [row for row in rows if not row[0].synthetic]
    best = [row for row in real if not _not_the_model(row[0])] or real or rows
    row, interval, differs = _nearest(best)
    alike = sum(other[2] == differs for other in best)
    fastest = f" (fastest of {alike})" if alike > 1 else ""
    told = describe(row) + fastest
    told += f", {row.model}" if loaded.cells.model.nunique() > 1 else ""
    if not real:
        return Evidence(interval, row.device, told, tuple(differs), "synthetic acceptance")
    # What was measured is shown all the same: it is a speedup, if not the paper's.
    return Evidence(interval, row.device, told, tuple(differs), _not_the_model(row), is_shown=True)


def _on_benchmark(loaded: Loaded, cell: Any, part: str) -> Iterable[tuple[Any, Interval, list[str]]]:
    workload, categories = _BENCHMARKS[part]
    differs = setting_differs(cell) + ([] if cell.drafter == "aligned" else [f"drafter {cell.drafter}"])
    whole = Interval(cell.speedup, _or_none(cell.low), _or_none(cell.high), int(cell.n))
    split = loaded.categories[loaded.categories.cell == cell.cell]
    if cell.benchmark == workload:
        yield cell, whole, differs
    elif not workload and split.category.nunique() > 1 and cell.benchmark not in _SINGLE:
        yield cell, whole, [*differs, f"prompts {cell.workload}"]
    for row in rows_of(split[split.category.isin(categories)]) if cell.benchmark != workload else ():
        interval = Interval(_or_none(row.speedup), _or_none(row.low), _or_none(row.high), int(row.n))
        yield cell, interval, [*differs, f"prompts {cell.workload}, {row.category}"]


def _nearest(rows: Sequence[tuple[Any, Interval, list[str]]]) -> tuple[Any, Interval, list[str]]:
    """The row that differs least from the claim's setting, and of those the fastest."""
    return min(rows, key=lambda row: (len(row[2]), -(row[1].median or 0.0), row[0].cell))


def sweeps(loaded: Loaded) -> list[pd.DataFrame]:
    """Acceptance sweeps: for each method, its passed cells by rising alpha."""
    found = passed_decodes(loaded.cells)
    found = found[found.sweep & ~found.baseline]
    groups = [group.sort_values("alpha_asked") for _, group in found.groupby(list(SERIES), dropna=False, sort=True)]
    return [group for group in groups if group.alpha_asked.nunique() > 1]


def break_even_of(loaded: Loaded, sweep: pd.DataFrame, column: str) -> BreakEven:
    """Where a sweep's speedup crosses 1 along `column`: interpolated in every repeat, then the median over repeats."""
    at = sweep[column].to_numpy(dtype=float)
    order = np.argsort(at, kind="stable")
    table = loaded.repeats[loaded.repeats.cell.isin(sweep.cell)].pivot(index="repeat", columns="cell", values="ratio")
    curves = table.reindex(columns=list(sweep.cell)).dropna().to_numpy()[:, order]
    at = at[order]
    crossings = [_crossing(at, curve) for curve in curves]
    inside = sum(bool(np.isfinite(value)) for value in crossings)
    if inside * 2 > len(crossings):
        # A repeat that crosses outside of the sweep counts at its edge: that leaves the median where it is.
        return BreakEven(median_interval(np.clip(crossings, at[0], at[-1]).tolist()))
    if sum(value == -np.inf for value in crossings) * 2 >= len(crossings) and crossings:
        return BreakEven(Interval(None, 0.0, float(at[0]), len(crossings)), "below")
    return BreakEven(Interval(None, float(at[-1]), None, len(crossings)), "above")


def _crossing(at: np.ndarray, curve: np.ndarray) -> float:
    """The point above which the curve stays at 1 or more: -inf if it always does, inf if it ends below."""
    under = np.flatnonzero(curve < 1.0)
    if not len(under):
        return -np.inf
    last = int(under[-1])
    if last == len(curve) - 1:
        return float(np.inf)
    share = (1.0 - curve[last]) / (curve[last + 1] - curve[last])
    return float(at[last] + share * (at[last + 1] - at[last]))


def break_even(loaded: Loaded, part: str) -> Evidence | None:
    """Break-even of the SpecLA method that pays earliest, on a chain where one was swept: there alpha is per draft."""
    found = [sweep for sweep in sweeps(loaded) if sweep.iloc[0].verify in OURS and sweep.iloc[0].drafter == "oracle"]
    chains = [sweep for sweep in found if str(sweep.iloc[0].topology).startswith("chain")]
    column = "alpha_asked" if part == "alpha" else part
    choices: list[tuple[float, int, pd.DataFrame]] = []
    for sweep in chains or found:
        first = break_even_of(loaded, sweep, "alpha_asked").interval
        choices.append((first.median if first.median is not None else (first.high or np.inf), len(choices), sweep))
    if not choices:
        return None
    sweep = min(choices, key=lambda choice: choice[:2])[2]
    row = sweep.iloc[0]
    measured = break_even_of(loaded, sweep, column).interval
    differs = [*setting_differs(row), "synthetic acceptance"]
    differs += [] if _drafting_paid(row) else ["drafting not paid for"]
    of = f" (earliest of {len(choices)})" if len(choices) > 1 else ""
    told = f"{describe(row, swept=True)}{of}"
    told += "; interpolated between the points swept" if measured.median is not None else ""
    return Evidence(measured, row.device, told, tuple(differs), _unclear(measured))


def _unclear(even: Interval) -> str:
    """Why a break-even earns no verdict: too few repeats, or an interval that says too little about the band."""
    low, high = ACCEPT_BAND
    if even.n < LEAST_REPEATS:
        return f"{even.n} repeats give no interval"
    if even.median is None:
        # A break-even beyond the sweep is known on one side only: it may lie in the band unless the edge is past it.
        reaches = f"the sweep ends at {even.high if even.high is not None else even.low:.2f}, within or past the band"
        below, above = even.high is not None and even.high >= low, even.high is None and (even.low or 0.0) <= high
        return reaches if below or above else ""
    return f"too noisy ({noise_text(ACCEPT_BAND)})" if hides_band(even.low, even.high, ACCEPT_BAND) else ""


def perfect_drafter(loaded: Loaded, _part: str) -> Evidence | None:
    """Time per token of the best real drafter over that of a perfect one that costs as much, both paired with AR."""
    found = passed_decodes(loaded.cells)
    found = found[(found.engine == "specla") & found.verify.isin(OURS)]
    perfect = found[(found.drafter == "oracle") & (found.alpha_asked == 1.0)]
    real = found[found.drafter.isin(REAL_DRAFTERS)]
    pairs = []
    for conditions, group in perfect.groupby(list(CONDITIONS), sort=True):
        same = real[(real[list(CONDITIONS)] == pd.Series(conditions, index=list(CONDITIONS))).all(axis=1)]
        paid = group[[_drafting_paid(row) for row in rows_of(group)]]
        if len(same):
            best = (paid if len(paid) else group).sort_values("speedup").iloc[-1]
            pairs.append((not len(paid), -best.speedup, best, same.sort_values("speedup").iloc[-1]))
    if not pairs:
        return None
    free, _, best, rival = min(pairs, key=lambda pair: pair[:2])
    ratios = loaded.repeats.pivot(index="repeat", columns="cell", values="ratio")
    interval = median_interval(ratios[best.cell] / ratios[rival.cell])
    differs = (*setting_differs(best), "synthetic acceptance")
    return Evidence(
        interval,
        best.device,
        f"{describe(best)} over {describe(rival)}",
        differs,
        "drafting not paid for" if free else "",
    )


def _drafting_paid(row: Any) -> bool:
    return row.drafter_cost == "aligned" or "drafter.cost=aligned" in row.overrides.split()


def _or_none(value: float) -> float | None:
    return None if pd.isna(value) else float(value)
