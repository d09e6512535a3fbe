"""Runs read back through their records, as pandas frames: a row a cell, and with it its repeats, depths, categories.

The frames share the column `cell`, which is the index of the record in `Loaded.records`.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from specla.bench import stats
from specla.bench.kernel_times import CellProfile, read_profiles
from specla.bench.lines import RecordFile, read_records
from specla.bench.manifest import read_manifest
from specla.bench.record import Record, Status, latest
from specla.bench.store import CONFIG, ENV, PROFILE, RECORDS
from specla.bench.summary import Cell, build_cells, speedup_to_ar
from specla.bench.words import dial_in
from specla.errors import SpeclaError
from specla.report.find import find_runs
from specla.report.kernels import RATIOS, kernel_columns, ratio_rows

SETTING = ("device", "model", "dtype")
"""The columns that cells of one section of the report share."""
SWEEP_LEAST = 3
"""From how many acceptances, or lengths, of one method on a cell is a point of a sweep, not a method of its own."""


@dataclass(frozen=True)
class Run:
    """One run folder as read."""

    path: Path
    name: str
    records: tuple[Record, ...]
    env: Mapping[str, Any]
    notes: tuple[str, ...]
    """What is missing or was left out, one clear line each; empty for a whole run."""
    data: bytes
    """Its records.jsonl, a last line that was cut short included."""
    profiles: tuple[CellProfile, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """Everything that a report is made of."""

    runs: tuple[Run, ...]
    records: tuple[Record, ...]
    """The latest of each cell over all runs."""
    document_cells: tuple[Cell, ...]
    cells: pd.DataFrame
    repeats: pd.DataFrame
    depths: pd.DataFrame
    categories: pd.DataFrame
    ratios: pd.DataFrame
    """Of timed operations: a row a cell and baseline (see `kernels.RATIOS`)."""
    notes: tuple[str, ...]
    repeated: int
    """Cells measured in more than one run, of which the newest counts."""

    @property
    def partial(self) -> bool:
        """Whether something that was planned or written is missing."""
        return bool(self.notes)


def load_runs(paths: Sequence[Path]) -> Loaded:
    """Read runs. Raises SpeclaError for a damaged run or an unknown schema; what is only unfinished becomes a note."""
    runs = read_runs(paths)
    if not any(run.records for run in runs):
        raise SpeclaError(f"{', '.join(str(run.path) for run in runs) or 'no run'}: holds no measured cell yet")
    records = latest_of_runs(runs)
    run_of = {id(record): run for run in runs for record in run.records}
    cells = build_cells(records)
    notes = tuple(f"{run.name}: {note}" for run in runs for note in run.notes)
    table = pd.DataFrame([_cell_row(i, r, cells[i], run_of[id(r)]) for i, r in enumerate(records)])
    return Loaded(
        runs=runs,
        records=tuple(records),
        document_cells=tuple(cells),
        cells=_with_sweeps(_with_text_tokens(_numeric(table))),
        repeats=_frame(_repeat_rows(records), ("cell", "repeat", "ratio")),
        depths=_frame(_depth_rows(records), ("cell", "depth", "reached", "alpha", "alpha_low", "alpha_high", "tau")),
        categories=_frame(_category_rows(records), ("cell", "category", "speedup", "low", "high", "n", "tau")),
        ratios=_frame(ratio_rows(records, cells), RATIOS),
        notes=notes,
        repeated=sum(len(latest(run.records)) for run in runs) - len(records),
    )


def latest_of_runs(runs: Iterable[Run]) -> list[Record]:
    """One record a cell: of each run what its notes are about, and of several runs the result that is newest."""
    return latest(sorted((record for run in runs for record in latest(run.records)), key=lambda record: record.started))


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """The frame's rows, a column an attribute."""
    yield from frame.itertuples()


def read_runs(paths: Iterable[Path]) -> tuple[Run, ...]:
    """The runs of these folders and reports, by name; a name that comes twice gets a number.

    Raises SpeclaError for a damaged run or an unknown schema; what is missing becomes a note, though not a cell that
    another of the runs has with the same fingerprint.
    """
    found = {path: read_records(path / RECORDS) for path in find_runs(paths)}
    done = {r.fingerprint for file in found.values() for r in file.records if r.status is not Status.PENDING}
    names: dict[str, int] = {}
    runs = []
    for path, file in found.items():
        names[path.name] = names.get(path.name, 0) + 1
        name = path.name + (f"-{names[path.name]}" if names[path.name] > 1 else "")
        runs.append(_read_run(path, name, file, done))
    return tuple(sorted(runs, key=lambda run: run.name))


