"""Timing single operations: every strategy of a case is checked, then all are timed beside each other.

A case is what strategies share: shape, dtype, tree, batch and accepted drafts. Its baselines are timed with it whether
or not the user asked for them. One that nobody asked for is a silent partner: it has no record of its own, and its
times stand in the samples of the others.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import torch

from specla.bench.cases.dispatch import case_table
from specla.bench.cases.layers import RandomLayers, Truth
from specla.bench.cases.operation import Demand, Given, Kind
from specla.bench.cases.timing import Ready, Timing, interleave
from specla.bench.cases.work import ERRORS, Events, Work
from specla.bench.cells import Cell
from specla.bench.clock import GRAPH, Clock, MakeStopwatch
from specla.bench.estimate import accepted_drafts
from specla.bench.instruments import Instruments
from specla.bench.record import Bytes, KernelSample, Record, Status
from specla.bench.settings import EngineSettings, model_config
from specla.bench.stats import LEAST_REPEATS
from specla.bench.subject import resolve_device, resolve_dtype
from specla.errors import told
from specla.models.cost import ModelCost
from specla.ops import pairs
from specla.ops.verify import DispatchTable

WARM = "the states stay in the cache"
FREE_SHARE = 0.8
"""Of the memory that nobody uses: what a strategy that keeps a state per node may take."""


@dataclass
class Entrant:
    """One strategy of a case on its way: checked, then timed, or out of the race with a reason."""

    engine: EngineSettings
    ready: Ready | None = None
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
        self.device = resolve_device(settings.device, cell.command)
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
        self,
        todo: Sequence[Cell],
        planned: Mapping[str, Record],
        kept: Mapping[str, Record],
        instruments: Instruments,
        events: Events,
    ) -> None:
        started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        entrants = {engine: Entrant(engine) for engine in self.engines(todo)}
        where = f"{self.tree.name}, batch {self.batch}"
        with instruments.clock.stopwatches() as stopwatch:
            self._check(list(entrants.values()), stopwatch, instruments, events)
            ready = {engine: one.ready for engine, one in entrants.items() if one.ready is not None}
            timed = interleave(list(ready.values()), self.measured, lambda: events.tick(f"{self.kind.name}: {where}"))
        times = dict(zip(ready, timed, strict=True))
        for one in entrants.values():
            if one.reason and one.engine not in [cell.settings.engine for cell in todo]:
                events.log(f"{where}: the baseline {one.label} is left out: {one.reason}")
            if one.ready is not None and one.ready.watch.how not in ("", GRAPH):
                events.log(f"{where}: {one.label} is timed with its launches: {one.ready.watch.how}")
        seconds = round((time.monotonic() - clock) / len(todo), 3)
        for cell in todo:
            record = self._record(cell, planned[cell.config_hash], entrants, times, instruments)
            events.record(replace(record, started=started, seconds=seconds))

    def _baseline(self, name: str, engine: EngineSettings) -> EngineSettings:
        return self.kind.baseline(name, engine, [cell.settings.engine for cell in self.cells])

    def _check(
        self, entrants: Sequence[Entrant], stopwatch: MakeStopwatch, instruments: Instruments, events: Events
    ) -> None:
        given, trouble = None, ""
        try:
            given = self._given(instruments)
            automatic = next((one.engine for one in entrants if one.engine.verify == "auto"), None)
            if automatic is not None:
                given = replace(given, table=self._table(given, automatic, instruments, events))
        except ERRORS as error:
            trouble = told(error)
        for one in entrants:
            events.tick(f"{self.kind.name}: checking {one.label}")
            one.reason = trouble
            if given is None or one.reason:
                continue
            try:
                one.reason = self._too_large(one.engine, len(given.layers.layers), instruments.clock)
                if one.reason:
                    continue
                operation = self.kind.make(given, one.engine)
                one.error, one.reason = self._judged(one.engine, operation.error())
                if not one.reason:
                    one.ready = Ready(operation, stopwatch(operation.run, operation.held))
            except ERRORS as error:
                one.reason = told(error)

    def _given(self, instruments: Instruments) -> Given:
        seed, cache_bytes = self.cells[0].settings.seed, instruments.clock.cache_bytes
        layers = RandomLayers(self.config, self.batch, self.tree, self.dtype, self.device, seed, cache_bytes)
        return Given(layers, Truth(layers, self.accepted), self.accepted)

    def _table(self, given: Given, engine: EngineSettings, instruments: Instruments, events: Events) -> DispatchTable:
        """What `auto` chooses by: on a GPU this very case, where a few microseconds decide; else what is nearest."""
        if not self.device.startswith("cuda"):
            return instruments.table(self.config.head_shape, self.dtype, self.batch)
        table = case_table(given, engine, self.measured, instruments.clock, events.log)
        instruments.keep(table, self.dtype, self.tree.name)
        return table

    def _judged(self, engine: EngineSettings, error: float) -> tuple[float, str]:
        dtype = str(self.dtype).removeprefix("torch.")
        allowed = self.kind.tolerance(engine, dtype, self.device)
        # Not `error > allowed`: what is no number is wrong too.
        if error <= allowed:
            return error, ""
        return error, f"relative RMS error {error:.1e} against the reference, where {allowed:.0e} is allowed in {dtype}"

    def _too_large(self, engine: EngineSettings, layers: int, clock: Clock) -> str:
        """Why a state per node does not fit the memory, or nothing."""
        if "states" not in pairs.NEEDS[str(engine.recover)]:
            return ""
        state_bytes = self.cost.one_layer.state_bytes * (layers if self.kind.keeps_records else 1)
        wanted, free = self.batch * (self.tree.nodes + 1) * state_bytes, clock.free_bytes
        if wanted <= FREE_SHARE * free:
            return ""
        return f"a state per node takes {wanted / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free"

    def _record(
        self,
        cell: Cell,
        planned: Record,
        entrants: Mapping[EngineSettings, Entrant],
        times: Mapping[EngineSettings, Sequence[Timing]],
        instruments: Instruments,
    ) -> Record:
        engine = cell.settings.engine
        one, cost, bandwidth = entrants[engine], self.cost.one_layer, instruments.bandwidth
        traffic = self.kind.traffic(cost, Demand(self.batch, self.tree, self.accepted, engine))
        status, reason = Status.PASSED, ""
        if one.ready is None:
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
            why="" if one.ready is None else one.ready.operation.why,
            timing="" if one.ready is None else told_timing(one.ready),
        )


def told_timing(ready: Ready) -> str:
    """How an operation was timed, as records have it."""
    return ready.watch.how if ready.operation.layers.cold else f"{ready.watch.how}; {WARM}"


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


def _samples(own: Sequence[Timing], rivals: Mapping[str, Sequence[Timing]]) -> tuple[KernelSample, ...]:
    return tuple(
        KernelSample(repeat, one.time_us, one.order, {name: taken[repeat].time_us for name, taken in rivals.items()})
        for repeat, one in enumerate(own)
    )
