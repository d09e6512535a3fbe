"""End-to-end decoding: the gate, then paired timings, for every cell that shares a model and prompts."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import torch

from specla.bench.bandwidth import Bandwidth
from specla.bench.cases.calibrate import Calibration
from specla.bench.cases.work import ERRORS, Events, Work
from specla.bench.cells import Cell
from specla.bench.gate import GateResult
from specla.bench.instruments import Instruments
from specla.bench.measure import Method, fastest_ar, gate, make_method, time_block
from specla.bench.normalise import END_TO_END
from specla.bench.planned import settled_record
from specla.bench.profile import profile_digest
from specla.bench.profiler import to_profile
from specla.bench.record import Bytes, Lossless, Record, Sample, Status
from specla.bench.settings import ModelSettings, Settings
from specla.bench.subject import Subject, Target, load_target, resolve_device, resolve_dtype
from specla.bench.tally import Counts
from specla.errors import told
from specla.models.cost import ModelCost
from specla.ops.verify import DispatchTable

BLOCK = 4
"""Methods that are timed together with one AR: more share its cost, fewer lose less when a run is interrupted."""


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
    """

    def __init__(self, cells: Sequence[Cell], targets: Targets) -> None:
        self.baseline = next(cell for cell in cells if cell.config_hash == cell.ar_hash)
        self.cells = [self.baseline, *(cell for cell in cells if cell is not self.baseline)]
        settings = self.baseline.settings
        self.subject = Subject(targets.of(settings), settings, max(cell.tree.depth for cell in cells))
        for cell in self.cells:
            # A drafter that is missing or does not fit is told before anything is measured.
            if cell.settings.drafter.name == "aligned":
                self.subject.aligned(cell.settings.drafter)
        self.digest, self.notes = self.subject.digest, self.subject.notes
        self._calibrations: dict[int | None, Calibration] = {}
        for cell in (cell for cell in self.cells if cell.is_open):
            self._calibration(cell).require(cell)

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
        self, todo: Sequence[Cell], planned: Mapping[str, Record], instruments: Instruments, events: Events
    ) -> None:
        # AR is timed beside whatever it is compared with, and is recorded again where it had a result.
        settled, records = self.settle(todo, planned, instruments, events)
        run_cells([self.baseline, *settled], self.subject, records, instruments, events)

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
        table = _dispatch(self.subject, self._others(todo), instruments)
        for cell in self._others(todo):
            if cell.is_open:
                try:
                    cell = self._calibration(cell).settle(cell, table, events.tick)
                except ERRORS as error:
                    failed = replace(planned[cell.config_hash], status=Status.FAILED, reason=told(error))
                    events.record(failed)
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


def run_cells(
    cells: Sequence[Cell], subject: Subject, planned: Mapping[str, Record], instruments: Instruments, events: Events
) -> None:
    """Measure the cells of one subject; one that fails is recorded as failed, and the others go on.

    Args:
        cells: that are to be measured, the subject's AR cell first.
        subject: what they decode.
        planned: by config_hash, every cell's record before it is measured.
        instruments: of this run.
        events: see `Events`.
    """
    baseline, *others = cells
    table = _dispatch(subject, others, instruments)
    ar = fastest_ar(baseline, subject)
    ar_samples: list[Sample] = []
    ar_record: Record | None = None
    for number, block in enumerate([others[i : i + BLOCK] for i in range(0, len(others), BLOCK)] or [[]]):
        started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        methods = [(baseline, ar)] if number == 0 else []
        methods += [(cell, make_method(cell, subject, table)) for cell in block]
        gated = _through_the_gate(methods, planned, events)
        sound = [one for one in gated if one.cell is not baseline and one.result.lossless is not Lossless.FAILED]
        more = f" and {len(sound) - 1} more" if len(sound) > 1 else ""
        title = f"timing: {label(sound[0].cell) if sound else label(baseline)}{more}"
        ticks = partial(events.tick, title)
        try:
            samples = time_block(ar, [one.method for one in sound], subject.items, baseline.settings.measure, ticks)
        except ERRORS as error:
            for one in gated:
                events.record(replace(planned[one.cell.config_hash], status=Status.FAILED, reason=told(error)))
            continue
        finally:
            for _, method in methods:
                if method is not ar:
                    method.release()
        ar_samples += samples[0]
        timed = [baseline, *(one.cell for one in sound)]
        by_cell = {cell.config_hash: taken for cell, taken in zip(timed, samples, strict=True)}
        left: list[tuple[Method, Record]] = []
        seconds = round((time.monotonic() - clock) / max(1, len(gated)), 3)
        for one in gated:
            taken = by_cell.get(one.cell.config_hash, [])
            record = _measured(planned[one.cell.config_hash], one, taken, instruments.bandwidth)
            record = replace(record, started=started, seconds=seconds)
            events.record(record)
            left.append((one.method, record))
            if one.cell is baseline:
                ar_record = record
        instruments.to_profile += to_profile(left, label, table)
    ar.release()
    if ar_record is not None and len(others) > BLOCK:
        # AR's own figures are of all that it was timed for, not of the first methods' company alone.
        events.record(replace(ar_record, samples=tuple(ar_samples)))