def _read_run(path: Path, name: str, found: RecordFile, done: Collection[str]) -> Run:
    notes = []
    if found.note:
        number = found.note.split(":")[-2]
        notes.append(f"line {number} of {RECORDS}, the last, was cut short and is left out")
    planned = [record for record in latest(found.records) if record.status is Status.PENDING]
    pending = [record for record in planned if record.fingerprint not in done]
    if pending:
        shown = "; ".join(" ".join(record.overrides) or record.method.verify for record in pending[:4])
        more = f" and {len(pending) - 4} more" if len(pending) > 4 else ""
        counted = "1 planned cell was" if len(pending) == 1 else f"{len(pending)} planned cells were"
        notes.append(f"{counted} not measured: {shown}{more}")
    env: dict[str, Any] = {}
    try:
        env = json.loads((path / ENV).read_text(encoding="utf-8"))
        if not isinstance(env, dict):
            raise SpeclaError(f"{path / ENV}: damaged, not an object")
    except FileNotFoundError:
        notes.append(f"{ENV} is missing: hardware, versions and commit are unknown")
    except (OSError, ValueError) as error:
        raise SpeclaError(f"{path / ENV}: damaged ({error})") from None
    if not (path / CONFIG).is_file():
        notes.append(f"{CONFIG} is missing")
    if plan := read_manifest(path / CONFIG):
        plan.check(found, str(path / RECORDS))
        notes.extend(plan.missing(found, done))
    return Run(path, name, found.records, env, tuple(notes), found.data, read_profiles(path / PROFILE))


def _cell_row(index: int, record: Record, cell: Cell, run: Run) -> dict[str, Any]:
    """What the tables and plots need of a cell; missing figures are NaN."""
    method, speedup = record.method, speedup_to_ar(record)
    alpha, limit = record.alpha_asked, dial_in(record.overrides, "workload.max_new_tokens")
    row: dict[str, Any] = {"cell": index, "run": run.name, **{name: getattr(record, name) for name in _PLAIN}}
    row |= {name: getattr(method, name) for name in ("verify", "recover", "drafter", "topology", "engine")}
    row |= {
        "baseline": method.is_baseline,
        "on_cpu": run.env.get("device_kind") == "cpu",
        "kernel": record.is_kernel,
        "temperature": record.sampling.temperature,
        "top_p": record.sampling.top_p,
        "overrides": " ".join(record.overrides),
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


_PLAIN = (
    *("device", "model", "dtype", "workload", "batch", "group", "command", "nodes", "reason", "why"),
    *("near_ties", "gate_positions", "drafter_cost", "fingerprint"),
)
_FIGURES = (
    *("alpha_asked", "speedup", "low", "high", "tau", "draft_efficiency", "tok_s", "mbu", "x_floor", "error_rms"),
    *("alpha", "alpha_low", "alpha_high", "ratio", "ratio_low", "ratio_high", "accepted", "levels"),
    *("moved_bytes", "kept_bytes", "text_tokens", "longest"),
)
_NO_SPLIT: dict[str, float | None] = {"draft": None, "verify": None, "accept": None, "commit": None}


def _with_text_tokens(cells: pd.DataFrame) -> pd.DataFrame:
    """Completes `text_tokens`, the limit of a text. Records tell one that is not the workload's own; for the others it
    is the longest text that was decoded with that."""
    own = cells.longest.where(cells.text_tokens.isna()).groupby(cells.workload).transform("max")
    return cells.assign(text_tokens=cells.text_tokens.fillna(own)).drop(columns="longest")


def _longest(record: Record) -> int | None:
    """The tokens of a decode's longest text, the mean of a batch's rows, with the one that the prefill gave."""
    samples = record.decoding.samples if record.decoding else ()
    return max((1 + round(max(s.tokens, s.ar_tokens or 0) / record.batch) for s in samples), default=None)


def _with_sweeps(cells: pd.DataFrame) -> pd.DataFrame:
    """Adds whether a cell is one of several acceptances, or of several draft lengths, of one method; and `study`: that
    it is there for its curve, rather than as a method of its own."""

    def values(series: Sequence[str], dial: str) -> pd.Series:
        return cells.groupby(list(series), dropna=False)[dial].transform("nunique")

    alphas = (values(SERIES, "alpha_asked") >= SWEEP_LEAST) & ~cells.kernel
    lengths = (values(LENGTH_SERIES, "levels") >= SWEEP_LEAST) & ~cells.kernel
    return cells.assign(sweep=alphas, length_sweep=lengths, study=alphas | (lengths & cells.synthetic))


SERIES = (
    *("device", "model", "dtype", "workload", "categories", "batch", "temperature", "top_p"),
    *("verify", "recover", "drafter", "drafter_cost", "topology", "engine", "nodes", "group", "text_tokens"),
)
"""The columns that cells of one acceptance sweep share."""
LENGTH_SERIES = (*(name for name in SERIES if name not in ("topology", "nodes")), "shape", "asked")
"""The columns that cells of one sweep of draft lengths share."""


def _repeat_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {"cell": index, "repeat": repeat, "ratio": ratio}
        for index, record in enumerate(records)
        if record.decoding
        for repeat, ratio in stats.ratios_by_repeat(record.decoding.samples).items()
    ]


def _depth_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
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


def _category_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    rows = []
    for index, record in enumerate(records):
        decoding = record.decoding
        for category in sorted({s.category for s in decoding.samples if s.category}) if decoding else ():
            assert decoding is not None
            found = stats.paired_ratio(s for s in decoding.samples if s.category == category)
            tally = decoding.counts.by_category.get(category)
            row = {"cell": index, "category": category, "speedup": found.median, "low": found.low, "high": found.high}
            rows.append({**row, "n": found.n, "tau": stats.tau(tally) if tally else None})
    return rows


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    return _numeric(pd.DataFrame(rows, columns=list(columns)))


def _numeric(frame: pd.DataFrame) -> pd.DataFrame:
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
