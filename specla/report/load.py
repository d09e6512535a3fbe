"""Runs read back through their records, as pandas frames: a row a cell, and with it its repeats, depths, categories.

The frames share the column `cell`, which is the index of the record in `Loaded.records`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from specla.bench.kernel_times import CellProfile, read_profiles
from specla.bench.lines import RecordFile, read_records
from specla.bench.manifest import read_manifest
from specla.bench.model_labels import identity_of
from specla.bench.record import Record, Status, latest
from specla.bench.store import CONFIG, ENV, PROFILE, RECORDS
from specla.bench.summary import Cell, build_cells
from specla.errors import SpeclaError
from specla.models.json_file import read_object
from specla.report.escape import SENTENCE, shown
from specla.report.find import find_runs
from specla.report.frames import (
    CATEGORY_COLUMNS,
    category_rows,
    cell_row,
    depth_rows,
    frame,
    numeric,
    readable,
    repeat_rows,
    with_sweeps,
    with_text_tokens,
)
from specla.report.kernels import RATIOS, ratio_rows

SETTING = ("device", "model", "dtype")
"""The columns that cells of one section of the report share."""

DAMAGED = "Read with care: the records are not whole."
"""What stands above the notes on records that are damaged, foreign or missing."""


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
    notes = tuple(f"{shown(run.name)}: {shown(note, SENTENCE)}" for run in runs for note in run.notes)
    rows = [
        cell_row(index, record, cells[index], run.name, run.env.get("device_kind") == "cpu")
        for index, record in enumerate(records)
        for run in [run_of[id(record)]]
    ]
    return Loaded(
        runs=runs,
        records=tuple(records),
        document_cells=tuple(cells),
        cells=with_sweeps(with_text_tokens(numeric(pd.DataFrame(readable(rows))))),
        repeats=frame(repeat_rows(records), ("cell", "repeat", "ratio")),
        depths=frame(depth_rows(records), ("cell", "depth", "reached", "alpha", "alpha_low", "alpha_high", "tau")),
        categories=frame(readable(category_rows(records)), CATEGORY_COLUMNS),
        ratios=frame(ratio_rows(records, cells), RATIOS),
        notes=notes,
        repeated=sum(len(latest(run.records)) for run in runs) - len(records),
    )


def latest_of_runs(runs: Iterable[Run]) -> list[Record]:
    """One record a cell: of each run what its notes are about, and of several runs the result that is newest.

    The same words over other weights are another cell.
    """
    ordered = sorted((record for run in runs for record in latest(run.records)), key=lambda record: record.started)
    models: dict[tuple[object, ...], list[Record]] = {}
    for record in ordered:
        models.setdefault(identity_of(record), []).append(record)
    return [record for of_model in models.values() for record in latest(of_model)]


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
    names: set[str] = set()
    runs = []
    for path, file in found.items():
        ways = (path.name, *(f"{path.name}-{number}" for number in range(2, len(found) + 2)))
        name = next(way for way in ways if way not in names)
        names.add(name)
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
        env = read_object(path / ENV)
    except FileNotFoundError:
        notes.append(f"{ENV} is missing: hardware, versions and commit are unknown")
    except SpeclaError as error:
        raise SpeclaError(f"{error}; restore it, or remove it: hardware and versions are unknown then") from None
    if not (path / CONFIG).is_file():
        notes.append(f"{CONFIG} is missing")
    if plan := read_manifest(path / CONFIG):
        plan.check(found, str(path / RECORDS))
        notes.extend(plan.missing(found, done))
    return Run(path, name, found.records, env, tuple(notes), found.data, read_profiles(path / PROFILE))
