"""End-to-end decoding: the gate, then paired timings, for every cell that shares a model and prompts."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from specla.bench.bandwidth import Bandwidth
from specla.bench.cells import Cell
from specla.bench.gate import GateResult
from specla.bench.measure import Method, gate, time_block
from specla.bench.record import Bytes, Counts, Lossless, Record, Sample, Status
from specla.bench.subject import Subject
from specla.bench.validate import show
from specla.errors import SpeclaError
from specla.models.cost import ModelCost
from specla.ops.verify import DispatchTable, measure_dispatch

BLOCK = 4
"""Methods that are timed together with one AR: more share its cost, fewer lose less when a run is interrupted."""
DISPATCH_NODES = (2, 5, 8, 16, 32)


@dataclass(frozen=True)
class Events:
    """What a caller may want to know while cells are measured.

    Attributes:
        record: called with every finished record, in order.
        tick: called after every unit of work, with a line that says what is being done.
    """

    record: Callable[[Record], None]
    tick: Callable[[str], None]


def run_cells(
    cells: Sequence[Cell], subject: Subject, planned: Mapping[str, Record], bandwidth: Bandwidth, events: Events
) -> None:
    """Measure the cells of one subject; one that fails is recorded as failed, and the others go on.

    Args:
        cells: that are to be measured, the subject's AR cell first.
        subject: what they decode.
        planned: by config_hash, every cell's record before it is measured.
        bandwidth: of this device, for the floors.
        events: see `Events`.
    """
    baseline, *others = cells
    ar = Method(baseline, subject)
    table = _dispatch(subject, others)
    for number, block in enumerate([others[i : i + BLOCK] for i in range(0, len(others), BLOCK)] or [[]]):
        started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        gated: list[Gated] = []
        for cell in [baseline, *block] if number == 0 else block:
            events.tick(f"gate: {label(cell)}")
            try:
                method = ar if cell is baseline else Method(cell, subject, table)
                gated.append(Gated(cell, method, *gate(method, subject.items)))
            except (SpeclaError, RuntimeError, ValueError, AssertionError) as error:
                reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
                events.record(replace(planned[cell.config_hash], status=Status.FAILED, reason=reason))
        sound = [one for one in gated if one.cell is not baseline and one.result.lossless is not Lossless.FAILED]
        more = f" and {len(sound) - 1} more" if len(sound) > 1 else ""
        title = f"timing: {label(sound[0].cell) if sound else label(baseline)}{more}"
        methods = [one.method for one in sound]
        measure = baseline.settings.measure
        samples = time_block(ar, methods, subject.items, measure, lambda title=title: events.tick(title))  # type: ignore[misc]
        by_cell = {one.cell.config_hash: taken for one, taken in zip(sound, samples[1:], strict=True)}
        by_cell[baseline.config_hash] = samples[0]
        seconds = round((time.monotonic() - clock) / max(1, len(gated)), 3)
        for one in gated:
            record = _measured(planned[one.cell.config_hash], one, by_cell.get(one.cell.config_hash, []), bandwidth)
            events.record(replace(record, started=started, seconds=seconds))


@dataclass(frozen=True)
class Gated:
    """A cell that went through the gate."""

    cell: Cell
    method: Method
    result: GateResult
    counts: Counts


def label(cell: Cell) -> str:
    """A cell in a few words."""
    method, alpha = cell.method, cell.settings.drafter.alpha
    drafter = method.drafter if alpha is None else f"{method.drafter} {show(alpha)}"
    parts = (method.verify, drafter, method.topology, cell.settings.workload.name)
    return " ".join(part for part in parts if part not in ("none", "root"))


def _dispatch(subject: Subject, cells: Sequence[Cell]) -> DispatchTable | None:
    """Measure what `auto` picks from, where any cell asks for it."""
    if not any(cell.method.verify == "auto" for cell in cells):
        return None
    model, batch = subject.model, cells[0].settings.workload.batch
    return measure_dispatch(model.config.head_shape, model.device, model.dtype, DISPATCH_NODES, (batch,))


def _measured(planned: Record, one: Gated, samples: list[Sample], bandwidth: Bandwidth) -> Record:
    """The record of a cell that went through the gate, timed or not."""
    model = one.method.subject.model
    cost = ModelCost.of(model.config, model.dtype)
    traffic = cost.step(planned.batch, planned.nodes)
    status, reason = Status.PASSED, ""
    if one.result.lossless is Lossless.FAILED:
        status, reason = Status.FAILED, f"not lossless: {one.result.reason}"
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
