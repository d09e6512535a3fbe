"""Timing single operations: every strategy of a case is checked, then all are timed beside each other.

A case is what strategies share: shape, dtype, tree, batch and accepted drafts. Its baselines are timed with it whether
or not the user asked for them. One that nobody asked for is a silent partner: it has no record of its own, and its
times stand in the samples of the others.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil

import torch

from specla.bench.cases.layers import RandomLayers, Truth
from specla.bench.cases.operation import Demand, Given, Kind, Operation
from specla.bench.cases.work import ERRORS, Events, Work
from specla.bench.cells import Cell
from specla.bench.clock import Clock, quiet
from specla.bench.estimate import accepted_drafts
from specla.bench.instruments import Instruments
from specla.bench.record import Bytes, KernelSample, Record, Status
from specla.bench.settings import EngineSettings, MeasureSettings, model_config
from specla.bench.stats import LEAST_REPEATS
from specla.bench.subject import resolve_device, resolve_dtype
from specla.errors import told
from specla.models.cost import ModelCost
from specla.ops import pairs

FREE_SHARE = 0.8
"""Of the memory that nobody uses: what a strategy that keeps a state per node may take."""
MARGIN = 1.2
"""A sample that came out too short is taken again, this much longer than it seems to need."""


@dataclass
class Entrant:
    """One strategy of a case on its way: checked, then timed, or out of the race with a reason."""

    engine: EngineSettings
    operation: Operation | None = None
    error: float | None = None
    reason: str = ""

    @property
    def label(self) -> str:
        """In a few words."""
        ring = f", ring {self.engine.ring}" if self.engine.ring else ""
        return f"{self.engine.verify} + {self.engine.recover}{ring}"


class KernelWork(Work):
    """The cells of one case.

    Args:
        kind: of operation.
        cells: that agree in everything but the engine.
    """

    def __init__(self, kind: Kind, cells: Sequence[Cell]) -> None:
        self.kind, self.cells = kind, cells
        cell, settings = cells[0], cells[0].settings
        self.device = resolve_device(settings.device)
        self.dtype = resolve_dtype(settings.dtype, self.device)
        self.config = model_config(settings.model)
        self.tree, self.batch, self.measured = cell.tree, settings.workload.batch, settings.measure
        self.accepted = accepted_drafts(cell)
        self.cost = ModelCost.of(self.config, self.dtype)

    def units(self, todo: Sequence[Cell]) -> int:
        return len(self.engines(todo)) + self.measured.warmup + self.measured.repeats if todo else 0

    def engines(self, todo: Sequence[Cell]) -> list[EngineSettings]:
        """Everything that is timed with these cells: themselves first, then baselines that none of them is."""
        asked = [cell.settings.engine for cell in todo]
        found = [self._baseline(name, engine) for name in self.kind.baselines for engine in asked]
        return list(dict.fromkeys([*asked, *found]))

    @torch.inference_mode()
    def measure(
        self, todo: Sequence[Cell], planned: Mapping[str, Record], instruments: Instruments, events: Events
    ) -> None:
        started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        entrants = {engine: Entrant(engine) for engine in self.engines(todo)}
        self._check(list(entrants.values()), instruments, events)
        sound = [one for one in entrants.values() if one.operation is not None]
        where = f"{self.tree.name}, batch {self.batch}"
        operations = [one.operation for one in sound if one.operation is not None]
        timed = interleave(
            operations, self.measured, instruments.clock, lambda: events.tick(f"{self.kind.name}: {where}")
        )
        times = {one.engine: taken for one, taken in zip(sound, timed, strict=True)}
        for one in entrants.values():
            if one.reason and one.engine not in [cell.settings.engine for cell in todo]:
                events.log(f"{where}: the baseline {one.label} is left out: {one.reason}")
        seconds = round((time.monotonic() - clock) / len(todo), 3)
        for cell in todo:
            record = self._record(cell, planned[cell.config_hash], entrants, times, instruments)
            events.record(replace(record, started=started, seconds=seconds))

    def _baseline(self, name: str, engine: EngineSettings) -> EngineSettings:
        return self.kind.baseline(name, engine, [cell.settings.engine for cell in self.cells])

    def _check(self, entrants: Sequence[Entrant], instruments: Instruments, events: Events) -> None:
        given, trouble = None, ""
        try:
            given = self._given(any(one.engine.verify == "auto" for one in entrants), instruments)
        except ERRORS as error:
            trouble = told(error)
        for one in entrants:
            events.tick(f"{self.kind.name}: checking {one.label}")
            one.reason = trouble or self._too_large(one.engine, instruments.clock)
            if given is None or one.reason:
                continue
            try:
                operation = self.kind.make(given, one.engine)
                one.error, one.reason = self._judged(one.engine, operation.error())
                one.operation = None if one.reason else operation
            except ERRORS as error:
                one.reason = told(error)

    def _given(self, with_table: bool, instruments: Instruments) -> Given:
        seed = self.cells[0].settings.seed
        layers = RandomLayers(self.config, self.batch, self.tree, self.dtype, self.device, seed)
        table = instruments.table(self.config.head_shape, self.dtype, self.batch) if with_table else None
        return Given(layers, Truth(layers, self.accepted), self.accepted, table)

    def _judged(self, engine: EngineSettings, error: float) -> tuple[float, str]:
        dtype = str(self.dtype).removeprefix("torch.")
        allowed = self.kind.tolerance(engine, dtype)
        # Not `error > allowed`: what is no number is wrong too.
        if error <= allowed:
            return error, ""
        return error, f"relative RMS error {error:.1e} against the reference, where {allowed:.0e} is allowed in {dtype}"

    def _too_large(self, engine: EngineSettings, clock: Clock) -> str:
        """Why a state per node does not fit the memory, or nothing."""
        if "states" not in pairs.NEEDS[str(engine.recover)]:
            return ""
        cost = self.cost if self.kind.keeps_records else self.cost.one_layer
        wanted, free = self.batch * (self.tree.nodes + 1) * cost.state_bytes, clock.free_bytes
        if wanted <= FREE_SHARE * free:
            return ""
        return f"a state per node takes {wanted / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free"

    def _record(
        self,
        cell: Cell,
        planned: Record,
        entrants: Mapping[EngineSettings, Entrant],
        times: Mapping[EngineSettings, Sequence["Timing"]],
        instruments: Instruments,
    ) -> Record:
        engine = cell.settings.engine
        one, cost, bandwidth = entrants[engine], self.cost.one_layer, instruments.bandwidth
        traffic = self.kind.traffic(cost, Demand(self.batch, self.tree, self.accepted, engine))
        status, reason = Status.PASSED, ""
        if one.operation is None:
            status, reason = Status.FAILED, one.reason
        elif self.measured.repeats < LEAST_REPEATS:
            status, reason = Status.INCONCLUSIVE, f"fewer than {LEAST_REPEATS} repeats give no interval"
        names = [name for name in self.kind.baselines if name != getattr(engine, self.kind.dial)]
        rivals = {name: times.get(self._baseline(name, engine)) for name in names}
        return replace(
            planned,
            status=status,
            reason=reason,
            error_rms=one.error,
            accepted=None if self.kind.name == "verify" else self.accepted,
            samples=_samples(times.get(engine, ()), {name: taken for name, taken in rivals.items() if taken}),
            bytes=Bytes(state=self.batch * cost.state_bytes, moved_per_step=traffic.total_bytes),
            memory={"draft_token_bytes": kept_bytes(cost, str(engine.recover))},
            floor_us=traffic.floor_us(bandwidth.read_bytes_s, bandwidth.copy_bytes_s),
            why="" if one.operation is None else one.operation.why,
        )


def kept_bytes(cost: ModelCost, recover: str) -> int:
    """What is kept of one draft token between verification and commit: what recovery reads, and the window's input."""
    config = cost.config
    kept = {
        "inputs": config.hidden_size * cost.item_bytes,
        "gated": cost.input_bytes,
        "factors": cost.factor_bytes,
        "states": cost.state_bytes,
    }
    return sum(kept[name] for name in pairs.NEEDS[recover]) + config.conv_dim * cost.item_bytes


