"""Timing decodes on a GPU: graphs replayed, and nothing read back before a window ends.

A window is as many cycles as the gate's decode took until its first row ended. The texts of one build on one device are
the same every time, so that is known beforehand, and checked afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise, repeat
from statistics import mean

import torch
from torch import Tensor

from specla.bench.cells import Cell
from specla.bench.gate import judge_texts
from specla.bench.measure import Decoded, Method, Timed, make_drafter
from specla.bench.record import Split
from specla.bench.subject import Item, Subject
from specla.drafters.aligned import AlignedDrafter
from specla.drafters.base import Drafter
from specla.drafters.device import DeviceDrafter, DeviceOracle, NoDrafts
from specla.drafters.device_aligned import DeviceAligned
from specla.drafters.device_confident import DeviceConfident
from specla.drafters.oracle import OracleDrafter
from specla.drafters.paid import PaidOracle
from specla.engine.adaptive import Adaptive, Outcome, outcome_of
from specla.engine.decode import Step
from specla.engine.device import DeviceDecoding, How, window
from specla.engine.device_report import Report
from specla.engine.recovery import Recovery
from specla.interrupt import check
from specla.ops.verify import DispatchTable
from specla.topology import DraftTree

LATE = 2
"""Cycles that the host is behind, where it chooses how deep the next one drafts."""


@dataclass
class Text:
    """What the gate's decode of an item found."""

    cycles: int
    """Until the first row ended."""
    tokens: int
    """That counted in those."""
    drafts: dict[int, Tensor] | None
    """An oracle's, by nodes of the tree: it draws again what it drew, whatever near ties have taught it since."""
    split: Split | None = None


