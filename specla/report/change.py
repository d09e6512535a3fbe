"""One cell in two runs: which of its times is judged, and its figures that are exact.

Runs that were measured in turns (`make regress`) are judged by the time itself, pair by pair: what slows everything
down shows too. Runs made apart are judged by the time beside that of a reference measured in the same repeats (AR; for
an operation by itself its baselines), since a shared machine may be a third slower an hour later. The time itself is
then a second witness: a cell is slower or faster where both say so. Where AR alone became faster, every speedup falls
and no method has changed. A time without a reference, such as AR's own, decides nothing between runs made apart once it
moved.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from specla.bench import stats
from specla.bench.record import Bytes, Lossless, Record, Sample
from specla.bench.tally import Counts
from specla.report.verdict import UNKNOWN, Change, Verdict, judge, paired_change, unpaired_change


class Way(StrEnum):
    """How two runs are compared."""

    IN_TURNS = "in_turns"
    APART = "apart"
    ABSOLUTE = "absolute"
    """Made apart on a machine that is said to be quiet: the time itself."""
    ACROSS_DEVICES = "across_devices"
    """The reference alone: times on two devices have nothing to say to each other."""


@dataclass(frozen=True)
class Rule:
    """What everything is judged by.

    Attributes:
        way: see `Way`.
        least: the least relative change that counts.
        cells: how many are judged together.
        passes: in turns: repeats that make a round.
    """

    way: Way
    least: float
    cells: int = 1
    passes: int = 1


@dataclass(frozen=True)
class Difference:
    """An exact figure that is not what it was."""

    figure: str
    base: Any
    new: Any
    worse: bool


@dataclass(frozen=True)
class CellChange:
    """A cell that was measured in both runs.

    Attributes:
        base, new: its records.
        figure: what is judged: time, or time over the reference's.
        change: of that figure.
        time: of the time itself.
        verdict: of the figure.
        reason: why it is inconclusive.
        exact: figures that changed and do not scatter.
    """

    base: Record
    new: Record
    figure: str
    change: Change
    time: Change
    verdict: Verdict
    reason: str
    exact: tuple[Difference, ...]


TIME, TIME_OVER_REFERENCE = "time", "time over reference"


def has_figure(base: Record, new: Record, way: Way) -> bool:
    """Whether there is something to judge."""
    if way is Way.ACROSS_DEVICES:
        return bool(_relative(base, new) and _relative(new, base))
    return bool(_times(base) and _times(new))


def compare_cell(base: Record, new: Record, rule: Rule) -> CellChange:
    """The verdict of one cell."""
    exact = tuple(_differences(base, new))
    if rule.way is Way.IN_TURNS:
        change = time = paired_change(_rounds(base, new, rule.passes), rule.cells)
    else:
        time = _apart(_times(base), _times(new), rule)
        change = time if rule.way is Way.ABSOLUTE else _apart(_relative(base, new), _relative(new, base), rule)
    if rule.way is Way.APART and change is UNKNOWN:
        verdict, reason = judge(time, rule.least)
        if verdict in (Verdict.SLOWER, Verdict.FASTER):
            verdict, reason = Verdict.INCONCLUSIVE, "its time moved between runs made apart: the code, or the machine"
        return CellChange(base, new, TIME, time, time, verdict, reason, exact)
    verdict, reason = judge(change, rule.least)
    if rule.way is Way.APART and not _witnessed(verdict, time, rule.least):
        verdict, reason = Verdict.INCONCLUSIVE, "its own time did not move with it: the reference's did, or the machine"
    figure = TIME if change is time else TIME_OVER_REFERENCE
    return CellChange(base, new, figure, change, time, verdict, reason, exact)


def _witnessed(verdict: Verdict, time: Change, least: float) -> bool:
    """Whether the time itself moved the way that the verdict says."""
    middle = time.ratio.median
    if middle is None or verdict not in (Verdict.SLOWER, Verdict.FASTER):
        return True
    return middle > 1 + least if verdict is Verdict.SLOWER else middle < 1 / (1 + least)


def _apart(base: Sequence[float], new: Sequence[float], rule: Rule) -> Change:
    return unpaired_change(base, new, rule.cells)


def _times(record: Record) -> list[float]:
    """A time a repeat: seconds per token, or microseconds of an operation; empty without performance."""
    if record.decoding:
        return _positive(stats.seconds_per_token(record.decoding.samples).values())
    return _positive(float(np.median(times)) for times in _windows(record).values())


def _relative(record: Record, other: Record) -> list[float]:
    """A time over the reference's, a repeat each; empty where there is no reference that both records have."""
    if record.decoding:
        if record.method.is_baseline:
            return []
        ratios = stats.ratios_by_repeat(record.decoding.samples).values()
        return _positive(stats.share(1.0, ratio) for ratio in ratios)
    names = _baselines(record) & _baselines(other) - {record.method.verify, record.method.recover}
    if not record.kernel or not names:
        return []
    repeats: dict[int, list[float]] = defaultdict(list)
    for sample in record.kernel.samples:
        others = _positive(sample.baseline_us.get(name) for name in names)
        if len(others) == len(names) and sample.time_us > 0:
            repeats[sample.repeat].append(sample.time_us / math.exp(float(np.mean(np.log(others)))))
    return [float(np.median(values)) for _, values in sorted(repeats.items())]


