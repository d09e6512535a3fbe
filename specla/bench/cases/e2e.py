"""End-to-end decoding: what all cells that share a model and prompts need, and the trees that some are yet to get."""

import hashlib
from collections.abc import Mapping, Sequence

import torch

from specla.bench.cases.blocks import BLOCK, dispatch_table, label, run_cells
from specla.bench.cases.calibrate import Calibration
from specla.bench.cases.work import ERRORS, Events, Refuse, Work, failure
from specla.bench.cells import Cell
from specla.bench.instruments import Instruments
from specla.bench.normalise import END_TO_END
from specla.bench.paired import partners
from specla.bench.planned import settled_record
from specla.bench.profile import profile_digest, read_profile
from specla.bench.record import Record
from specla.bench.settings import ModelSettings, Settings
from specla.bench.subject import Subject, Target, load_target, resolve_device, resolve_dtype


class Targets:
    """The models of a run, each loaded once."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[ModelSettings, torch.dtype, str, int], Target] = {}

    def of(self, settings: Settings) -> Target:
        """The model of a cell. Raises SpeclaError where it is missing, damaged or does not fit."""
        device = resolve_device(settings.device, END_TO_END)
        dtype = resolve_dtype(settings.dtype, device)
        key = (settings.model, dtype, device, settings.seed)
        if key not in self._loaded:
            self._loaded[key] = load_target(settings.model, dtype, device, settings.seed)
        return self._loaded[key]


class EndToEnd(Work):
    """Cells that are compared with one AR.

    Args:
        cells: with that AR among them.
        targets: of this run.
        refuse: called with every cell whose own inputs, its drafter or calibration set, are bad; it is left out.

    Raises:
        SpeclaError: the model or the prompts, which all share, are bad.
    """

    def __init__(self, cells: Sequence[Cell], targets: Targets, refuse: Refuse) -> None:
        self.baseline = next(cell for cell in cells if cell.config_hash == cell.ar_hash)
        self.cells = [self.baseline, *(cell for cell in cells if cell is not self.baseline)]
        settings = self.baseline.settings
        self.subject = Subject(targets.of(settings), settings, max(cell.tree.depth for cell in cells))
        self.subject.require_sound()
        self._calibrations: dict[int | None, Calibration] = {}
        # Bad inputs are told before anything is measured.
        self.cells = [cell for cell in self.cells if self._sound(cell, refuse)]
        self.digest, self.notes = self.subject.digest, self.subject.notes

    def _sound(self, cell: Cell, refuse: Refuse) -> bool:
        """Whether a cell's drafter or profile is there and fits, and there are prompts enough to choose its tree on."""
        try:
            if cell.settings.drafter.name == "aligned":
                self.subject.aligned(cell.settings.drafter)
            if cell.settings.drafter.profile is not None:
                read_profile(cell.settings.drafter.profile)
            if cell.is_open:
                self._calibration(cell).require(cell)
        except ERRORS as error:
            refuse(cell, error)
            return False
        return True

    def digest_of(self, cell: Cell) -> str:
        profile = profile_digest(cell.settings.drafter)
        calibration = self._calibration(cell).digest if cell.is_open else ""
        more = f" {profile} {calibration}" if profile or calibration else ""
        return hashlib.sha256(f"{self.digest}{more}".encode()).hexdigest() if more else self.digest

    def units(self, todo: Sequence[Cell]) -> int:
        if not todo:
            return 0
        others = len(self._others(todo))
        blocks, settings = max(1, -(-others // BLOCK)), self.baseline.settings
        passes = settings.measure.warmup + settings.measure.repeats
        items = len(self.subject.prompts) // settings.workload.batch
        return 1 + others + passes * items * (others + blocks) + self.ticks(todo)

    def ticks(self, todo: Sequence[Cell]) -> int:
        """How often `settle` will call `tick`."""
        return sum(self._calibration(cell).ticks() for cell in todo if cell.is_open)

    def measure(
        self,
        todo: Sequence[Cell],
        planned: Mapping[str, Record],
        kept: Mapping[str, Record],
        instruments: Instruments,
        events: Events,
    ) -> None:
        # AR is timed beside whatever it is compared with, and is recorded again where it had a result.
        settled, records = self.settle(todo, planned, instruments, events)
        results = [kept.get(planned[cell.config_hash].fingerprint) for cell in self.cells]
        earlier = partners(results[0], (record for record in results[1:] if record is not None))
        run_cells([self.baseline, *settled], self.subject, records, earlier, instruments, events)

    def settle(
        self, todo: Sequence[Cell], planned: Mapping[str, Record], instruments: Instruments, events: Events
    ) -> tuple[list[Cell], dict[str, Record]]:
        """Choose the tree of every open cell; AR is left out, and so is a cell that fails, which is recorded.

        Args:
            todo: as in `measure`.
            planned: as in `measure`.
            instruments: of this run.
            events: see `Events`.

        Returns:
            The cells, none of them open, and by config_hash every cell's record before it is measured.
        """
        settled, records = list[Cell](), dict(planned)
        table = dispatch_table(self.subject, self._others(todo), instruments)
        for cell in self._others(todo):
            if cell.is_open:
                try:
                    cell = self._calibration(cell).settle(cell, table, events.tick)
                except ERRORS as error:
                    events.record(failure(planned[cell.config_hash], error))
                    continue
                assert cell.choice is not None
                events.log(f"{label(cell)}: {cell.choice.told}")
                records[cell.config_hash] = settled_record(planned[cell.config_hash], cell)
            settled.append(cell)
        for calibration in self._calibrations.values():
            calibration.forget()
        return settled, records

    def _calibration(self, cell: Cell) -> Calibration:
        """The prompts that an open cell's tree is chosen on."""
        size = cell.settings.measure.calibration
        if size not in self._calibrations:
            depth = max(other.tree.depth for other in self.cells)
            target, measured = self.subject.target, self.subject.prompts
            self._calibrations[size] = Calibration(target, cell.settings, depth, measured)
        return self._calibrations[size]

    def _others(self, todo: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in todo if cell is not self.baseline]
