"""Run folders: `runs/<slug>-<fp12>/` with config.yaml, env.json, records.jsonl, summary.json and log.txt, and with
dispatch.json where `auto` chose by what it measured, and profile.json where kernels were looked at.

A record is on the disk when `append` returns, so a run that was killed goes on where it stopped. A last line cut short
by a crash is dropped with a note.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specla.bench.codec import encode
from specla.bench.kernel_times import CellProfile
from specla.bench.lines import IS_FOLDER, read_records
from specla.bench.manifest import Manifest, PlannedCell, read_manifest
from specla.bench.record import Record, Status, latest, to_json
from specla.errors import SpeclaError, naming
from specla.interrupt import unbroken

RECORDS = "records.jsonl"
ENV = "env.json"
CONFIG = "config.yaml"
SUMMARY = "summary.json"
LOG = "log.txt"
DISPATCH = "dispatch.json"
PROFILE = "profile.json"
FINISHED = (Status.PASSED, Status.NOT_APPLICABLE)
"""What a resumed run does not measure again; failed and inconclusive cells get another try."""


def write_atomically(path: Path, text: str) -> None:
    """Write a whole file or leave the old one: a temporary sibling, fsync, rename."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path), open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def json_text(value: object) -> str:
    """Indented JSON with a line's end, keys as they come; in ASCII, since text may hold what UTF-8 cannot."""
    return json.dumps(encode(value), indent=1, allow_nan=False) + "\n"


def missing(path: Path) -> list[Path]:
    """A path, and those of the folders around it that are not there, the innermost first. Raises OSError."""
    return [one for one in (path, *path.parents) if not one.exists()]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first; one that something lies in stays."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@dataclass