@dataclass(frozen=True)
class Timing:
    """One sample: microseconds of one call, and when in its repeat it was taken."""

    time_us: float
    order: int


def interleave(
    operations: Sequence[Operation], measure: MeasureSettings, clock: Clock, tick: Callable[[], None]
) -> list[list[Timing]]:
    """Time operations in turn, in another order each repeat.

    Args:
        operations: at least none.
        measure: repeats, warm-up repeats that are not kept, and the least time of a sample.
        clock: of their device.
        tick: called after every repeat, warm-up repeats included.

    Returns:
        For every operation its samples, one a repeat.
    """
    assert measure.sample_ms is not None
    timings: list[list[Timing]] = [[] for _ in operations]
    passes = [1 for _ in operations]
    with quiet():
        for repeat in range(-measure.warmup, measure.repeats):
            for order in range(len(operations)):
                who = (order + repeat) % len(operations)
                seconds, passes[who] = _sample(operations[who], passes[who], measure.sample_ms * 1e-3, clock)
                if repeat >= 0:
                    time_us = seconds * 1e6 / (passes[who] * operations[who].calls)
                    timings[who].append(Timing(time_us, order))
            tick()
    return timings


def _sample(operation: Operation, passes: int, least_seconds: float, clock: Clock) -> tuple[float, int]:
    """Seconds of a sample that lasts long enough, and the passes that it took."""
    while True:
        operation.restore()
        operation.run()
        seconds = clock.seconds(operation.run, passes)
        if seconds >= least_seconds:
            return seconds, passes
        passes = max(passes + 1, ceil(passes * MARGIN * least_seconds / max(seconds, 1e-9)))


def _samples(own: Sequence[Timing], rivals: Mapping[str, Sequence[Timing]]) -> tuple[KernelSample, ...]:
    return tuple(
        KernelSample(repeat, one.time_us, one.order, {name: taken[repeat].time_us for name, taken in rivals.items()})
        for repeat, one in enumerate(own)
    )
