"""The cells of one subject: the gate, then paired timings, a few methods at a time beside one AR."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from specla.bench.bandwidth import Bandwidth
from specla.bench.cases.work import ERRORS, Events, failure
from specla.bench.cells import Cell
from specla.bench.gate import GateResult
from specla.bench.instruments import Instruments
from specla.bench.measure import Method, gate
from specla.bench.methods import fastest_ar, make_method
from specla.bench.paired import DiedError, time_block
from specla.bench.profiler import to_profile
from specla.bench.record import Bytes, Lossless, Record, Sample, Status
from specla.bench.subject import Subject
from specla.bench.tally import Counts
from specla.models.cost import ModelCost
from specla.ops.verify import DispatchTable

BLOCK = 4
"""Methods that are timed together with one AR: more share its cost, fewer lose less when a run is interrupted."""


def run_cells(
    cells: Sequence[Cell],
    subject: Subject,
    planned: Mapping[str, Record],
    earlier: Sequence[Sample],
    instruments: Instruments,
    events: Events,
) -> None:
    """Measure the cells of one subject; one that fails is recorded as failed, and the others go on.

    Args:
        cells: that are to be measured, the subject's AR cell first.
        subject: what they decode.
        planned: by config_hash, every cell's record before it is measured.
        earlier: AR's samples of earlier sessions, beside cells that are kept.
        instruments: of this run.
        events: see `Events`.
    """
    baseline, *others = cells
    table = dispatch_table(subject, others, instruments)
    ar = fastest_ar(baseline, subject)
    ar_samples = list(earlier)
    ar_record: Record | None = None

    def make(cell: Cell) -> Method:
        return ar if cell is baseline else make_method(cell, subject, table)

    for number, block in enumerate([others[i : i + BLOCK] for i in range(0, len(others), BLOCK)] or [[]]):
        started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        gated = _through_the_gate([baseline, *block] if number == 0 else block, make, planned, events)
        sound = [one for one in gated if one.cell is not baseline and one.result.lossless is not Lossless.FAILED]
        try:
            samples = _timed(ar, sound, planned, events)
        finally:
            for one in gated:
                if one.method is not ar:
                    one.method.release()
        ar_samples += samples[baseline.config_hash]
        left: list[tuple[Method, Record]] = []
        seconds = round((time.monotonic() - clock) / max(1, len(gated)), 3)
        for one in gated:
            taken = ar_samples if one.cell is baseline else samples.get(one.cell.config_hash)
            if taken is None and one in sound:
                # It died on the clock, which is recorded.
                continue
            record = _measured(planned[one.cell.config_hash], one, taken or [], instruments.bandwidth)
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
    cells: Sequence[Cell], make: Callable[[Cell], Method], planned: Mapping[str, Record], events: Events
) -> list["Gated"]:
    """Decode everything once by each cell's method; one that dies is recorded as failed and left out."""
    gated = []
    for cell in cells:
        events.tick(f"gate: {label(cell)}")
        method = None
        try:
            method = make(cell)
            gated.append(Gated(cell, method, *gate(method, method.subject.items)))
        except ERRORS as error:
            events.record(failure(planned[cell.config_hash], error))
            # AR is still what the others are timed beside.
            if method is not None and cell.config_hash != cell.ar_hash:
                method.release()
    return gated


def _timed(
    ar: Method, sound: Sequence["Gated"], planned: Mapping[str, Record], events: Events
) -> dict[str, list[Sample]]:
    """Samples by config_hash, AR's among them; a method that dies is recorded as failed, and the others begin anew.

    What AR dies of is raised: nothing can be timed beside it.
    """
    left = list(sound)
    while True:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        ticks = partial(events.tick, f"timing: {label(left[0].cell if left else ar.cell)}{more}")
        try:
            taken = time_block(ar, [one.method for one in left], ar.subject.items, ar.cell.settings.measure, ticks)
        except DiedError as died:
            if not died.who:
                raise died.error from None
            events.record(failure(planned[left.pop(died.who - 1).cell.config_hash], died.error))
            continue
        return dict(zip([ar.cell.config_hash, *(one.cell.config_hash for one in left)], taken, strict=True))


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


def dispatch_table(subject: Subject, cells: Sequence[Cell], instruments: Instruments) -> DispatchTable | None:
    """Measure what `auto` picks from, where any cell asks for it."""
    if not any(cell.method.verify == "auto" for cell in cells):
        return None
    model = subject.model
    return instruments.table(model.config.head_shape, model.dtype, cells[0].settings.workload.batch)


def _measured(planned: Record, one: Gated, samples: Sequence[Sample], bandwidth: Bandwidth) -> Record:
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
        worst_tie=one.result.worst_tie,
        gate_positions=one.result.positions,
        samples=tuple(samples),
        counts=one.counts,
        bytes=Bytes(state=state, weights=weights, moved_per_step=traffic.total_bytes),
        floor_us=traffic.floor_us(bandwidth.read_bytes_s, bandwidth.copy_bytes_s),
        why=one.method.why,
    )
