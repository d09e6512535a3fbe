"""Two checkouts measured side by side on one machine: each in a process of its own, turn by turn, in several rounds.

A turn is one window of about a tenth of a second, and the other side's turn at the same window follows at once, so that
whatever else the machine does meets both. What differs from process to process (where memory lies, which pages are
large) would stay with one side for good: a round therefore starts both processes anew, and rounds are what the interval
is taken over. No torch here: this process waits.
"""

import hashlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specla.bench.confdir import conf_dir
from specla.bench.record import KernelSample, Method, Record, Sample, Split, Status, from_json
from specla.bench.side import Key, Side, start_side
from specla.bench.store import RunFolder
from specla.bench.summary import build_document

EXPERIMENT = "regress"
ROUNDS, PASSES = 6, 3
"""A pass times every window of every cell once on either side; so many passes make a round."""
SIDE_BY_SIDE = "side_by_side"
"""The key of env.json by which two runs are known to have been measured together: their session, and the passes."""
OPERATIONS = {"verify": "verify_us", "recover": "commit_us"}
"""Of a cell's operation by itself: the group of its record -> the figure of a turn that it holds."""
_DEFERRED = ("factors_deferred", "factors_lazy")


@dataclass(frozen=True)
class Watch:
    """Whoever watches: lines worth keeping, the number of turns to come, every turn."""

    log: Callable[[str], None]
    total: Callable[[int], None]
    tick: Callable[[str], None]


@dataclass(frozen=True)
class Turn:
    """One window that one side decoded."""

    repeat: int
    item: int
    order: int
    """Its place in its pass."""
    taken: Mapping[str, Any]


@dataclass
class Book:
    """One side's cells, as they went through the gate, and their turns."""

    side: Side
    """Of the first round; what it said of its cells holds for all."""
    records: dict[Key, Record]
    turns: dict[Key, list[Turn]] = field(default_factory=dict)

    @property
    def sound(self) -> list[Key]:
        """The cells that are timed."""
        return [key for key, record in self.records.items() if record.status is not Status.FAILED]


def measure_side_by_side(
    base: Path, new: Path, out: Path, watch: Watch, rounds: int = ROUNDS, passes: int = PASSES
) -> tuple[Path, Path]:
    """Measure experiment=regress in both checkouts, and leave a run folder for each: (the base's, the other's).

    Args:
        base: root of the base's checkout.
        new: root of the other.
        out: the folder that gets both runs.
        watch: see `Watch`.
        rounds: of which an interval needs five.
        passes: in each round.

    Raises:
        SpeclaError: a side cannot plan the experiment or load what it needs, or `out` cannot be written.
        MeasurementError: a side's process ended by itself.
    """
    books: list[Book] = []
    with tempfile.TemporaryDirectory(prefix="specla-regress-") as scratch:
        shared = _shared_config(Path(scratch))
        for number in range(rounds):
            with ExitStack() as stack:
                # Both load at the same time: nothing is on the clock yet.
                words = [f"experiment={EXPERIMENT}"]
                starting = [
                    stack.enter_context(start_side(name, root, words, shared))
                    for name, root in (("base", base), ("new", new))
                ]
                sides = [ready() for ready in starting]
                if not books:
                    books = [_gated(side, watch) for side in sides]
                    windows = sum(len(book.side.cell(key)["items"]) for book in books for key in book.sound)
                    watch.total(rounds * passes * windows)
                else:
                    # The gates warmed the first round up; here turns do that are not kept.
                    _warm(sides, books)
                for repeat in range(number * passes, (number + 1) * passes):
                    _pass(sides, books, repeat, watch.tick)
    return _write(out, books, passes)


def _shared_config(folder: Path) -> Path:
    """A conf folder with this checkout's experiment alone, for both sides."""
    name = f"{EXPERIMENT}.yaml"
    (folder / "experiment").mkdir()
    shutil.copyfile(conf_dir() / "experiment" / name, folder / "experiment" / name)
    return folder


def _gated(side: Side, watch: Watch) -> Book:
    """Run every cell of a side through the gate."""
    if side.introduction["note"]:
        watch.log(f"{side.name}: {side.introduction['note']}")
    book = Book(side, {})
    for key, place in side.places.items():
        record = from_json(side.ask({"gate": place})["record"], side.name)
        book.records[key] = record
        if record.status is Status.FAILED:
            watch.log(f"{side.name}: failed: {' '.join(record.overrides)}: {record.reason}")
    return book