class DeviceMethod(Method):
    """A cell's way of decoding its subject, on a GPU.

    Args:
        cell: names the method.
        subject: what it decodes.
        table: measured on this device, for `auto`.
        recover: in place of the cell's recovery.
    """

    def __init__(
        self, cell: Cell, subject: Subject, table: DispatchTable | None = None, recover: Recovery | None = None
    ) -> None:
        super().__init__(cell, subject, table, recover)
        self._engine: DeviceDecoding | None = None
        self._drafter: DeviceDrafter = NoDrafts()
        self._texts: dict[int, Text] = {}

    @property
    def _trees(self) -> tuple[DraftTree, ...]:
        return tuple(self.adaptive.cuts.values()) if self.adaptive is not None else (self.cell.tree,)

    def engine(self, item: Item) -> DeviceDecoding:
        """What decodes, with its graphs; the drafter follows the item."""
        subject = self.subject
        model, text = subject.model, self._texts.get(item.index)
        drafter = make_drafter(self.cell, subject, item)
        oracle = drafter.oracle if isinstance(drafter, PaidOracle) else drafter
        if self._engine is None:
            batch, how = len(item.start.roots), How(self.verify, self.recover, subject.sampling, subject.stop)
            self._drafter = self._on_device(drafter, batch)
            self._engine = DeviceDecoding(model, batch, self._trees, self._drafter, how)
        elif isinstance(oracle, OracleDrafter) and isinstance(self._drafter, DeviceOracle):
            self._drafter.oracle = oracle
        self._engine.begin(item.start)
        if isinstance(self._drafter, DeviceOracle):
            # Other depths have other drafts: there the oracle follows its traces, as in the gate.
            again = text is not None and self.adaptive is None
            self._drafter.repeat(text.drafts if text is not None and again else None)
        return self._engine

    def _on_device(self, drafter: Drafter, batch: int) -> DeviceDrafter:
        """What drafts on the device as `drafter` does on the host."""
        subject = self.subject
        model = subject.model
        if isinstance(drafter, AlignedDrafter) and drafter.confidence is not None:
            return DeviceConfident(drafter.network, subject.sampling, batch, self._trees, drafter.confidence)
        if isinstance(drafter, AlignedDrafter):
            return DeviceAligned(drafter.network, subject.sampling, batch, [tree.depth for tree in self._trees])
        worker = self._on_device(drafter.worker, batch) if isinstance(drafter, PaidOracle) else None
        oracle = drafter.oracle if isinstance(drafter, PaidOracle) else drafter
        if isinstance(oracle, OracleDrafter):
            capacity = subject.stop.max_new_tokens + 2 * subject.depth + 2
            return DeviceOracle(oracle, capacity, model.device, model.config.vocab_size, worker)
        return NoDrafts()

    def decode(self, item: Item) -> tuple[Decoded, list[Step]]:
        """Decode an item to the end of every row, the host looking at every cycle."""
        engine, loop = self.engine(item), Loop(self.adaptive)
        while not all(engine.finished):
            loop.advance(engine)
            if isinstance(self._drafter, DeviceOracle):
                self._follow(engine, self._drafter, loop.depths)
        steps = engine.steps(len(loop.depths), loop.depths)
        cycles = window(engine.log.kept[: len(loop.depths)])
        tokens = sum(len(tokens) for step in steps[:cycles] for tokens in step.emitted)
        drafts = self._drafter.kept() if isinstance(self._drafter, DeviceOracle) else None
        self._texts[item.index] = Text(cycles, tokens, drafts)
        return engine, steps

    def _follow(self, engine: DeviceDecoding, drafter: DeviceOracle, depths: list[int]) -> None:
        """Give the oracle new traces of the rows that left theirs by a near tie: AR's, from here on."""
        oracle, finished = drafter.oracle, engine.finished
        oracle.observe(engine.steps(len(depths), depths)[-1].emitted)
        off = [row for row in oracle.rows_off_trace() if not finished[row]]
        if not off:
            return
        texts = self.subject.ar_texts(engine.settled())
        for row in off:
            oracle.retrace(row, texts[row][1:])
        drafter.reload()

    def time(self, item: Item) -> Timed:
        """Replay an item's window on the clock."""
        known, engine = self._texts[item.index], self.engine(item)
        if self.adaptive is not None:
            timed = self._time_adaptive(item, known)
        else:
            if known.split is None:
                known.split = _split(engine, known.cycles)
                engine = self.engine(item)
            started = self.clock.now()
            engine.advance(known.cycles)
            seconds = self.clock.now() - started
            timed = Timed(seconds, known.tokens, known.cycles, known.split)
        self.compare(item, engine.emitted)
        return timed

    def first_steps(self, item: Item, most: int) -> Timed:
        """So many cycles on the clock, as if no row ended; a row that does drafts and verifies all the same."""
        split = _split(self.engine(item), most)
        engine = self.engine(item)
        started = self.clock.now()
        engine.advance(most)
        seconds = self.clock.now() - started
        return Timed(seconds, int(engine.log.kept[:most].sum()), most, split)

    @property
    def replays(self) -> bool:
        # Cycles of whatever depth was chosen are no one graph.
        return self.adaptive is None

    def replay(self, item: Item, cycles: int) -> Callable[[], object]:
        return partial(self.engine(item).advance, cycles)

    def compare(self, item: Item, emitted: Sequence[Sequence[int]]) -> None:
        """Note a text that is not the gate's, unless depths that depended on times led to another near tie."""
        before = self.departed
        super().compare(item, emitted)
        if self.adaptive is not None and self.departed != before:
            judged = judge_texts(self.subject.model, item.start, emitted, self.subject.sampling)
            self.departed = f"{self.departed}: {judged.reason}" if judged.reason else before

    def _time_adaptive(self, item: Item, known: Text) -> Timed:
        """Cycles of whatever depth was chosen, from counters that come late, until a row ends.

        A real drafter's are timed as they are chosen. An oracle must be given new traces between cycles, so that the
        host waits for each of them: its depths are chosen first, then the same cycles run on the clock as they would
        for a real drafter.
        """
        engine, loop = self._engine, Loop(self.adaptive, late=LATE)
        assert engine is not None
        if known.cycles and isinstance(self._drafter, DeviceOracle):
            chosen = Loop(self.adaptive)
            while not chosen.ended:
                chosen.advance(engine)
                self._follow(engine, self._drafter, chosen.depths)
            drafts = self._drafter.kept()
            engine, loop = self.engine(item), Loop(Again(chosen.depths), late=LATE)
            self._drafter.repeat(drafts)
        while known.cycles and not loop.ended:
            loop.advance(engine)
        cycles = loop.counted
        # What the host had launched before it saw the end does not count.
        return Timed(loop.seconds, int(engine.log.kept[:cycles].sum()), cycles, Split(0.0, 0.0, 0.0, 0.0))

    def release(self) -> None:
        """Give graphs and states back; what was found stays."""
        if self._engine is not None:
            self._engine.release()
        self._engine, self._drafter = None, NoDrafts()


