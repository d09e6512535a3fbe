"""Figures that no clock decides, tracked in git: what is emitted and accepted, bytes, launches.

They are measured in float32 on a CPU from fixed prompts, so that the same code gives the same digits. A launch is a
call of a torch operator that computes (views and bare allocations do not); on a GPU it would be a kernel or a few. Any
difference from the tracked file is either a mistake or intended, and an intended one is recorded in the same commit.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specla.bench.codec import decode, encode
from specla.bench.plan import plan
from specla.bench.record import Status
from specla.bench.run import prepare
from specla.bench.stats import share
from specla.bench.store import write_atomically
from specla.bench.turns import COMMAND, Seat, seats_of
from specla.engine.decode import trace_rows
from specla.errors import MeasurementError, SpeclaError

SCHEMA = 1
TRACKED = Path("runs/baseline-exact/figures.jsonl")
"""From the root of a checkout."""
WORDS = ("experiment=exact",)
RECORD = "make baseline"


@dataclass(frozen=True)
class Source:
    """What the figures were measured with: the file's first line."""

    schema: int
    torch: str
    data: tuple[str, ...]
    """Twelve digits of the sha256 of weights and prompts, a workload each."""
    recorded_by: str = RECORD


@dataclass(frozen=True)
class Figures:
    """One cell: a line of the file."""

    cell: str
    """Verification, recovery, drafter and topology."""
    lossless: str
    near_ties: int
    positions: int
    """Compared by the gate."""
    cycles: int
    """Steps in which the row had not ended."""
    emitted: int
    tau: float
    drafted: int
    accepted: int
    reached: tuple[int, ...]
    accepted_at: tuple[int, ...]
    state_bytes: int
    weight_bytes: int
    moved_bytes: int
    """That a cycle must move."""
    launches: int
    """Over the cycles of the first prompt."""
    launches_per_cycle: float


@dataclass(frozen=True)
class Baseline:
    """All of them."""

    source: Source
    cells: tuple[Figures, ...]


@dataclass(frozen=True)
class Deviation:
    """One figure that is not the tracked one; a cell that one side alone has differs in `cell`."""

    cell: str
    figure: str
    tracked: Any
    measured: Any


class Launches(TorchDispatchMode):
    """Counts operator calls that compute, while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += computes(func)
        return func(*args, **(kwargs or {}))


def computes(operator: Any) -> bool:
    """Whether an operator does more than look at memory in another way, or take some."""
    name = operator._schema.name
    # Of a view, what is returned shares memory with an input that is not written to.
    view = any(value.alias_info is not None and not value.alias_info.is_write for value in operator._schema.returns)
    return not view and "empty" not in name and name != "aten::detach_"


def measure_exact(words: Sequence[str] = WORDS) -> Baseline:
    """Decode the cells of a plan and count.

    Raises:
        SpeclaError: a word is wrong, or a model or workload is missing.
        MeasurementError: a cell failed.
    """
    prepared = prepare(plan(COMMAND, words))
    with torch.inference_mode():
        cells = tuple(_figures(seat) for seat in seats_of(prepared))
    data = tuple(work.digest[:12] for work in prepared.works)
    return Baseline(Source(SCHEMA, torch.__version__.partition("+")[0], data), cells)


def _figures(seat: Seat) -> Figures:
    method = seat.cell.method
    name = " ".join((method.verify, method.recover, method.drafter, method.topology))
    # The gate decodes everything first, and so fills what is kept from step to step: masks of a tree, and the like.
    record = seat.gate()
    if record.status is Status.FAILED or record.counts is None or record.bytes is None or record.lossless is None:
        raise MeasurementError(f"{name}: {record.reason}")
    counted, cycles = Launches(), 0
    decoding = seat.method.start(seat.subject.items[0])
    while not decoding.done:
        with counted:
            decoding.step()
        cycles += 1
        trace_rows(decoding)
    counts, held = record.counts, record.bytes
    return Figures(
        cell=name,
        lossless=record.lossless.value,
        near_ties=record.near_ties,
        positions=record.gate_positions,
        cycles=counts.steps,
        emitted=counts.emitted,
        tau=round(share(counts.emitted, counts.steps) or 0.0, 6),
        drafted=counts.drafted,
        accepted=counts.accepted,
        reached=counts.reached,
        accepted_at=counts.accepted_at,
        state_bytes=held.state or 0,
        weight_bytes=held.weights or 0,
        moved_bytes=held.moved_per_step or 0,
        launches=counted.count,
        launches_per_cycle=round(share(counted.count, cycles) or 0.0, 3),
    )


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Replace a tracked file. Raises SpeclaError where it cannot be written."""
    lines = [baseline.source, *baseline.cells]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "".join(json.dumps(encode(line)) + "\n" for line in lines))
    except OSError as error:
        raise SpeclaError(f"{path}: cannot be written ({error.strerror})") from None


def read_baseline(path: Path) -> Baseline:
    """A tracked file. Raises SpeclaError for a missing, damaged or unknown one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise SpeclaError(f"{path}: no exact figures to compare with; `{RECORD}` records them") from None
    parsed = []
    for number, line in enumerate(lines, start=1):
        try:
            parsed.append(json.loads(line))
        except ValueError:
            raise SpeclaError(f"{path}:{number}: damaged, not JSON; `git checkout` it, or `{RECORD}`") from None
    schema = parsed[0].get("schema") if parsed and isinstance(parsed[0], dict) else None
    if schema != SCHEMA:
        raise SpeclaError(f"{path}: has schema {schema!r}; this version reads {SCHEMA}; `{RECORD}` records it again")
    cells = tuple(decode(Figures, cell, f"{path}:{number}") for number, cell in enumerate(parsed[1:], start=2))
    return Baseline(decode(Source, parsed[0], f"{path}:1"), cells)


def deviations(tracked: Baseline, measured: Baseline) -> tuple[list[Deviation], list[str]]:
    """Every figure that differs, and notes on what could not be compared."""
    before = {cell.cell: cell for cell in tracked.cells}
    after = {cell.cell: cell for cell in measured.cells}
    skipped, notes = {"cell"}, []
    if tracked.source.torch != measured.source.torch:
        skipped |= {"launches", "launches_per_cycle"}
        notes.append(
            f"launches not compared: counted with torch {tracked.source.torch}, here is {measured.source.torch}"
        )
    if tracked.source.data != measured.source.data:
        notes.append("weights or prompts are not the ones that the tracked figures come from")
    found = []
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            found.append(Deviation(name, "cell", *("there" if cell else "missing" for cell in (one, other))))
            continue
        for figure in (entry.name for entry in fields(Figures) if entry.name not in skipped):
            if getattr(one, figure) != getattr(other, figure):
                found.append(Deviation(name, figure, getattr(one, figure), getattr(other, figure)))
    return found, notes


def difference_lines(found: Sequence[Deviation]) -> list[str]:
    """What differs, in a line for all cells in which the same does: one change often moves many."""
    by_cell: dict[str, list[str]] = {}
    for one in found:
        by_cell.setdefault(one.cell, []).append(f"{one.figure} {one.tracked} -> {one.measured}")
    cells: dict[str, list[str]] = {}
    for cell, changes in by_cell.items():
        cells.setdefault(", ".join(changes), []).append(cell)
    return [f"{'; '.join(names)}: {changes}" for changes, names in cells.items()]