def _through_the_gate(
    methods: Sequence[tuple[Cell, Method]], planned: Mapping[str, Record], events: Events
) -> list["Gated"]:
    """Decode everything once by each method; one that dies is recorded as failed and left out."""
    gated = []
    for cell, method in methods:
        events.tick(f"gate: {label(cell)}")
        try:
            gated.append(Gated(cell, method, *gate(method, method.subject.items)))
        except ERRORS as error:
            events.record(replace(planned[cell.config_hash], status=Status.FAILED, reason=told(error)))
    return gated


@dataclass(frozen=True)
class Gated:
    """A cell that went through the gate."""

    cell: Cell
    method: Method
    result: GateResult
    counts: Counts


def label(cell: Cell) -> str:
    """A cell in a few words."""
    method = cell.method
    parts = (method.verify, cell.drafter_label, method.topology, cell.settings.workload.name)
    return " ".join(part for part in parts if part not in ("none", "root"))


def _dispatch(subject: Subject, cells: Sequence[Cell], instruments: Instruments) -> DispatchTable | None:
    """Measure what `auto` picks from, where any cell asks for it."""
    if not any(cell.method.verify == "auto" for cell in cells):
        return None
    model = subject.model
    return instruments.table(model.config.head_shape, model.dtype, cells[0].settings.workload.batch)


def _measured(planned: Record, one: Gated, samples: list[Sample], bandwidth: Bandwidth) -> Record:
    """The record of a cell that went through the gate, timed or not."""
    model = one.method.subject.model
    cost = ModelCost.of(model.config, model.dtype)
    traffic = cost.step(planned.batch, planned.nodes)
    status, reason = Status.PASSED, ""
    if one.result.lossless is Lossless.FAILED:
        status, reason = Status.FAILED, f"not lossless: {one.result.reason}"
    elif one.method.departed:
        status, reason, samples = Status.FAILED, f"not lossless: {one.method.departed}", []
    elif not samples:
        status, reason = Status.INCONCLUSIVE, "every row ended with its first token: nothing was decoded"
    elif one.cell.settings.measure.repeats < 5:
        status, reason = Status.INCONCLUSIVE, "fewer than 5 repeats give no interval"
    weights, state = cost.weight_bytes, planned.batch * (cost.state_bytes + cost.window_bytes)
    return replace(
        planned,
        status=status,
        reason=reason,
        lossless=one.result.lossless,
        near_ties=one.result.near_ties,
        gate_positions=one.result.positions,
        samples=tuple(samples),
        counts=one.counts,
        bytes=Bytes(state=state, weights=weights, moved_per_step=traffic.total_bytes),
        floor_us=traffic.floor_us(bandwidth.read_bytes_s, bandwidth.copy_bytes_s),
        why=one.method.why,
    )
