"""The other end of `specla.bench.turns`: a process that runs one checkout's code and decodes a window when asked."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from specla.bench.record import Record, from_json
from specla.errors import MeasurementError, SpeclaError

PROTOCOL = 1
Key = tuple[object, ...]
"""Of a cell: `Record.key`."""
_TURNS = "specla/bench/turns.py"


@dataclass(frozen=True)
class Side:
    """A process that is ready.

    Attributes:
        name: base or new.
        introduction: what it said of itself and its cells.
        ask: send a message, wait for the answer.
    """

    name: str
    introduction: Mapping[str, Any]
    ask: Callable[[Mapping[str, Any]], dict[str, Any]]

    @cached_property
    def planned(self) -> dict[Key, Record]:
        """Every cell's record before anything is measured, in the order of their places."""
        records = [from_json(cell["record"], self.name) for cell in self.introduction["cells"]]
        return {record.key: record for record in records}

    @cached_property
    def places(self) -> dict[Key, int]:
        """How to name a cell to the process."""
        return {key: place for place, key in enumerate(self.planned)}

    def cell(self, key: Key) -> Mapping[str, Any]:
        """What it said of a cell."""
        found: Mapping[str, Any] = self.introduction["cells"][self.places[key]]
        return found


@dataclass(frozen=True)
class _Process:
    """A process with its three streams, and the one line a message that goes over two of them."""

    name: str
    root: Path
    process: subprocess.Popen[str]
    errors: IO[str]

    def hear(self) -> dict[str, Any]:
        """The next answer."""
        assert self.process.stdout is not None
        try:
            heard = json.loads(self.process.stdout.readline())
        except ValueError:
            raise MeasurementError(f"{self.name}: its process ended ({self._last_words()})") from None
        if "error" in heard:
            raise SpeclaError(f"{self.name}: {heard['error']}")
        return dict(heard)

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message, wait for the answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended, and hearing nothing tells why.
        return self.hear()

    def ready(self) -> Side:
        """Wait until it is, and check whose code it runs."""
        introduction = self.hear()
        if introduction.get("protocol") != PROTOCOL:
            raise SpeclaError(f"{self.name}: takes turns by protocol {introduction.get('protocol')}, not {PROTOCOL}")
        package = (self.root / "specla").resolve()
        if Path(introduction["package"]) != package:
            raise MeasurementError(f"{self.name}: runs {introduction['package']}, not {package}")
        self.hear()
        return Side(self.name, introduction, self.ask)

    def _last_words(self) -> str:
        """The last line it wrote to stderr; a traceback comes after stdout was closed."""
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            return "it answered what is no JSON"
        self.errors.seek(0)
        said = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        code = self.process.returncode
        return f"killed by {signal.Signals(-code).name}" if code < 0 else said[-1] if said else f"exit code {code}"


@contextmanager
def start_side(name: str, root: Path, words: list[str], config_dir: Path) -> Iterator[Callable[[], Side]]:
    """Start a process; the function that is yielded waits until it is ready. It is ended on the way out.

    Args:
        name: base or new.
        root: of the checkout.
        words: what to plan.
        config_dir: a conf folder that comes before the checkout's own.

    Raises:
        SpeclaError: where the checkout is too old; from the function, where it cannot plan or load this.
        MeasurementError: from it and from `Side.ask`, where the process ended by itself.
    """
    script = root / _TURNS
    if not script.is_file():
        raise SpeclaError(f"{name}: has no {_TURNS}, so it is too old to take turns; compare runs of both instead")
    asked = json.dumps({"words": words, "config_dir": str(config_dir)})
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            # Without -P the script's own folder would be searched for modules first.
            [sys.executable, "-P", str(script), asked],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        try:
            yield _Process(name, root, process, errors).ready
        finally:
            process.kill()
            process.communicate()
