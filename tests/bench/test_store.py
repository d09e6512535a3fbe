"""Run folders: resume, torn lines, the lock, and folders that cannot be written."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specla.bench.lines import read_records
from specla.bench.record import Method, Status, to_json
from specla.bench.store import RunFolder, newest_run, run_paths, write_atomically
from specla.errors import SpeclaError
from specla.report.find import find_runs
from tests.factory import ENV, decode_record, unmeasured

FINGERPRINT = "0123456789abcdef"


def opened(root: Path, env: dict[str, Any] | None = None, slug: str = "e2e") -> RunFolder:
    return RunFolder.open(root, slug, FINGERPRINT, "device: cpu\n", env or ENV)


def test_a_run_holds_the_five_files(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.append(decode_record())
        run.write_summary({"status": "passed"})
        run.log("one cell")
    assert run.path.name == "e2e-0123456789ab"
    names = sorted(path.name for path in run.path.iterdir())
    assert names == ["config.yaml", "env.json", "log.txt", "records.jsonl", "summary.json"]
    assert (run.path / "config.yaml").read_text() == "device: cpu\n"
    assert json.loads((run.path / "env.json").read_text()) == ENV
    assert json.loads((run.path / "summary.json").read_text()) == {"status": "passed"}
    assert (run.path / "log.txt").read_text().endswith(" one cell\n")


def test_dispatch_tables_of_earlier_sessions_stay(tmp_path: Path) -> None:
    def row(batch: int, tree_us: float) -> dict[str, Any]:
        return {"device": "cuda", "tree": "kary-b2-n8", "batch": batch, "times_us": {"tree": tree_us}}

    with opened(tmp_path) as run:
        run.write_dispatch([])
        assert not (run.path / "dispatch.json").exists()
        run.write_dispatch([row(1, 4.0), row(8, 9.0)])
    with opened(tmp_path) as run:
        run.write_dispatch([row(8, 8.0), row(32, 40.0)])
        assert json.loads((run.path / "dispatch.json").read_text()) == [row(1, 4.0), row(8, 8.0), row(32, 40.0)]
        (run.path / "dispatch.json").write_text("[1, ")
        run.write_dispatch([row(1, 5.0)])
        assert json.loads((run.path / "dispatch.json").read_text()) == [row(1, 5.0)]


def test_resume_keeps_passed_and_not_applicable_cells(tmp_path: Path) -> None:
    def cell(name: str, status: Status) -> Any:
        changes: dict[str, Any] = {"fingerprint": name, "overrides": (name,)}
        if status is not Status.PASSED:
            changes |= unmeasured(decode_record(), status, "why")
        return decode_record(**changes)

    with opened(tmp_path) as run:
        assert run.finished == {}
        for status in Status:
            run.append(cell(status.value, status))
        assert sorted(run.finished) == ["not_applicable", "passed"]
    with opened(tmp_path) as run:
        assert sorted(run.finished) == ["not_applicable", "passed"]
        assert run.finished["passed"] == cell("passed", Status.PASSED)
        run.append(cell("failed", Status.PASSED))
    assert len(run.records) == len(Status)
    with opened(tmp_path) as run:
        assert sorted(run.finished) == ["failed", "not_applicable", "passed"]


def test_a_cell_measured_again_after_an_edit_replaces_the_old_one(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.append(decode_record(fingerprint="old code"))
    with opened(tmp_path) as run:
        run.append(decode_record(fingerprint="new code", speedup=2.0))
        assert list(run.finished) == ["new code"]
    assert len(read_records(run.path / "records.jsonl").records) == 2


@pytest.mark.parametrize("keep", [1, 40, -2])
def test_a_torn_last_line_is_dropped_with_a_note(tmp_path: Path, keep: int) -> None:
    line = to_json(decode_record(Method("hybrid", "factors"))).encode()
    with opened(tmp_path) as run:
        run.append(decode_record())
    path = run.path / "records.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + line[:keep])
    assert "records.jsonl:2" in read_records(path).note
    with opened(tmp_path) as run:
        assert len(run.finished) == 1 and "records.jsonl:2" in run.notes[0]
        assert path.read_bytes() == whole
        run.append(decode_record(Method("hybrid", "factors")))
    assert len(read_records(path).records) == 2
    assert "cut short" in (run.path / "log.txt").read_text()


def test_a_last_line_without_its_end_is_completed(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.append(decode_record())
    path = run.path / "records.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with opened(tmp_path) as run:
        run.append(decode_record(Method("hybrid", "factors")))
    assert len(read_records(path).records) == 2 and not run.notes


def test_a_damaged_line_further_up_is_an_error(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.append(decode_record())
    path = run.path / "records.jsonl"
    path.write_bytes(b"{broken\n" + path.read_bytes())
    with pytest.raises(SpeclaError, match=r"records.jsonl:1: damaged record"):
        opened(tmp_path)
    path.write_bytes(path.read_bytes().removeprefix(b"{broken\n"))
    opened(tmp_path).close()


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from specla.bench.store import RunFolder\n"
        f"RunFolder.open(Path(sys.argv[1]), 'e2e', {FINGERPRINT!r}, '', {{}})"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with opened(tmp_path):
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        with pytest.raises(SpeclaError, match="another process"):
            opened(tmp_path)
    assert "SpeclaError" in second.stderr and "another process is writing this run" in second.stderr
    assert subprocess.run(command, check=False).returncode == 0


def test_an_unwritable_folder_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file, not a folder")
    with pytest.raises(SpeclaError, match="cannot be written"):
        opened(tmp_path / "runs")
    with pytest.raises(SpeclaError, match="run name"):
        opened(tmp_path, slug="../x")


def test_a_full_disk_leaves_the_records_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with opened(tmp_path) as run:
        run.append(decode_record())
        before = (run.path / "records.jsonl").read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space") as full_disk:
            run.append(decode_record(Method("hybrid", "factors")))
        assert full_disk.value.filename == str(run.path / "records.jsonl")
        with pytest.raises(OSError, match="No space") as full_disk:
            run.write_summary({"status": "passed"})
        assert full_disk.value.filename == str(run.path / "summary.json")
        assert (run.path / "records.jsonl").read_bytes() == before
        assert len(run.records) == 1
        assert not list(run.path.glob(".*")) and not (run.path / "summary.json").exists()


def test_atomic_write_replaces_the_whole_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.json", "long text\n")
    write_atomically(tmp_path / "a.json", "x\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "x\n"


def test_environment_keeps_the_code_of_earlier_sessions(tmp_path: Path) -> None:
    opened(tmp_path).close()
    run = opened(tmp_path)
    run.close()
    assert "earlier" not in json.loads((run.path / "env.json").read_text())
    for commit in ("b", "c"):
        opened(tmp_path, {**ENV, "commit": commit}).close()
    found = json.loads((run.path / "env.json").read_text())
    assert found["commit"] == "c"
    assert [session["commit"] for session in found["earlier"]] == [ENV["commit"], "b"]


def test_newest_and_all(tmp_path: Path) -> None:
    with pytest.raises(SpeclaError, match="no run here yet"):
        newest_run(tmp_path / "runs")
    for age, slug in ((30, "b"), (20, "a"), (10, "c")):
        with opened(tmp_path, slug=slug) as run:
            run.append(decode_record())
            run.append(decode_record(Method("x"), **unmeasured(decode_record(), Status.FAILED, "crash")))
        os.utime(run.path / "records.jsonl", (1e9 - age, 1e9 - age))
    assert newest_run(tmp_path).name.startswith("c-")
    assert [path.name[0] for path in run_paths(tmp_path)] == ["b", "a", "c"]
    # A run that kept all of its cells wrote its summary alone, and is the one that was asked for last.
    resumed = run_paths(tmp_path)[0]
    (resumed / "summary.json").write_text("{}")
    assert newest_run(tmp_path) == resumed
    (resumed / "summary.json").unlink()


def test_a_folder_in_the_place_of_the_records_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        records = run.path / "records.jsonl"
    records.unlink()
    records.mkdir()
    for look in (lambda: read_records(records), lambda: find_runs([run.path]), lambda: opened(tmp_path)):
        with pytest.raises(SpeclaError) as error:
            look()
        assert str(error.value).startswith(f"{records}: is a folder, not a file of records; ")
