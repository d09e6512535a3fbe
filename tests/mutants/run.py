"""Plant every fault in a copy of the package, one at a time, and see that its tests notice.

    .venv/bin/python -m tests.mutants.run [NAME...]     some faults, or all: a few minutes on two cores
    .venv/bin/python -m tests.mutants.run --table       write README.md anew

The working tree is never written. Exit 1 where a fault is not noticed, or a test fails without any.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import FAULTS, TABLE, table
from tests.mutants.fault import Fault

ROOT = Path(__file__).parents[2]
COPIED = ("specla", "tests", "conf", "pyproject.toml")
WORKERS = 2
SECONDS = 600
"""For one fault; its tests take seconds."""
PRELOADED = ["torch", "pytest", "hypothesis", "numpy", "scipy.stats", "pandas", "omegaconf", "tokenizers"]
"""Imported once, in the process that all others are forks of: most of what a test takes. Nothing of specla, and not
Triton, which has to be imported by the tests of kernels."""


def main() -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="tests.mutants.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a fault; all unless given")
    parser.add_argument("--table", action="store_true", help="write README.md anew and run nothing")
    asked = parser.parse_args()
    if asked.table:
        TABLE.write_text(table(), encoding="utf-8")
        return 0
    if unknown := set(asked.names) - {fault.name for fault in FAULTS}:
        parser.error(f"no fault {min(unknown)!r}")
    return _run([fault for fault in FAULTS if not asked.names or fault.name in asked.names])


def _run(faults: list[Fault]) -> int:
    os.environ["OMP_NUM_THREADS"] = "1"
    multiprocessing.set_start_method("forkserver")
    multiprocessing.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(WORKERS) as pool:
        copies = SimpleQueue[Path]()
        for number in range(WORKERS):
            copies.put(_copy(Path(folder) / str(number)))

        def on_a_copy(fault: Fault | None, tests: Sequence[str]) -> list[str]:
            copy = copies.get()
            try:
                return _failed(copy, tests) if fault is None else _planted(copy, fault)
            finally:
                copies.put(copy)

        tests = sorted({test for fault in faults for test in fault.caught_by})
        halves = [tests[number::WORKERS] for number in range(WORKERS)]
        unsound = [test for found in pool.map(on_a_copy, [None] * WORKERS, halves) for test in found]
        for test in unsound:
            print(f"fails without any fault: {test}", flush=True)
        survived = 0
        for fault, failed in zip(faults, pool.map(on_a_copy, faults, [()] * len(faults)), strict=True):
            missed = [test for test in fault.caught_by if not any(_is_of(case, test) for case in failed)]
            told = f"SURVIVES {', '.join(missed)}" if missed else "caught" if fault.caught_by else "SURVIVES, no test"
            print(f"{fault.name}: {told}", flush=True)
            survived += told != "caught"
    print(f"{len(faults)} faults: {len(faults) - survived} caught, {survived} survive")
    return int(bool(unsound) or bool(survived))


def _copy(place: Path) -> Path:
    place.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place)
    return place


def _planted(copy: Path, fault: Fault) -> list[str]:
    """The cases that fail with the fault."""
    file = copy / "specla" / fault.file
    sound = file.read_text(encoding="utf-8")
    if sound.count(fault.old) != 1:
        return []
    try:
        _write(file, sound.replace(fault.old, fault.new))
        return _failed(copy, fault.caught_by)
    finally:
        _write(file, sound)


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    # Python takes a file of the same size and second for the one that it has compiled.
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _failed(copy: Path, tests: Sequence[str]) -> list[str]:
    """Which cases of these tests fail; one that cannot even start has not noticed anything."""
    if not tests:
        return []
    answer = copy / "failed.json"
    answer.unlink(missing_ok=True)
    process = multiprocessing.Process(target=_test, args=(copy, tests, answer))
    process.start()
    process.join(SECONDS)
    process.kill()
    if not answer.exists():
        print(f"no answer: {', '.join(tests)}", flush=True)
        return []
    found: list[str] = json.loads(answer.read_text(encoding="utf-8"))
    return found


class _Listener:
    """Pytest's reports of what failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: object) -> None:
        """A test that raised; fixtures do not count."""
        if report.when == "call" and report.failed:  # type: ignore[attr-defined]
            self.failed.append(report.nodeid.removeprefix("tests/"))  # type: ignore[attr-defined]


def _test(copy: Path, tests: Sequence[str], answer: Path) -> None:
    """In a process of its own: run tests of the copy, with the copy's modules."""
    import pytest

    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "specla")]:
        del sys.modules[name]
    os.chdir(copy)
    sys.path = [str(copy), *(path for path in sys.path if Path(path or ".").resolve() not in (ROOT, copy))]
    os.environ["PYTHONPATH"] = str(copy)
    listener = _Listener()
    with open(copy / "log.txt", "a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        options = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
        code = pytest.main([*options, *(f"tests/{test}" for test in tests)], plugins=[listener])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        answer.write_text(json.dumps(listener.failed), encoding="utf-8")


def _is_of(case: str, test: str) -> bool:
    """Whether a case is the test itself, or one of its parameters' or its file's."""
    return case == test or case.startswith((f"{test}[", f"{test}::"))


if __name__ == "__main__":
    sys.exit(main())
