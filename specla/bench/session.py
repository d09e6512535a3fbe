"""One session of a run: what it measures goes into the folder, and what a user should know into the log as well."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from specla.bench.cases.work import ERRORS, Events, failure
from specla.bench.cells import Cell
from specla.bench.record import Record, Status
from specla.bench.store import RunFolder


class Session:
    """Where records and lines of the log go.

    Args:
        folder: of the run, open.
        tell: called with every line of the log.
        advise: gives a record that failed its advice.
    """

    def __init__(self, folder: RunFolder, tell: Callable[[str], None], advise: Callable[[Record], Record]) -> None:
        self._folder, self._tell, self._advise = folder, tell, advise
        self._recorded: set[str] = set()
        self._unwritable: OSError | None = None

    def log(self, line: str) -> None:
        """To log.txt, and to whoever watches."""
        with self._writing():
            self._folder.log(line)
        self._tell(line)

    def plan(self, records: Iterable[Record]) -> None:
        """What is known of cells before anything is measured; those that fail already are told every time."""
        records = [self._advise(one) for one in records]
        self._folder.plan(records)
        for record in records:
            self._tell_failed(record)

    def record(self, one: Record) -> None:
        """A result."""
        one = self._advise(one)
        with self._writing():
            self._folder.append(one)
        self._recorded.add(one.fingerprint)
        self._tell_failed(one)

    def _tell_failed(self, one: Record) -> None:
        if one.status is Status.FAILED:
            self.log(f"failed: {' '.join(one.overrides)}: {one.reason}")

    @contextmanager
    def failing(self, cells: Sequence[Cell], planned: Mapping[str, Record], events: Events) -> Iterator[None]:
        """Inside, what cells die of together fails those that have no result yet, and the run goes on.

        It does not where results cannot be written.
        """
        try:
            yield
        except ERRORS as error:
            if self._unwritable is not None:
                raise
            for record in (planned[cell.config_hash] for cell in cells):
                if record.fingerprint not in self._recorded:
                    events.record(failure(record, error))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._unwritable = error
            raise
