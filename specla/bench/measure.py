"""Decoding on the clock: one shared prefill, the gate, windows that end before any row is idle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specla.bench.cells import Cell
from specla.bench.clock import clock_for
from specla.bench.counting import counts
from specla.bench.gate import GateResult, check_texts
from specla.bench.profile import oracle_alpha
from specla.bench.record import Split
from specla.bench.subject import Item, Subject
from specla.bench.tally import Counts
from specla.drafters.aligned import AlignedDrafter, Confidence
from specla.drafters.base import Drafter, NoDrafter
from specla.drafters.ngram import NgramDrafter
from specla.drafters.oracle import OracleDrafter
from specla.drafters.paid import PaidOracle
from specla.engine.adaptive import Adaptive
from specla.engine.decode import Decoding, Step, trace_rows
from specla.engine.recovery import Recovery
from specla.errors import SpeclaError
from specla.ops import pairs
from specla.ops.recover import RING
from specla.ops.verify import Auto, DispatchTable, get_verify


class Decoded(Protocol):
    """A decode that has ended."""

    @property
    def emitted(self) -> list[list[int]]:
        """Every row's text, the prefill's token first."""


@dataclass(frozen=True)
class Timed:
    """One timed window."""

    seconds: float
    tokens: int
    steps: int
    split: Split


class Method:
    """A cell's way of decoding its subject.

    Args:
        cell: names the method.
        subject: what it decodes.
        table: measured on this device, for `auto`.
        recover: in place of the cell's recovery.
    """

    def __init__(
        self, cell: Cell, subject: Subject, table: DispatchTable | None = None, recover: Recovery | None = None
    ) -> None:
        self.cell, self.subject = cell, subject
        self.clock = clock_for(str(subject.model.device))
        engine = cell.settings.engine
        assert engine.verify is not None and engine.recover is not None
        # A root alone, as topology=auto may choose, is decoded as AR is.
        how = ("ar", "in_place") if cell.tree.nodes == 1 and engine.verify != "ar" else (engine.verify, engine.recover)
        self.recover = recover or Recovery(how[1], engine.ring or RING)
        self.chosen = ""
        """Why AR commits as it does, where that was measured."""
        self.verify = get_verify(how[0], pairs.NEEDS[how[1]])
        if isinstance(self.verify, Auto):
            self.verify.table = table
        # What it learns stays, as with a server that has been running for a while. A root alone leaves nothing to cut.
        self.adaptive = Adaptive(cell.tree) if engine.adaptive and cell.tree.depth else None
        self.texts: dict[int, list[list[int]]] = {}
        """By item, what the gate saw; a timed window must emit the same."""
        self.departed = ""
        """Where a timed window emitted something else; empty while none did."""

    @property
    def why(self) -> str:
        """What was chosen and why: a tree, a way to verify or commit, how deep to draft; empty where nothing was."""
        parts = [self.chosen] if self.chosen else []
        if self.cell.choice is not None:
            parts.append(self.cell.choice.told)
        if isinstance(self.verify, Auto):
            shape = self.subject.model.config.head_shape
            parts.append(self.verify.choose(self.cell.tree, self.cell.settings.workload.batch, shape)[1])
        if self.adaptive is not None:
            parts.append(self.adaptive.told)
        return "; ".join(parts)

    def start(self, item: Item) -> Decoding:
        """A fresh decode of an item."""
        drafter = make_drafter(self.cell, self.subject, item)
        subject = self.subject
        decoding = Decoding(
            subject.model,
            item.start,
            self.cell.tree,
            drafter,
            self.verify,
            self.recover,
            subject.stop,
        )
        return decoding if self.adaptive is None else decoding.adapt(self.adaptive)

    def decode(self, item: Item) -> tuple[Decoded, list[Step]]:
        """Decode an item to the end of every row."""
        decoding, steps = self.start(item), list[Step]()
        while not decoding.done:
            steps.append(decoding.step())
            trace_rows(decoding)
        return decoding, steps

    def time(self, item: Item) -> Timed:
        """Decode an item until its first row ends, on the clock; an oracle's new traces are made off it."""
        timed, emitted = self._run(item, None)
        self.compare(item, emitted)
        return timed

    def first_steps(self, item: Item, most: int) -> Timed:
        """The same for at most so many steps, whose text is not compared with anything."""
        return self._run(item, most)[0]

    def _run(self, item: Item, most: int | None) -> tuple[Timed, list[list[int]]]:
        decoding, steps = self.start(item), list[Step]()
        seconds = 0.0
        while len(steps) != most and not any(decoding.finished):
            started = self.clock.now()
            steps.append(decoding.step())
            seconds += self.clock.now() - started
            trace_rows(decoding)
        phases = [sum(step.seconds[i] for step in steps) / len(steps) * 1e6 if steps else 0.0 for i in range(4)]
        tokens = sum(len(tokens) for step in steps for tokens in step.emitted)
        return Timed(seconds, tokens, len(steps), Split(*phases)), decoding.emitted

    @property
    def replays(self) -> bool:
        """Whether `replay` runs the cycles that a window times."""
        return False

    def replay(self, item: Item, cycles: int) -> Callable[[], object]:
        """What runs so many cycles from the start of an item on, and as many more each time it is called again."""
        raise SpeclaError(f"engine={self.cell.method.engine}: replays no cycles here")

    def release(self) -> None:
        """Give back what was held for decoding; what was found stays."""

    def compare(self, item: Item, emitted: Sequence[Sequence[int]]) -> None:
        """Note where a timed window emitted something else than the gate saw."""
        gated = self.texts.get(item.index, [])
        for row, text in enumerate(emitted):
            if gated and list(text) != gated[row][: len(text)]:
                self.departed = f"a timed window left the text that the gate saw (item {item.index}, row {row})"