class Again:
    """The depths of earlier cycles once more, in place of an `Adaptive`; behind their end the last one."""

    def __init__(self, depths: Sequence[int]) -> None:
        self._depths = chain(depths, repeat(depths[-1]))

    def next_depth(self) -> int:
        """Of the next cycle."""
        return next(self._depths)

    def observe(self, outcome: Outcome) -> None:
        """Nothing is learned."""


class Loop:
    """Cycles one after the other, each as deep as `adaptive` says, which learns of them `late` cycles later.

    Args:
        adaptive: None for the one tree there is.
        late: cycles; 0 waits for each.
    """

    def __init__(self, adaptive: Adaptive | Again | None, late: int = 0) -> None:
        self.depths: list[int] = []
        self.counted, self.ended = 0, False
        self._adaptive, self._late = adaptive, late
        self._started: list[torch.cuda.Event] = []
        self._reports: list[Report] = []

    def advance(self, engine: DeviceDecoding) -> None:
        """One cycle more, and what an earlier one did."""
        check()
        # Every cycle emits a token: those of the longest text are all that the log has room for.
        launched = len(self.depths) < engine.log.kept.shape[0]
        if launched:
            self._launch(engine)
        if (len(self._reports) > self._late or not launched) and not self.ended:
            self._look(engine)

    def _launch(self, engine: DeviceDecoding) -> None:
        self._started.append(torch.cuda.Event(enable_timing=True))
        self._started[-1].record()
        self.depths.append(max(engine.cycles) if self._adaptive is None else self._adaptive.next_depth())
        engine.advance(1, self.depths[-1])
        self._reports.append(engine.report(len(self.depths) - 1))

    def _look(self, engine: DeviceDecoding) -> None:
        report, depth = self._reports[self.counted], self.depths[self.counted]
        accepted, kept, finished = report.read()
        self.ended = any(finished)
        if self._adaptive is not None:
            taken = [a for a, k in zip(accepted, kept, strict=True) if k]
            self._adaptive.observe(outcome_of(depth, engine.cycles[depth].tree.depth, taken, self._cycle_seconds()))
        self.counted += 1

    def _cycle_seconds(self) -> float:
        return self._between(self.counted, self.counted)

    @property
    def seconds(self) -> float:
        """Of the cycles that were looked at, from end to end."""
        return self._between(0, self.counted - 1) if self.counted else 0.0

    def _between(self, first: int, last: int) -> float:
        return float(self._started[first].elapsed_time(self._reports[last].done)) * 1e-3


def _split(engine: DeviceDecoding, cycles: int) -> Split:
    """Each phase as a graph of its own, between events: together they take longer than the whole."""
    if not cycles:
        return Split(0.0, 0.0, 0.0, 0.0)
    parts = engine.parts()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(len(parts) + 1)] for _ in range(cycles)]
    for cycle in marks:
        cycle[0].record()
        for part, mark in zip(parts, cycle[1:], strict=True):
            part()
            mark.record()
    marks[-1][-1].synchronize()
    taken = [[a.elapsed_time(b) * 1e3 for a, b in pairwise(cycle)] for cycle in marks]
    return Split(*(mean(phase) for phase in zip(*taken, strict=True)))