def _baselines(record: Record) -> set[str]:
    """What an operation was timed beside."""
    samples = record.kernel.samples if record.kernel else ()
    return {name for sample in samples for name in sample.baseline_us}


def _positive(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value) and value > 0]


def _windows(record: Record) -> Mapping[int, list[float]]:
    """By repeat, the time of every window in the order of the windows."""
    repeats: dict[int, list[float]] = defaultdict(list)
    if record.decoding:
        for sample in sorted(record.decoding.samples, key=lambda sample: (sample.repeat, sample.item)):
            repeats[sample.repeat].append(sample.seconds / sample.tokens if sample.tokens else math.nan)
    elif record.kernel:
        for one in sorted(record.kernel.samples, key=lambda sample: (sample.repeat, sample.order)):
            repeats[one.repeat].append(one.time_us)
    return repeats


def _rounds(base: Record, new: Record, passes: int) -> list[list[float]]:
    """Of each round, the time of every window of NEW over its partner's in BASE."""
    before, after = _windows(base), _windows(new)
    rounds: dict[int, list[float]] = defaultdict(list)
    for repeat in sorted(set(before) & set(after)):
        one, other = before[repeat], after[repeat]
        if len(one) != len(other):
            # A window that one side alone has: what is left to pair is the repeat as a whole.
            one, other = [float(np.nanmedian(one))], [float(np.nanmedian(other))]
        pairs = _positive(stats.share(y, x) for x, y in zip(one, other, strict=True))
        rounds[repeat // passes].extend(pairs)
    return [pairs for pairs in rounds.values() if pairs]


def _differences(base: Record, new: Record) -> Iterable[Difference]:
    """Exact figures that changed. Counts are exact where both texts are, and come from the same prompts and tree."""
    exact_dtype = new.dtype == "float32"
    if base.lossless is not new.lossless:
        # In 16 bits a near tie may fall either way from run to run; in float32 the text is AR's.
        worse = exact_dtype and base.lossless is Lossless.EXACT
        yield Difference("lossless", _value(base.lossless), _value(new.lossless), worse)
    if base.choice and new.choice and base.topology.parents != new.topology.parents:
        # topology=auto goes by times: another tree accepts and moves as much as it does.
        yield Difference("tree chosen", base.topology.parents, new.topology.parents, False)
        return
    if base.lossless is new.lossless is Lossless.EXACT and base.counts and new.counts and _same_texts(base, new):
        yield from _count_differences(base.counts, new.counts)
    if base.accepted != new.accepted:
        yield Difference("accepted", base.accepted, new.accepted, False)
    before, after = base.bytes or Bytes(), new.bytes or Bytes()
    for name, words in _BYTES.items():
        one, other = getattr(before, name), getattr(after, name)
        if one is not None and other is not None and one != other:
            yield Difference(words, one, other, other > one)


_BYTES = {"state": "bytes of state", "weights": "bytes of weights", "moved_per_step": "bytes moved a step"}


def _count_differences(base: Counts, new: Counts) -> Iterable[Difference]:
    tau, tau_new = stats.tau(base), stats.tau(new)
    if base.emitted * new.steps != new.emitted * base.steps:
        yield Difference("tau", tau, tau_new, (tau_new or 0.0) < (tau or 0.0))
    for name in ("steps", "emitted", "drafted", "accepted"):
        if getattr(base, name) != getattr(new, name):
            yield Difference(name, getattr(base, name), getattr(new, name), False)
    if base.accepted_at != new.accepted_at or base.reached != new.reached:
        yield Difference("accepted by depth", list(base.accepted_at), list(new.accepted_at), False)


def _same_texts(base: Record, new: Record) -> bool:
    """Whether both decoded the same prompts as far."""

    def prompts(record: Record) -> set[tuple[object, ...]]:
        return {(s.item, s.prompts) for s in record.samples if isinstance(s, Sample)}

    return prompts(base) == prompts(new) and base.gate_positions == new.gate_positions


def _value(lossless: Lossless | None) -> str | None:
    return lossless.value if lossless else None