class RunFolder:
    """A run folder that this process alone writes, from `open` to `close`. Use it in a `with` statement."""

    path: Path
    notes: list[str] = field(default_factory=list)
    """What was repaired on opening."""
    _file: FileIO | None = None
    _elsewhere: bool = False
    """Whether another process writes it."""
    _earlier: tuple[Record, ...] = ()
    _added: list[Record] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        root: Path,
        slug: str,
        fingerprint: str,
        config_yaml: str,
        env: Mapping[str, Any],
        cells: Sequence[PlannedCell] = (),
    ) -> Self:
        """Create `root/<slug>-<first 12 of fingerprint>`, or take it up again.

        Args:
            root: the folder of runs.
            slug: the start of its name.
            fingerprint: of the run.
            config_yaml: what config.yaml says besides the plan.
            env: what env.json says.
            cells: the plan that records are held against; none where they are not.

        Raises:
            SpeclaError: the folder cannot be written, another process holds it, or its records are damaged. What was
                not there before is not there then.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", slug):
            raise SpeclaError(f"run name {slug!r}: use letters, digits, '.', '_' and '-', a letter or digit first")
        run = cls(root / f"{slug}-{fingerprint[:12]}")
        made: list[Path] = []
        try:
            made = missing(run.path / RECORDS)
            run.path.mkdir(parents=True, exist_ok=True)
            run._file = FileIO(run.path / RECORDS, "ab")
            run._lock()
            plan = run._take_up(cells)
            write_atomically(run.path / CONFIG, config_yaml + (plan.to_yaml() if cells else ""))
            write_atomically(run.path / ENV, json_text(run._with_earlier_sessions(env)))
            for note in run.notes:
                run.log(note)
        except BaseException as error:
            run._undo(made)
            if isinstance(error, IsADirectoryError):
                raise SpeclaError(f"{error.filename}: {IS_FOLDER}") from None
            if isinstance(error, OSError):
                raise SpeclaError(f"{run.path}: cannot be written ({error.strerror}); choose another folder") from None
            raise
        return run

    def _undo(self, made: Sequence[Path]) -> None:
        """After `open` failed: close, and remove what it made."""
        self.close()
        if not made or self._elsewhere:
            return
        with suppress(OSError):
            # Not where another process has written it and gone.
            if not made[0].stat().st_size:
                for name in (RECORDS, CONFIG, ENV, LOG) if self.path in made else (RECORDS,):
                    (self.path / name).unlink(missing_ok=True)
        remove_empty(made[1:])

    def _lock(self) -> None:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._elsewhere = True
            raise SpeclaError(f"{self.path}: another process is writing this run; wait for it or stop it") from None

    def _take_up(self, cells: Sequence[PlannedCell]) -> Manifest:
        """Read what earlier sessions left and cut a torn last line off, so that the next record starts a line.

        Returns:
            The plan, with what earlier sessions had planned.
        """
        assert self._file is not None
        found = read_records(self.path / RECORDS)
        self._earlier = found.records
        known = {record.fingerprint for record in found.records}
        before = read_manifest(self.path / CONFIG)
        if before is not None:
            before.check(found, str(self.path / RECORDS))
            known = before.known
        if found.note:
            self.notes.append(found.note)
            self._file.truncate(found.sound_bytes)
        elif found.data and not found.data.endswith(b"\n"):
            self._file.write(b"\n")
        return Manifest(tuple(cells)).after(known)

    def _with_earlier_sessions(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """`env`, and under `earlier` the commit and date of every session that ran other code in this folder."""
        try:
            before = json.loads((self.path / ENV).read_text(encoding="utf-8"))
            earlier = list(before.get("earlier", []))
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            return dict(env)
        if any(before.get(name) != env.get(name) for name in ("commit", "dirty")):
            earlier.append({name: before.get(name) for name in ("commit", "dirty", "date")})
        return {**env, "earlier": earlier} if earlier else dict(env)

    @property
    def records(self) -> list[Record]:
        """One record a cell: the latest, this session's included."""
        return latest((*self._earlier, *self._added))

    def plan(self, records: Iterable[Record]) -> list[Record]:
        """Add what is known of cells before they are measured, but for what the folder says of them already.

        Returns:
            Those that were added.
        """
        newest = {record.key: record for record in self.records}
        added = [record for record in records if not _says(newest.get(record.key), record)]
        for record in added:
            self.append(record)
        return added

    @property
    def finished(self) -> dict[str, Record]:
        """By fingerprint, the cells that need no further measuring."""
        return {record.fingerprint: record for record in self.records if record.status in FINISHED}

    # Else a record could be in the file, and not in the summary.
    @unbroken()
    def append(self, record: Record) -> None:
        """Add one record; it is on the disk on return. A disk error (OSError) leaves the file as it was."""
        if self._file is None:
            raise ValueError(f"{self.path} is closed")
        start = self._file.seek(0, os.SEEK_END)
        with naming(self.path / RECORDS):
            try:
                rest = to_json(record).encode() + b"\n"
                while rest:
                    rest = rest[self._file.write(rest) :]
                os.fsync(self._file.fileno())
            except OSError:
                self._file.truncate(start)
                raise
        self._added.append(record)

    def write_summary(self, document: Mapping[str, Any]) -> None:
        """Replace summary.json."""
        write_atomically(self.path / SUMMARY, json_text(document))

    def write_dispatch(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write dispatch.json: these measurements, and those of earlier sessions that none of them repeats."""
        if not rows:
            return
        rows = (*self._rows(DISPATCH), *rows)
        by_case = {json.dumps({**row, "times_us": None}, sort_keys=True): row for row in rows}
        write_atomically(self.path / DISPATCH, json_text(list(by_case.values())))

    def write_profile(self, cell: CellProfile) -> None:
        """Add a cell to profile.json, in place of an earlier profile of it."""
        earlier = [row for row in self._rows(PROFILE) if row.get("fingerprint") != cell.fingerprint]
        write_atomically(self.path / PROFILE, json_text([*earlier, cell]))

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """What earlier sessions left in a file of rows; one that is damaged is begun anew."""
        try:
            rows = json.loads((self.path / name).read_text(encoding="utf-8"))
            return [row for row in rows if isinstance(row, dict)]
        except (OSError, ValueError, TypeError, RecursionError):
            return []

    def log(self, line: str) -> None:
        """Add a line, with the time, to log.txt."""
        with naming(self.path / LOG), open(self.path / LOG, "a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}\n")

    def close(self) -> None:
        """Let other processes write the run."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _says(newest: Record | None, planned: Record) -> bool:
    """Whether a cell's newest record, of the same code and inputs, says all that its planned one would."""
    if newest is None or newest.fingerprint != planned.fingerprint:
        return False
    return planned.status is Status.PENDING or (newest.status, newest.reason) == (planned.status, planned.reason)


def run_paths(root: Path) -> list[Path]:
    """The run folders under `root`, the newest last: by their last record or summary, one that was resumed included."""
    try:
        found = [path.parent for path in root.glob(f"*/{RECORDS}")] if root.is_dir() else []
    except OSError as error:
        raise SpeclaError(f"{root}: cannot be read ({error.strerror}); name another folder") from None
    return sorted(found, key=lambda path: (_written(path), path.name))


def _written(run: Path) -> int:
    files = [file for file in (run / RECORDS, run / SUMMARY) if file.exists()]
    return max((file.stat().st_mtime_ns for file in files), default=0)


def newest_run(root: Path) -> Path:
    """The run that was written last. Raises SpeclaError where there is none."""
    paths = run_paths(root)
    if not paths:
        raise SpeclaError(f"{root}: no run here yet; measure one with `specla bench e2e`")
    return paths[-1]