def _warm(sides: Sequence[Side], books: Sequence[Book]) -> None:
    """The first window of every cell."""
    for side, book in zip(sides, books, strict=True):
        for key in book.sound:
            side.ask({"time": [side.places[key], 0]})


def _pass(sides: Sequence[Side], books: Sequence[Book], repeat: int, tick: Callable[[str], None]) -> None:
    """Every window once on both sides. Who goes first changes from window to window and from pass to pass."""
    numbered = list(enumerate(dict.fromkeys(key for book in reversed(books) for key in book.sound)))
    turned = repeat % max(1, len(numbered))
    order = itertools.count()
    for item in range(max((len(book.side.cell(key)["items"]) for book in books for key in book.sound), default=0)):
        for number, key in numbered[turned:] + numbered[:turned]:
            pair = list(zip(sides, books, strict=True))
            for side, book in pair if (number + item + repeat) % 2 else reversed(pair):
                if key not in book.sound or item >= len(side.cell(key)["items"]):
                    continue
                taken = side.ask({"time": [side.places[key], item]})
                if taken.get("departed"):
                    book.records[key] = replace(book.records[key], status=Status.FAILED, reason=taken["departed"])
                    continue
                book.turns.setdefault(key, []).append(Turn(repeat, item, next(order), taken))
                tick(f"{side.name}: {side.cell(key)['label']}")


def _write(out: Path, books: Sequence[Book], passes: int) -> tuple[Path, Path]:
    started = datetime.now(UTC).isoformat(timespec="microseconds")
    session = hashlib.sha256(f"{started} {os.getpid()}".encode()).hexdigest()
    paths = []
    for book in books:
        said = book.side.introduction
        env = {**said["env"], SIDE_BY_SIDE: {"session": session[:12], "passes": passes}}
        with RunFolder.open(out, book.side.name, session, said["config"], env) as folder:
            for record in _records(book):
                folder.append(replace(record, started=started))
            folder.write_summary(build_document(folder.records, EXPERIMENT, folder.path.name, env["device"]))
            paths.append(folder.path)
    base, new = paths
    return base, new


def _records(book: Book) -> Iterator[Record]:
    """Of every cell its decode, then its verification and its commits by themselves."""
    keys, told = list(book.side.places), set[tuple[object, ...]]()
    for key, record in book.records.items():
        if record.status is Status.FAILED:
            yield record
            continue
        cell, turns = book.side.cell(key), book.turns.get(key, [])
        ar = {
            (turn.repeat, turn.item): turn.taken for turn in book.turns.get(keys[cell["ar"]], []) if turn.taken["steps"]
        }
        samples = tuple(
            _sample(turn, ar.get((turn.repeat, turn.item)), cell["items"][turn.item])
            for turn in turns
            if turn.taken["steps"]
        )
        if not samples:
            yield replace(record, status=Status.INCONCLUSIVE, reason="every row ended with its first token")
            continue
        yield replace(record, status=Status.PASSED, samples=samples)
        for group, figure in OPERATIONS.items():
            operation = _operation(group, record.method)
            if operation in told:
                continue
            told.add(operation)
            times = tuple(
                KernelSample(turn.repeat, turn.taken[figure], turn.order) for turn in turns if turn.taken["steps"]
            )
            yield replace(record, command=EXPERIMENT, group=group, status=Status.PASSED, samples=times, counts=None)


def _operation(group: str, method: Method) -> tuple[str, ...]:
    """What is the same operation in any cell: it is told once. A commit that was deferred is part of verifying."""
    if group == "recover":
        return group, method.recover
    return group, method.verify, method.recover if method.recover in _DEFERRED else ""


def _sample(turn: Turn, ar: Mapping[str, Any] | None, batch: Mapping[str, Any]) -> Sample:
    taken = turn.taken
    return Sample(
        repeat=turn.repeat,
        item=turn.item,
        seconds=taken["seconds"],
        tokens=taken["tokens"],
        steps=taken["steps"],
        category=batch["category"],
        prompts=tuple(batch["prompts"]),
        order=turn.order,
        ar_seconds=None if ar is None else ar["seconds"],
        ar_tokens=None if ar is None else ar["tokens"],
        split_us=Split(**taken["split_us"]),
    )
