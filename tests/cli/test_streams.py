"""Whatever a command's output leads to: a reader who leaves, a stream that is closed, a disk that is full."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from specla.cli.streams import Stream, reader_left
from tests.cli.conftest import Run
from tests.factory import ar_record, decode_record, write_run

TINY = "model=gdn-tiny model.weights=random workload.prompts=1 workload.max_new_tokens=4 measure.repeats=1 threads=1"
COMMANDS = ("--help", "--version", "list", "explain tree", "bench e2e --help", "bench e2e --cfg", "bench e2e --dry-run")
# These take a second or more, and print as the others do.
SLOWER = ("report RUN", "compare RUN RUN --json", f"generate hello {TINY}")


@pytest.fixture
def deserted() -> Iterator[TextIO]:
    """A pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream:
        yield stream


@pytest.fixture
def full() -> Iterator[TextIO]:
    """A file on a disk that is full."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w", encoding="utf-8") as stream:
        yield stream


@pytest.mark.parametrize("words", [*COMMANDS, *SLOWER])
def test_a_reader_may_leave(
    words: str, run: Run, deserted: TextIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if "RUN" in words:
        words = words.replace("RUN", str(write_run(tmp_path, [ar_record(), decode_record()])))
    monkeypatch.setattr(sys, "stdout", deserted)
    code, _, err = run(f"specla {words}")
    assert code == 0 and "specla:" not in err and "Traceback" not in err


@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_is_told_once(words: str, run: Run, full: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", full)
    code, _, err = run(f"specla {words}")
    assert code == 4 and err.endswith("specla: stdout: No space left on device\n") and "Traceback" not in err


@pytest.mark.parametrize("words", COMMANDS)
def test_stdout_may_be_closed(words: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    code, _, err = run(f"specla {words}")
    assert code == 0 and "specla:" not in err


def test_what_was_measured_outlives_who_watches(
    run: Run, deserted: TextIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdout", deserted)
    monkeypatch.setattr(sys, "stderr", deserted)
    code, _, _ = run(f"specla bench e2e {TINY} topology.length=1 --json")
    summary = json.loads(next(tmp_path.glob("runs/*/summary.json")).read_text())
    # Its own code: fewer than five repeats are inconclusive.
    assert code == 3 and {cell["status"] for cell in summary["cells"]} == {"inconclusive"}


def test_a_stream_remembers_why(deserted: TextIO, full: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    left, problem = Stream(deserted), Stream(full)
    for stream in (left, problem):
        stream.write("text\n" * 3)
        stream.flush()
        # What comes later goes nowhere, and needs no second excuse.
        stream.write("more\n")
        stream.flush()
    assert left.left and left.problem is None
    assert not problem.left and problem.problem is not None and problem.problem.strerror == "No space left on device"
    for stream, gone in ((left, True), (problem, False)):
        monkeypatch.setattr(sys, "stdout", stream)
        assert reader_left() is gone


def test_text_arrives_as_its_owner_would_write_it(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w", encoding="latin-1", errors="replace") as owner:
        stream = Stream(owner)
        stream.write("café 語\n")
        stream.flush()
        assert not stream.left and stream.problem is None
    assert (tmp_path / "file").read_bytes() == "café ?\n".encode("latin-1")


@pytest.mark.parametrize("stdout", ["pipe", "full", "closed"])
def test_nothing_is_said_when_the_process_ends(stdout: str) -> None:
    """Python flushes its streams once more on its way out."""
    command = {"pipe": "| true", "full": "> /dev/full", "closed": ">&-"}[stdout]
    line = f"'{sys.executable}' -m specla.cli.main --version {command}; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    told = "specla: stdout: No space left on device\n" if stdout == "full" else ""
    assert (ended.returncode, ended.stderr) == (4 if told else 0, told)
