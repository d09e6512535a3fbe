"""Run folders when things go wrong: full disks, read-only mounts, kills, two writers; and nothing left behind."""

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from specla.bench import store
from specla.bench.lines import read_records
from specla.bench.record import Record, Status
from specla.bench.store import RunFolder
from specla.errors import SpeclaError
from specla.report.build import build_report
from tests.factory import ENV, decode_record, unmeasured


def opened(root: Path, env: dict[str, Any] = ENV) -> RunFolder:
    return RunFolder.open(root, "e2e", "0" * 64, "device: cpu\n", env)


def cell(number: int, status: Status = Status.PASSED, code: str = "a") -> Record:
    record = decode_record(fingerprint=f"{number}{code}", overrides=(f"seed={number}",))
    return record if status is Status.PASSED else replace(record, **unmeasured(record, status, "why"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def failing(place: str, code: int) -> Iterator[None]:
    """Inside, one kind of write fails."""

    def fail(*_: object, **__: object) -> Any:
        raise OSError(code, os.strerror(code))

    target, name = {
        "mkdir": (Path, "mkdir"),
        "records": (store, "FileIO"),
        "lock": (fcntl, "flock"),
        "fsync": (os, "fsync"),
        "rename": (os, "replace"),
        "write": (Path, "write_text"),
    }[place]
    with patch.object(target, name, fail):
        yield


@pytest.mark.parametrize("place", ["mkdir", "records", "lock", "fsync", "rename"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO], ids=os.strerror)
def test_a_folder_that_cannot_be_made_leaves_nothing(place: str, code: int, tmp_path: Path) -> None:
    told = rf"cannot be written \({os.strerror(code)}\); choose another folder"
    with failing(place, code), pytest.raises(SpeclaError, match=told):
        opened(tmp_path / "some" / "runs")
    assert list(tmp_path.iterdir()) == []
    opened(tmp_path / "some" / "runs").close()


@pytest.mark.parametrize("place", ["records", "lock", "fsync", "rename"])
def test_a_folder_that_was_there_stays_as_it_was(place: str, tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.append(cell(1))
    (tmp_path / "beside").mkdir()
    before = contents(tmp_path)
    with failing(place, errno.ENOSPC), pytest.raises(SpeclaError, match="No space left"):
        opened(tmp_path, {**ENV, "commit": "another"})
    assert contents(tmp_path) == before and (tmp_path / "beside").is_dir()
    assert list(opened(tmp_path).finished) == ["1a"]


def test_an_empty_folder_of_that_name_stays_empty(tmp_path: Path) -> None:
    (tmp_path / ("e2e-" + "0" * 12)).mkdir()
    with failing("fsync", errno.ENOSPC), pytest.raises(SpeclaError):
        opened(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["e2e-" + "0" * 12]


def test_an_interrupt_while_opening_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_takes_nothing_away(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        before = contents(tmp_path)
        with pytest.raises(SpeclaError, match="another process is writing this run"):
            opened(tmp_path)
        assert contents(tmp_path) == before
        run.append(cell(1))
    assert list(opened(tmp_path).finished) == ["1a"]


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as run:
        run.append(cell(1))
    with failing("write", errno.ENOSPC), pytest.raises(OSError, match=r"No space left.*one"):
        build_report([run.path], tmp_path / "some" / "reports" / "one")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


class Full(FileIO):
    """A disk with room for so many bytes more."""

    left = 0

    def write(self, data: Any) -> int:
        taken = min(len(data), Full.left)
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        Full.left -= taken
        return super().write(data[:taken])


@pytest.mark.parametrize("left", [0, 1, 700, -1])
def test_a_record_that_does_not_fit_is_not_there(left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FileIO", Full)
    Full.left = 10**6
    with opened(tmp_path) as run:
        run.append(cell(1))
        before = (run.path / "records.jsonl").read_bytes()
        # The second line is as long as the first.
        Full.left = left if left >= 0 else len(before) - 1
        with pytest.raises(OSError, match="No space left"):
            run.append(cell(2))
        assert (run.path / "records.jsonl").read_bytes() == before and list(run.finished) == ["1a"]
        Full.left = 10**6
        run.append(cell(2))
    assert [record.fingerprint for record in read_records(run.path / "records.jsonl").records] == ["1a", "2a"]


@pytest.mark.parametrize("torn", [b"", b'{"command":"bench'])
def test_a_session_that_was_killed_is_taken_up(torn: bytes, tmp_path: Path) -> None:
    """SIGKILL: no clean-up of any kind, and the lock goes with the process."""
    child = os.fork()
    if not child:
        run = opened(tmp_path)
        for number in range(3):
            run.append(cell(number))
        assert run._file is not None
        run._file.write(torn)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with opened(tmp_path) as run:
        assert list(run.finished) == ["0a", "1a", "2a"] and bool(run.notes) == bool(torn)
        run.append(cell(3))
    found = read_records(run.path / "records.jsonl")
    assert len(found.records) == 4 and not found.note


def test_a_restart_says_nothing_twice(tmp_path: Path) -> None:
    """Pending lines are of cells that the folder says nothing of yet, or that other code has spoken of last."""
    pending = [cell(number, Status.PENDING) for number in range(3)]
    skipped, failed = cell(3, Status.NOT_APPLICABLE), cell(4, Status.FAILED)
    with opened(tmp_path) as run:
        run.plan([*pending, skipped, failed])
        run.append(cell(0))
        run.append(cell(1, Status.FAILED))
    before = (run.path / "records.jsonl").read_bytes()
    with opened(tmp_path) as run:
        run.plan([*pending, skipped, failed])
        assert (run.path / "records.jsonl").read_bytes() == before
        run.plan([replace(failed, reason="another")])
        assert [record.reason for record in run.records][-1] == "another"
        edited = [cell(number, Status.PENDING, "b") for number in range(3)]
        run.plan(edited)
        assert [record.status for record in run.records][:3] == [Status.PENDING] * 3
        run.plan(pending)
        # Back at the first code, its results count again.
        assert [record.status for record in run.records][:3] == [Status.PASSED, Status.FAILED, Status.PENDING]
        size = (run.path / "records.jsonl").stat().st_size
        run.plan(pending)
        assert (run.path / "records.jsonl").stat().st_size == size
