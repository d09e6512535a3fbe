"""The frames of a report, made from records: a row a cell, a repeat, a depth, or a category of prompts."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from specla.bench import stats
from specla.bench.record import Record
from specla.bench.summary import Cell, speedup_to_ar
from specla.bench.words import dial_in
from specla.report.escape import NAME, SENTENCE, shown, shown_apart
from specla.report.kernels import kernel_columns

SWEEP_LEAST = 3
"""From how many acceptances, or lengths, of one method on a cell is a point of a sweep, not a method of its own."""
SERIES = (
    *("device", "model", "dtype", "workload", "categories", "batch", "temperature", "top_p"),
    *("verify", "recover", "drafter", "drafter_cost", "topology", "engine", "nodes", "group", "text_tokens"),
)
"""The columns that cells of one acceptance sweep share."""
LENGTH_SERIES = (*(name for name in SERIES if name not in ("topology", "nodes")), "shape", "asked")
"""The columns that cells of one sweep of draft lengths share."""
_PLAIN = (
    *("device", "dtype", "batch", "group", "command", "nodes", "reason", "why"),
    *("near_ties", "worst_tie", "gate_positions", "drafter_cost", "fingerprint"),
)
_FIGURES = (
    *("alpha_asked", "speedup", "low", "high", "tau", "draft_efficiency", "tok_s", "mbu", "x_floor", "error_rms"),
    *("alpha", "alpha_low", "alpha_high", "ratio", "ratio_low", "ratio_high", "accepted", "levels"),
    *("moved_bytes", "kept_bytes", "text_tokens", "longest", "worst_tie"),
)
CATEGORY_COLUMNS = ("cell", "category", "prompt_count", "speedup", "low", "high", "n", "tau")
_SENTENCES = ("reason", "why", "timing")
_IN_WORDS = ("overrides", "variant", "tuning")
"""Columns of words that were cut one by one."""
_NO_SPLIT: dict[str, float | None] = {"draft": None, "verify": None, "accept": None, "commit": None}


def cell_row(index: int, record: Record, cell: Cell, run: str, on_cpu: bool) -> dict[str, Any]:
    """What the tables and plots need of a cell of a run, by its name; missing figures are NaN."""
    method, speedup = record.method, speedup_to_ar(record)
    alpha, limit = record.alpha_asked, dial_in(record.overrides, "workload.max_new_tokens")
    row: dict[str, Any] = {"cell": index, "run": run, **{name: getattr(record, name) for name in _PLAIN}}
    row |= {name: getattr(method, name) for name in ("verify", "recover", "drafter", "topology", "engine")}
    info = record.model_info
    row |= {
        "model": cell["model"],
        "workload": cell["workload"],
        "benchmark": record.workload,
        "shape_of_model": info.shape if info else None,
        "weights": info.weights if info else "",
        "baseline": method.is_baseline,
        "on_cpu": on_cpu,
        "kernel": record.is_kernel,
        "temperature": record.sampling.temperature,
        "top_p": record.sampling.top_p,
        "overrides": " ".join(map(shown, record.overrides)),
        "alpha_asked": alpha if isinstance(alpha, float | int) else None,
        "asked": _asked(record),
        "categories": dial_in(record.overrides, "workload.categories").strip("[]").replace(",", " and "),
        "text_tokens": int(limit) if limit.isdigit() else None,
        "longest": _longest(record),
        "synthetic": record.synthetic or method.drafter == "oracle",
        "status": record.status.value,
        "lossless": record.lossless.value if record.lossless else "",
        "speedup": speedup.median,
        "low": speedup.low,
        "high": speedup.high,
        "n": speedup.n,
    }
    row |= {name: cell.get(name) for name in ("tau", "draft_efficiency", "tok_s", "mbu", "x_floor", "error_rms")}
    row |= {f"{part}_us": value for part, value in (cell.get("split_us") or _NO_SPLIT).items()}
    return row | kernel_columns(record, cell)


def with_text_tokens(cells: pd.DataFrame) -> pd.DataFrame:
    """Completes `text_tokens`, the limit of a text. Records tell one that is not the workload's own; for the others it
    is the longest text that was decoded with that."""
    own = cells.longest.where(cells.text_tokens.isna()).groupby(cells.workload).transform("max")
    return cells.assign(text_tokens=cells.text_tokens.fillna(own)).drop(columns="longest")


def _longest(record: Record) -> int | None:
    """The tokens of a decode's longest text, the mean of a batch's rows, with the one that the prefill gave."""
    samples = record.decoding.samples if record.decoding else ()
    return max((1 + round(max(s.tokens, s.ar_tokens or 0) / record.batch) for s in samples), default=None)


def with_sweeps(cells: pd.DataFrame) -> pd.DataFrame:
    """Adds whether a cell is one of several acceptances, or of several draft lengths, of one method; and `study`: that
    it is there for its curve, rather than as a method of its own."""

    def values(series: Sequence[str], dial: str) -> pd.Series:
        return cells.groupby(list(series), dropna=False)[dial].transform("nunique")

    alphas = (values(SERIES, "alpha_asked") >= SWEEP_LEAST) & ~cells.kernel
    lengths = (values(LENGTH_SERIES, "levels") >= SWEEP_LEAST) & ~cells.kernel
    return cells.assign(sweep=alphas, length_sweep=lengths, study=alphas | (lengths & cells.synthetic))


def repeat_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """By repeat: the speedup to AR."""
    return [
        {"cell": index, "repeat": repeat, "ratio": ratio}
        for index, record in enumerate(records)
        if record.decoding
        for repeat, ratio in stats.ratios_by_repeat(record.decoding.samples).items()
    ]


def depth_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """By depth: alpha with its interval, and tau if every draft were cut at that depth."""
    rows = []
    for index, record in enumerate(records):
        counts = record.decoding.counts if record.decoding else None
        if counts is None or not counts.steps:
            continue
        emitted = counts.steps
        for depth, alpha in enumerate(stats.alpha_by_depth(counts)):
            emitted += counts.accepted_at[depth]
            low, high = stats.alpha_intervals(counts)[depth] or (None, None)
            row = {"cell": index, "depth": depth + 1, "reached": counts.reached[depth], "alpha": alpha}
            rows.append({**row, "alpha_low": low, "alpha_high": high, "tau": emitted / counts.steps})
    return rows


def category_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """By category of prompt: speedup, tau, and of how many prompts."""
    rows = []
    for index, record in enumerate(records):
        decoding = record.decoding
        if decoding is None:
            continue
        counted, named = decoding.counts.by_category, {sample.category for sample in decoding.samples}
        # One without letters is one where prompts were counted by it.
        for category in sorted(name for name in named if name or name in counted):
            own = [sample for sample in decoding.samples if sample.category == category]
            found = stats.paired_ratio(own)
            tally = counted.get(category)
            row = {"cell": index, "category": category, "speedup": found.median, "low": found.low, "high": found.high}
            row |= {"prompt_count": len({prompt for sample in own for prompt in sample.prompts})}
            rows.append({**row, "n": found.n, "tau": stats.tau(tally) if tally else None})
    return rows


def frame(rows: Sequence[Mapping[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    """Rows as a frame that has these columns even where there is no row."""
    return numeric(pd.DataFrame(rows, columns=list(columns)))


def readable(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with their text as it is shown everywhere from here on: a line each, not too long, and told apart."""
    texts: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str):
                texts.setdefault(name, set()).add(value)
    most = {**dict.fromkeys(_SENTENCES, SENTENCE), **dict.fromkeys(_IN_WORDS, None)}
    names = {name: shown_apart(found, most.get(name, NAME)) for name, found in texts.items()}
    return [
        {name: names[name][value] if isinstance(value, str) else value for name, value in row.items()} for row in rows
    ]


def numeric(frame: pd.DataFrame) -> pd.DataFrame:
    """Figures as floats even where a whole column is missing."""
    figures = [name for name in frame.columns if name in _FIGURES or name.endswith("_us")]
    return frame.astype(dict.fromkeys(figures, float))


def _asked(record: Record) -> str:
    """What an oracle was asked for, its acceptance and whose work is done beside it; which tokens others draft from."""
    told = record.profile or ("" if record.alpha_asked is None else _spelt(record.alpha_asked))
    vocabulary = dial_in(record.overrides, "drafter.vocabulary")
    if record.method.drafter == "aligned" and vocabulary:
        return f"of {vocabulary} tokens"
    if record.drafter_cost != "aligned":
        return told
    return f"{told} paid {vocabulary}".strip()


def _spelt(alpha: object) -> str:
    """An acceptance as the command line spells it: a number, or a table by depth and rank."""
    if isinstance(alpha, tuple | list):
        return f"[{','.join(_spelt(inner) for inner in alpha)}]"
    return f"{alpha:g}"
