"""Whether a figure changed between two runs: the ratio NEW over BASE with its interval, held against the noise.

The figure is a time, so a ratio above 1 is slower. The rule:

- The interval is a bootstrap of the median: of the ratios of all windows to their partners where the runs were measured
  in turns, else of both runs' repeats by themselves.
- Many cells are judged at once, so for slower and faster the interval is widened until all of them together hold with
  95 % (Bonferroni): else one cell in forty would be slower by chance.
- The threshold is the least change that counts, or what one repeat strays by (in turns: the median of one round) where
  that is more. It covers what the interval cannot know: that a process is a little faster or slower for as long as it
  lives, and that others used the machine more in one run than in the other.
- slower: the whole wide interval lies above 1 + threshold. faster: it lies below 1 / (1 + threshold).
- same: the cell's own 95 % interval lies between the two, and the threshold is no more than COARSEST. Otherwise the
  figures decide nothing: inconclusive.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

from specla.bench.stats import LEAST_REPEATS, NO_INTERVAL, Interval

LEAST_IN_TURNS, LEAST_APART = 0.05, 0.10
"""The least change that counts. Runs made apart differ in what no repeat of either shows: where a process's memory came
to lie, and how the machine was used meanwhile. Runs made in turns start anew every round, so their repeats show it."""
COARSEST = 0.15
"""The coarsest threshold by which a cell may pass as the same."""
LEVEL = 0.95
_RESAMPLES = 5000
_SEED = 20_260_718
_MAD_TO_SPREAD = 1.4826
"""Of a normal distribution: the standard deviation over the median absolute deviation."""


class Verdict(StrEnum):
    """What became of a cell."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Change:
    """NEW over BASE in a time.

    Attributes:
        ratio: the median, with the 95 % interval of this cell alone; n counts repeats, or rounds of turns.
        low, high: the interval that holds for all cells together; None where there are too few repeats.
        noise: by how much a single repeat (or round) strays, relative.
    """

    ratio: Interval
    low: float | None
    high: float | None
    noise: float

    @property
    def known(self) -> bool:
        """Whether there are repeats enough to say anything."""
        return self.low is not None and self.high is not None


UNKNOWN = Change(NO_INTERVAL, None, None, 0.0)


def paired_change(rounds: Sequence[Sequence[float]], cells: int) -> Change:
    """The change between runs that were measured in turns.

    Args:
        rounds: of each, the time of every window of NEW over its partner's in BASE.
        cells: how many changes are judged together.
    """
    logs = [np.log(ratios) for ratios in rounds if len(ratios)]
    if not logs:
        return UNKNOWN
    noise = _spread(np.asarray([np.median(one) for one in logs]))
    return _change((np.concatenate(logs),), noise, len(logs), cells)


def unpaired_change(base: Sequence[float], new: Sequence[float], cells: int) -> Change:
    """The change between runs that were measured apart.

    Args:
        base: a positive time a repeat.
        new: the same.
        cells: how many changes are judged together.
    """
    if not base or not new:
        return UNKNOWN
    logs = (np.log(new), np.log(base))
    return _change(logs, max(_spread(one) for one in logs), min(len(base), len(new)), cells)


def threshold(change: Change, least: float) -> float:
    """The relative change from which on a cell counts as changed."""
    return max(least, change.noise)


def judge(change: Change, least: float) -> tuple[Verdict, str]:
    """The verdict, and for an inconclusive one the reason."""
    if change.low is None or change.high is None:
        count = change.ratio.n
        return Verdict.INCONCLUSIVE, f"{count} repeat{'s' * (count != 1)} where an interval takes {LEAST_REPEATS}"
    limit = threshold(change, least)
    if change.low > 1 + limit:
        return Verdict.SLOWER, ""
    if change.high < 1 / (1 + limit):
        return Verdict.FASTER, ""
    low, high = change.ratio.low, change.ratio.high
    assert low is not None and high is not None
    if limit > max(least, COARSEST):
        return Verdict.INCONCLUSIVE, f"repeats scatter by more than {100 * COARSEST:.0f} %"
    if low >= 1 / (1 + limit) and high <= 1 + limit:
        return Verdict.SAME, ""
    return Verdict.INCONCLUSIVE, "the interval reaches across the threshold"


def _change(logs: Sequence[NDArray[np.float64]], noise: float, count: int, cells: int) -> Change:
    """From the log ratios, or from the logs of NEW's and of BASE's times."""
    middle = math.exp(float(_middle(*logs)))
    if count < LEAST_REPEATS:
        return Change(Interval(middle, None, None, count), None, None, noise)
    spread = bootstrap(
        tuple(logs),
        _middle,
        n_resamples=_RESAMPLES,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(_SEED),
    ).bootstrap_distribution
    alone = _bounds(spread, LEVEL)
    together = _bounds(spread, 1 - (1 - LEVEL) / max(1, cells))
    return Change(Interval(middle, *alone, count), *together, noise)


def _bounds(spread: NDArray[np.float64], level: float) -> tuple[float, float]:
    """The percentiles between which a share `level` of the resampled medians lies, as ratios."""
    low, high = np.quantile(spread, ((1 - level) / 2, (1 + level) / 2))
    return math.exp(float(low)), math.exp(float(high))


def _middle(new: NDArray[np.float64], *base: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
    """The median, less that of BASE where the two were not paired."""
    middle: NDArray[np.float64] = np.median(new, axis=axis)
    for one in base:
        middle = middle - np.median(one, axis=axis)
    return middle


def _spread(logs: NDArray[np.float64]) -> float:
    """The relative spread of one repeat, by the median absolute deviation: a single outlier does not widen it."""
    if len(logs) < 2:
        return 0.0
    return math.expm1(_MAD_TO_SPREAD * float(np.median(np.abs(logs - np.median(logs)))))
