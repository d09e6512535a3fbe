"""Signals that end a command: what is finished is kept, and the exit code says what ended it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specla.bench.record import Record
from specla.bench.store import RunFolder
from specla.cli.main import _nothing_to_keep
from specla.engine.decode import Decoding, Step
from tests.cli.conftest import Run
from tests.test_interrupt import lose_an_interrupt

pytestmark = pytest.mark.usefixtures("untouched_signals")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_run_with_its_summary(
    number: signal.Signals, code: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in a decode, and two more by one who cannot wait while the summary is written."""

    def interrupted(decoding: Decoding) -> Step:
        signal.raise_signal(number)
        return step(decoding)

    def impatient(folder: RunFolder, document: dict[str, object]) -> None:
        signal.raise_signal(signal.SIGINT)
        write(folder, document)

    step, write = Decoding.step, RunFolder.write_summary
    monkeypatch.setattr(Decoding, "step", interrupted)
    monkeypatch.setattr(RunFolder, "write_summary", impatient)
    ended, _, err = run("specla bench e2e experiment=smoke")
    where, told = err.splitlines()[-2:]
    assert ended == code and re.match(r"specla: interrupted( by SIG\w+)?; what was finished is kept", told)
    assert re.fullmatch(r"runs/bench-e2e-smoke-\w{12}: 0 of \d cells finished", where)
    assert (number.name in err) is (number != signal.SIGINT)
    assert json.loads(next(tmp_path.glob("runs/*/summary.json")).read_text())["status"] == "partial"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("where", ["a record", "a decode", "the end"])
def test_an_interrupt_that_python_ignores_ends_a_run(
    where: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[str] = []

    def lost_after_a_record(folder: RunFolder, record: Record) -> None:
        append(folder, record)
        finished.extend([record.fingerprint] if record.samples else [])
        if where == "a record" and len(finished) == 2:
            lose_an_interrupt()

    def lost_in_a_decode(decoding: Decoding) -> Step:
        if where == "a decode" and finished:
            lose_an_interrupt()
        return step(decoding)

    def lost_at_the_end(*results: object) -> None:
        if where == "the end":
            lose_an_interrupt()

    append, step = RunFolder.append, Decoding.step
    monkeypatch.setattr(RunFolder, "append", lost_after_a_record)
    monkeypatch.setattr(Decoding, "step", lost_in_a_decode)
    monkeypatch.setattr("specla.cli.results.print_results", lost_at_the_end)
    code, _, err = run("specla bench e2e experiment=smoke measure.repeats=5")
    assert code == 130 and err.splitlines()[-1].startswith("specla: interrupted")
    summary = json.loads(next(tmp_path.glob("runs/*/summary.json")).read_text())
    statuses = [cell["status"] for cell in summary["cells"]]
    assert summary["status"] == ("passed" if where == "the end" else "partial")
    assert statuses.count("passed") == len(set(finished)) >= 2 and "failed" not in statuses


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_finished(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "specla.cli.main", "bench", "e2e", "experiment=bench"]
    # The second half of the cells takes long enough to be interrupted on any machine.
    command += ["workload.prompts=1", "workload.max_new_tokens=6,64"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    records = None
    # Beside other work the first cells take minutes: this is no test of how fast they are.
    for _ in range(3000):
        time.sleep(0.1)
        assert process.poll() is None
        records = next(tmp_path.glob("runs/*/records.jsonl"), None)
        if records is not None and '"passed"' in records.read_text():
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err.splitlines()[-1].startswith("specla: interrupted")
    assert records is not None
    summary = json.loads((records.parent / "summary.json").read_text())
    assert summary["status"] == "partial"
    assert "passed" in {cell["status"] for cell in summary["cells"]}


def test_ctrl_c_while_modules_are_imported_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def left(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", left)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit, match="130"), _nothing_to_keep():
        signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == "specla: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _nothing_to_keep():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("words", ["list", "bench e2e --dry-run drafter=ngram", "bench e2e --cfg"])
def test_what_measures_nothing_has_nothing_to_keep(words: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for name in ("typer.echo", "specla.cli.results.print_plan"):
        monkeypatch.setattr(name, interrupted)
    code, _, err = run(f"specla {words}")
    assert code == 130 and err.splitlines()[-1] == "specla: interrupted"
