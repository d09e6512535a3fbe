"""Run folders: `runs/<slug>-<fp12>/` with config.yaml, env.json, records.jsonl, summary.json and log.txt, and with
dispatch.json where `auto` chose by what it measured, and profile.json where kernels were looked at.

A record is on the disk when `append` returns, so a run that was killed goes on where it stopped. A last line cut short
by a crash is dropped with a note.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specla.bench.codec import encode
from specla.bench.kernel_times import CellProfile
from specla.bench.record import Record, Status, from_json, latest, to_json
from specla.errors import SpeclaError
from specla.interrupt import unbroken

RECORDS = "records.jsonl"
ENV = "env.json"
CONFIG = "config.yaml"
SUMMARY = "summary.json"
LOG = "log.txt"
DISPATCH = "dispatch.json"
PROFILE = "profile.json"
_MEND = "restore the file, delete the line, or measure again into another --out"
FINISHED = (Status.PASSED, Status.NOT_APPLICABLE)
"""What a resumed run does not measure again; failed and inconclusive cells get another try."""


@dataclass(frozen=True)
class RecordFile:
    """What a records.jsonl holds: its records as written, and a note if its last line was cut short."""

    records: tuple[Record, ...]
    note: str = ""
    sound_bytes: int = 0
    """Length of the file up to and with its last whole record."""
    tail: bytes = b""
    """What stands of a last line that was cut short."""


@dataclass(frozen=True)
class RunInfo:
    """One line of a listing."""

    path: Path
    cells: int
    counts: Mapping[str, int]
    """Cells by status."""
    started: str
    """ISO time of the first record."""
    note: str = ""
    """What is wrong with its records, if anything."""


def read_records(path: Path) -> RecordFile:
    """The records of a file. Raises SpeclaError for a damaged line that is not the last, or an unknown schema."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SpeclaError(f"{path}: cannot be read ({error.strerror})") from None
    records: list[Record] = []
    at = 0
    lines = data.splitlines(keepends=True)
    for number, raw in enumerate(lines, start=1):
        where = f"{path}:{number}"
        if number == len(lines) and not _is_json(raw):
            return RecordFile(tuple(records), f"{where}: the last line was cut short and is left out", at, raw)
        if raw.strip():
            try:
                records.append(from_json(raw.decode("utf-8", errors="replace"), where))
            except SpeclaError as error:
                raise SpeclaError(f"{error}; {_MEND}") from None
        at += len(raw)
    return RecordFile(tuple(records), sound_bytes=at)


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw or b"null")
    except ValueError:
        return not raw.strip()
    return True


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Disk errors from writing an open file name no file: this adds it, for the one line that a user reads."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Write a whole file or leave the old one: a temporary sibling, fsync, rename."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _naming(path), open(beside, "w", encoding="utf-8") as file:
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


@dataclass
class RunFolder:
    """A run folder that this process alone writes, from `open` to `close`. Use it in a `with` statement."""

    path: Path
    notes: list[str] = field(default_factory=list)
    """What was repaired on opening."""
    _file: FileIO | None = None
    _earlier: tuple[Record, ...] = ()
    _added: list[Record] = field(default_factory=list)

    @classmethod
    def open(cls, root: Path, slug: str, fingerprint: str, config_yaml: str, env: Mapping[str, Any]) -> Self:
        """Create `root/<slug>-<first 12 of fingerprint>`, or take it up again.

        Raises SpeclaError where the folder cannot be written, another process holds it, or its records are damaged.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", slug):
            raise SpeclaError(f"run name {slug!r}: use letters, digits, '.', '_' and '-', a letter or digit first")
        run = cls(root / f"{slug}-{fingerprint[:12]}")
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            run._file = FileIO(run.path / RECORDS, "ab")
            run._lock()
            run._take_up()
            write_atomically(run.path / CONFIG, config_yaml)
            write_atomically(run.path / ENV, json_text(run._with_earlier_sessions(env)))
            for note in run.notes:
                run.log(note)
        except OSError as error:
            run.close()
            raise SpeclaError(f"{run.path}: cannot be written ({error.strerror}); choose another folder") from None
        except SpeclaError:
            run.close()
            raise
        return run

    def _lock(self) -> None:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SpeclaError(f"{self.path}: another process is writing this run; wait for it or stop it") from None

    def _take_up(self) -> None:
        """Read what earlier sessions left and cut a torn last line off, so that the next record starts a line."""
        assert self._file is not None
        found = read_records(self.path / RECORDS)
        self._earlier = found.records
        if found.note:
            self.notes.append(found.note)
            self._file.truncate(found.sound_bytes)
        elif found.sound_bytes and not (self.path / RECORDS).read_bytes().endswith(b"\n"):
            self._file.write(b"\n")

    def _with_earlier_sessions(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """`env`, and under `earlier` the commit and date of every session that ran other code in this folder."""
        try:
            before = json.loads((self.path / ENV).read_text(encoding="utf-8"))
            earlier = list(before.get("earlier", []))
        except (OSError, ValueError, AttributeError, TypeError):
            return dict(env)
        if any(before.get(name) != env.get(name) for name in ("commit", "dirty")):
            earlier.append({name: before.get(name) for name in ("commit", "dirty", "date")})
        return {**env, "earlier": earlier} if earlier else dict(env)

    @property
    def records(self) -> list[Record]:
        """One record a cell: the latest, this session's included."""
        return latest((*self._earlier, *self._added))

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
        with _naming(self.path / RECORDS):
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
        except (OSError, ValueError, TypeError):
            return []

    def log(self, line: str) -> None:
        """Add a line, with the time, to log.txt."""
        with _naming(self.path / LOG), open(self.path / LOG, "a", encoding="utf-8") as file:
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


def list_runs(root: Path) -> list[RunInfo]:
    """Every run under `root`, the newest last."""
    return [_info(path) for path in run_paths(root)]


def _info(path: Path) -> RunInfo:
    try:
        found = read_records(path / RECORDS)
    except SpeclaError as error:
        return RunInfo(path, 0, {}, "", str(error))
    records = latest(found.records)
    statuses = [record.status.value for record in records]
    counts: dict[str, int] = {
        status.value: statuses.count(status.value) for status in Status if status.value in statuses
    }
    return RunInfo(path, len(records), counts, found.records[0].started if found.records else "", found.note)
