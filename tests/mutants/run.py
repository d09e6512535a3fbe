"""Plant every fault in a copy of the package, one at a time, and see that its tests notice.

    .venv/bin/python -m tests.mutants.run [NAME...]     some faults, or all: a few minutes on two cores
    .venv/bin/python -m tests.mutants.run --table       write README.md anew

The working tree is never written. Exit 1 where a fault is not noticed, or a test fails without any.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
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
_FAILED = re.compile(r"^FAILED (\S+?)(?: - .*)?$", re.MULTILINE)


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
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = SimpleQueue[Path]()
        for number in range(WORKERS):
            copies.put(_copy(Path(folder) / str(number)))
        sound = _failed(Path(folder) / "0", sorted({test for fault in faults for test in fault.caught_by}), WORKERS)
        print("\n".join(f"fails without any fault: {test}" for test in sound), flush=True)

        def plant(fault: Fault) -> bool:
            copy = copies.get()
            try:
                missed = _missed(copy, fault)
            finally:
                copies.put(copy)
            told = "caught" if not missed else f"SURVIVES {', '.join(missed)}"
            print(f"{fault.name}: {told if fault.caught_by else 'survives, no test is named'}", flush=True)
            return bool(missed)

        with ThreadPoolExecutor(WORKERS) as pool:
            survived = sum(pool.map(plant, faults))
    unnamed = sum(not fault.caught_by for fault in faults)
    print(
        f"{len(faults)} faults: {len(faults) - survived - unnamed} caught, {survived} survive, {unnamed} without a test"
    )
    return int(bool(sound) or bool(survived) or bool(unnamed))


def _copy(place: Path) -> Path:
    place.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place)
    return place


def _missed(copy: Path, fault: Fault) -> list[str]:
    """The tests that should notice the fault and do not."""
    if not fault.caught_by:
        return []
    file = copy / "specla" / fault.file
    sound = file.read_text(encoding="utf-8")
    if sound.count(fault.old) != 1:
        return ["anything: its text is not there exactly once"]
    try:
        _write(file, sound.replace(fault.old, fault.new))
        failed = _failed(copy, fault.caught_by)
    finally:
        _write(file, sound)
    return [test for test in fault.caught_by if not any(_is_of(found, test) for found in failed)]


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    # Python takes a file of the same size and second for the one that it has compiled.
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _failed(copy: Path, tests: Collection[str], workers: int = 0) -> list[str]:
    """Which cases of these tests fail; one that cannot even start has not noticed anything."""
    if not tests:
        return []
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--no-header", "--tb=no", "-n", str(workers)]
    # The copy's modules, not those that are installed.
    environment = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "1000"}
    try:
        done = subprocess.run(
            [*command, *(f"tests/{test}" for test in tests)],
            cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return []
    if done.returncode not in (0, 1):
        print(f"{copy}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}", flush=True)
    return [case.removeprefix("tests/") for case in _FAILED.findall(done.stdout)]


def _is_of(case: str, test: str) -> bool:
    """Whether a case is the test itself, or one of its parameters' or its file's."""
    return case == test or case.startswith((f"{test}[", f"{test}::"))


if __name__ == "__main__":
    sys.exit(main())
