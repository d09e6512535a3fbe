"""Operations timed by turns, in another order each repeat, so that what drifts meets all of them alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from specla.bench.cases.operation import Operation
from specla.bench.clock import Stopwatch, quiet
from specla.bench.settings import MeasureSettings

MARGIN = 1.2
"""A sample that came out too short is taken again, this much longer than it seems to need."""


@dataclass(frozen=True)
class Ready:
    """An operation and what times its `run`."""

    operation: Operation
    watch: Stopwatch


@dataclass(frozen=True)
class Timing:
    """One sample: microseconds of one call, and when in its repeat it was taken."""

    time_us: float
    order: int


def interleave(ready: Sequence[Ready], measure: MeasureSettings, tick: Callable[[], None]) -> list[list[Timing]]:
    """Time operations in turn.

    Args:
        ready: at least none.
        measure: repeats, warm-up repeats that are not kept, and the least time of a sample.
        tick: called after every repeat, warm-up repeats included.

    Returns:
        For every operation its samples, one a repeat.
    """
    assert measure.sample_ms is not None
    timings: list[list[Timing]] = [[] for _ in ready]
    passes = [1 for _ in ready]
    with quiet():
        for repeat in range(-measure.warmup, measure.repeats):
            for order in range(len(ready)):
                who = (order + repeat) % len(ready)
                seconds, passes[who] = _sample(ready[who], passes[who], measure.sample_ms * 1e-3)
                if repeat >= 0:
                    time_us = seconds * 1e6 / (passes[who] * ready[who].operation.calls)
                    timings[who].append(Timing(time_us, order))
            tick()
    return timings


def _sample(ready: Ready, passes: int, least_seconds: float) -> tuple[float, int]:
    """Seconds of a sample that lasts long enough, and the passes that it took."""
    while True:
        ready.operation.restore()
        seconds = ready.watch.seconds(passes)
        if seconds >= least_seconds:
            return seconds, passes
        passes = max(passes + 1, ceil(passes * MARGIN * least_seconds / max(seconds, 1e-9)))
