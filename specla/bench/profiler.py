"""Profiles of decoding cycles on a GPU: which kernels they are made of, how long each takes, what they must move.

A profiler may stay attached to the device and slow launches down: cells are profiled when a run has timed everything.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specla.bench.cells import Cell
from specla.bench.kernel_times import CellProfile, KernelTime, times_of
from specla.bench.measure import Method
from specla.bench.methods import make_method
from specla.bench.record import Record, Sample
from specla.bench.stats import step_us, tau
from specla.bench.subject import Subject
from specla.engine.device_recovery import PENDING, places_of
from specla.engine.graph import Run
from specla.engine.recovery import Recovery
from specla.models.cost import ModelCost, Traffic
from specla.ops.verify import DispatchTable

CYCLES = 4
"""That are profiled, after as many that are not."""


@dataclass(frozen=True)
class Profiling:
    """What it takes to profile a cell when everything was timed: its method is made anew, and given back."""

    cell: Cell
    subject: Subject
    table: DispatchTable | None
    recover: Recovery
    record: Record
    label: str

    def take(self) -> CellProfile:
        """Replay a few cycles under the profiler. Raises whatever the profiler, the memory or the device refuse."""
        # A decoding and its cycles hold each other, and so the memory of the one before, until they are collected.
        gc.collect()
        method = make_method(self.cell, self.subject, self.table, self.recover)
        try:
            replay = method.replay(self.subject.items[0], CYCLES)
            replay()
            method.clock.now()
            kernels = kernel_times(replay, CYCLES, method.clock.now)
        finally:
            method.release()
        record = self.record
        time_us = step_us(sample for sample in record.samples if isinstance(sample, Sample)).median
        assert time_us is not None
        return CellProfile(
            record.fingerprint,
            self.label,
            record.overrides,
            record.batch,
            record.nodes,
            CYCLES,
            round(time_us, 3),
            kernels,
            {} if _drafts_by_network(self.cell) else self._bytes(),
        )

    def _bytes(self) -> Mapping[str, int]:
        model, record = self.subject.model, self.record
        assert record.counts is not None
        cost, longest = ModelCost.of(model.config, model.dtype), self.cell.tree.depth + 1
        return cycle_bytes(cost, record.batch, record.nodes, longest, self.recover, tau(record.counts) or 1.0)


def to_profile(
    timed: Sequence[tuple[Method, Record]], label: Callable[[Cell], str], table: DispatchTable | None
) -> list[Profiling]:
    """AR, where it is among them, and the first other method, of those that were timed and replay one graph.

    Args:
        timed: with the record that each left.
        label: a cell in a few words.
        table: as the methods were given it.
    """
    fit = [(method, record) for method, record in timed if method.replays and record.samples]
    baseline = [one for one in fit if one[1].method.is_baseline]
    # What drafts comes first: AR with another commit is AR once more.
    others = sorted((one for one in fit if not one[1].method.is_baseline), key=lambda one: one[1].nodes == 1)
    return [
        Profiling(method.cell, method.subject, table, method.recover, record, label(method.cell))
        for method, record in (*baseline[:1], *others[:1])
    ]


def kernel_times(work: Run, cycles: int, settle: Run) -> tuple[KernelTime, ...]:
    """The kernels that some work runs on a GPU.

    Args:
        work: so many cycles; the device has nothing else to do.
        cycles: that it runs.
        settle: waits for their end.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as taken:
        work()
        settle()
    return times_of(taken.key_averages(), cycles)


def cycle_bytes(
    cost: ModelCost, batch: int, nodes: int, longest: int, recover: Recovery, committed: float
) -> dict[str, int]:
    """By part, the bytes that the profiled cycles must move: mean of a cycle whose rows all go on.

    Activations of other parts are left out, as in `specla.models.cost`.

    Args:
        cost: of the model.
        batch: rows.
        nodes: T, root included.
        longest: the most tokens that a row commits, D + 1.
        recover: the way to commit.
        committed: tokens a row and cycle, mean.
    """
    ring, used, rule = places_of(recover, longest), 0.0, Traffic()
    factors = recover.name in PENDING or recover.name == "factors"
    for cycle in range(2 * CYCLES):
        folds = bool(ring) and (recover.name != "factors_lazy" or used + longest > ring)
        if cycle >= CYCLES:
            rule += cost.verify(batch, nodes, known=round(used), writes_state=folds, leaves_factors=factors)
        used = (0.0 if folds else used) + (committed if ring else 0.0)
    window = batch * cost.window_bytes
    tokens = batch * committed * cost.factor_bytes
    commit = 2 * tokens if ring else tokens + 2 * batch * cost.state_bytes
    return {
        "products": cost.weight_read_bytes,
        "delta rule": rule.total_bytes // CYCLES,
        "inputs": window + batch * nodes * cost.input_bytes,
        "commit": round(commit) + 2 * window,
    }


def _drafts_by_network(cell: Cell) -> bool:
    """Whether a drafter's kernels, whose bytes are not counted, go by the same names as the target's."""
    drafter = cell.settings.drafter
    return "aligned" in (drafter.name, drafter.cost)