def make_drafter(cell: Cell, subject: Subject, item: Item) -> Drafter:
    """The drafter of a cell, for one item."""
    drafter = cell.settings.drafter
    if cell.tree.nodes == 1:
        # Whatever topology=auto weighed it against: to follow the text costs time, and nobody drafts.
        return NoDrafter()
    match drafter.name:
        case "none":
            return NoDrafter()
        case "ngram":
            assert drafter.min_ngram is not None and drafter.max_ngram is not None
            return NgramDrafter(drafter.min_ngram, drafter.max_ngram)
        case "oracle":
            vocabulary, seed = subject.model.config.vocab_size, cell.settings.seed
            rows = item.start.rows.tolist()
            oracle = OracleDrafter(oracle_alpha(drafter), subject.traces[item.index], vocabulary, seed, rows)
            if drafter.cost != "aligned":
                return oracle
            return PaidOracle(oracle, AlignedDrafter(subject.worker(drafter), subject.sampling, item.start.rows))
        case "aligned":
            asked = cell.settings.topology
            confidence = None
            if asked.name == "confidence":
                assert asked.branching is not None
                confidence = Confidence(asked.branching, asked.margin)
            return AlignedDrafter(subject.aligned(drafter), subject.sampling, item.start.rows, confidence)
    raise SpeclaError(f"drafter={drafter.name}: not built yet")


def gate(method: Method, items: Sequence[Item]) -> tuple[GateResult, Counts]:
    """Decode every item to its end: whether the texts are the target's, and what was accepted."""
    result: GateResult | None = None
    rows = []
    for item in items:
        decoding, steps = method.decode(item)
        method.texts[item.index] = decoding.emitted
        found = check_texts(
            method.subject.model,
            item.start,
            decoding.emitted,
            method.subject.reference(item),
            method.subject.sampling,
            method.subject.stop,
        )
        result = found if result is None else result + found
        rows += [(category, [(step, row) for step in steps]) for row, category in enumerate(item.categories)]
    assert result is not None
    return result, counts(rows)
