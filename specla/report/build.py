"""A report's folder: report.md, summary.json, CSV and PNG, and in `records/` all that it was made from.

It is written beside its place and renamed into it, so that a reader sees the old report or the new one. Building it
again from its own `records/` gives the same bytes of report.md and of every CSV.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from specla.bench.record import SCHEMA
from specla.bench.store import CONFIG, DISPATCH, ENV, PROFILE, RECORDS, SUMMARY, json_text, missing, remove_empty
from specla.bench.summary import Document, DocumentStatus, overall_status
from specla.errors import SpeclaError, is_full, naming
from specla.report.acceptance import acceptance_plot
from specla.report.batch_plot import batch_plot
from specla.report.claims import Judged, judge_claims
from specla.report.commit_plots import defer_plot, recover_plot
from specla.report.curves import category_plot, depth_plot
from specla.report.escape import for_csv
from specla.report.evidence import with_drafts_only
from specla.report.find import REPORT
from specla.report.length import length_plot
from specla.report.load import Loaded, Run, load_runs
from specla.report.markdown import report_markdown
from specla.report.plots import speedup_plot, split_plot
from specla.report.style import Plot
from specla.report.tables import Section, claims_frame, sections
from specla.report.verify_plots import verify_time_plot, winner_plot


@dataclass(frozen=True)
class ReportResult:
    """Where a report lies, and its JSON document."""

    path: Path
    """The report's folder."""
    document: Document


def build_report(runs: Sequence[Path], out: Path) -> ReportResult:
    """Make the report of `runs` (run folders, or reports to rebuild) in `out`, replacing the report that is there.

    Raises SpeclaError for a damaged run, runs without a cell, and an `out` that is no report or cannot be written, and
    OSError where the disk is full. A report that was there stays then.
    """
    loaded = load_runs(runs)
    _check_place(out)
    judged = judge_claims(loaded)
    document = report_document(loaded, judged)
    beside = out.parent / f".{out.name}.{os.getpid()}.new"
    made: list[Path] = []
    try:
        made = missing(out.parent)
        beside.mkdir(parents=True)
        with naming(out):
            _write(beside, loaded, judged, document)
        _swap(beside, out)
    except OSError as error:
        if is_full(error):
            raise OSError(error.errno, error.strerror, str(out)) from None
        raise SpeclaError(f"{out}: cannot be written ({error.strerror}); choose another folder") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        remove_empty(made)
    return ReportResult(out, document)


def _check_place(out: Path) -> None:
    try:
        taken = out.exists() and not (out / REPORT).is_file() and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:
        raise SpeclaError(f"{out}: cannot be written ({error.strerror}); choose another folder") from None
    if taken:
        raise SpeclaError(f"{out}: exists and is not a report; choose another folder")


def report_document(loaded: Loaded, judged: Sequence[Judged]) -> Document:
    """The JSON document of a report: every cell, and the claims."""
    status: DocumentStatus = overall_status(loaded.records)
    if loaded.partial and status != "failed":
        status = "partial"
    return Document(
        schema=SCHEMA,
        command="report",
        status=status,
        run=", ".join(run.name for run in loaded.runs),
        device="; ".join(sorted({record.device for record in loaded.records})),
        cells=list(loaded.document_cells),
        claims=[one.to_json() for one in judged],
    )


def _write(folder: Path, loaded: Loaded, judged: Sequence[Judged], document: Document) -> None:
    parts = [(section, section_plots(section, loaded)) for section in sections(loaded)]
    for plot in (plot for _, plots in parts for plot in plots):
        plot.png(str(folder / f"{plot.name}.png"))
        _csv(plot.data, folder / f"{plot.name}.csv")
    _csv(with_drafts_only(loaded.cells).drop(columns=["cell", "kernel", "shape_of_model"]), folder / "cells.csv")
    _csv(claims_frame(judged), folder / "claims.csv")
    (folder / REPORT).write_text(report_markdown(loaded, judged, parts, document["status"]), encoding="utf-8")
    (folder / SUMMARY).write_text(json_text(document), encoding="utf-8")
    for run in loaded.runs:
        _keep(run, folder / "records" / run.name)


def section_plots(section: Section, loaded: Loaded) -> list[Plot]:
    """The plots that a section has data for, in the report's order."""
    found = (
        speedup_plot(section),
        batch_plot(section),
        acceptance_plot(section, loaded),
        length_plot(section),
        depth_plot(section, loaded),
        split_plot(section),
        category_plot(section, loaded),
        verify_time_plot(section),
        winner_plot(section),
        recover_plot(section),
        defer_plot(section),
    )
    return [plot for plot in found if plot is not None]


def _keep(run: Run, folder: Path) -> None:
    """What a run was read from, byte by byte, so that a rebuilt report says the same of it."""
    folder.mkdir(parents=True)
    (folder / RECORDS).write_bytes(run.data)
    for name in (ENV, CONFIG, DISPATCH, PROFILE):
        if (run.path / name).is_file():
            shutil.copyfile(run.path / name, folder / name)


def _csv(frame: pd.DataFrame, path: Path) -> None:
    for_csv(frame).to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def _swap(new: Path, out: Path) -> None:
    """Put `new` in the place of `out`; the old report comes back if that fails."""
    old = new.with_suffix(".old")
    if out.exists():
        out.rename(old)
    try:
        new.rename(out)
    except OSError:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
