"""What the kinds of measurement have in common: cells that are measured together, and who is told."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specla.bench.cells import Cell
from specla.bench.instruments import Instruments
from specla.bench.record import Record, Status
from specla.errors import MeasurementError, SpeclaError, told
from specla.interrupt import check


@dataclass(frozen=True)
class Events:
    """What a caller may want to know while cells are measured.

    Attributes:
        record: called with every finished record, in order.
        tick: called after every unit of work, with a line that says what is being done.
        log: called with every line worth keeping.
    """

    record: Callable[[Record], None]
    tick: Callable[[str], None]
    log: Callable[[str], None]


def interruptible(events: Events) -> Events:
    """The same events, which raise KeyboardInterrupt where one was lost in the work before them."""

    def record(one: Record) -> None:
        # What an interrupt broke has not failed: it is not measured yet.
        if one.status is Status.FAILED:
            check()
        events.record(one)
        check()

    def tick(what: str) -> None:
        check()
        events.tick(what)

    return Events(record, tick, events.log)


class Work(ABC):
    """Cells that are timed beside each other, with everything they need found good.

    Attributes:
        cells: of the plan, all of them pending.
        digest: sha256 of the data and weights they run on, for fingerprints; empty where their settings say it all.
        notes: what of their inputs was left unread, a line each, for the user's log.
    """

    cells: Sequence[Cell]
    digest: str = ""
    notes: tuple[str, ...] = ()

    def digest_of(self, cell: Cell) -> str:
        """sha256 of the data and weights that one cell runs on."""
        return self.digest

    @abstractmethod
    def units(self, todo: Sequence[Cell]) -> int:
        """How often `measure` will call `tick`."""

    @abstractmethod
    def measure(
        self,
        todo: Sequence[Cell],
        planned: Mapping[str, Record],
        kept: Mapping[str, Record],
        instruments: Instruments,
        events: Events,
    ) -> None:
        """Measure cells; one that fails is recorded as failed, and the others go on.

        Args:
            todo: those of `cells` that have no result yet, at least one. Others may be timed beside them, and are then
                recorded again.
            planned: by config_hash, every cell's record before it is measured.
            kept: by fingerprint, the results of earlier sessions that stay.
            instruments: of this run.
            events: see `Events`.
        """


ERRORS = (Exception,)
"""What a strategy may die of without taking the run with it: anything but an interrupt. Its cell says what it was."""
Refuse = Callable[[Cell, Exception], None]
"""What becomes of a cell whose inputs are bad: called with what is wrong, which it may raise."""


def failure(planned: Record, error: Exception) -> Record:
    """The record of a cell that died: our own errors say all in their line, of others the type counts too."""
    line = str(error) if isinstance(error, SpeclaError | MeasurementError) else told(error)
    return replace(planned, status=Status.FAILED, reason=line)
