"""Every number that a report shows, computed from raw samples and counts (design.md, section 7).

Intervals are 95 % percentile bootstraps of the median over repeats, seeded, so that the same samples give the same
digits. Fewer than five repeats give a median without an interval.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import bootstrap

from specla.bench.record import KernelSample, Sample, Split
from specla.bench.tally import Tally

LEAST_REPEATS = 5
_RESAMPLES = 4000
_SEED = 20_260_718


@dataclass(frozen=True)
class Interval:
    """A median over n repeats and its 95 % interval; None where it could not be computed."""

    median: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def has_bounds(self) -> bool:
        """False where there were too few repeats for an interval."""
        return self.low is not None and self.high is not None


NO_INTERVAL = Interval(None, None, None, 0)


def median_interval(values: Iterable[float | None]) -> Interval:
    """Median and 95 % interval of the finite ones among `values`; n is how many those were."""
    return _interval(tuple(float(value) for value in values if value is not None and math.isfinite(value)))


@lru_cache(maxsize=4096)
def _interval(values: tuple[float, ...]) -> Interval:
    if not values:
        return NO_INTERVAL
    middle = float(np.median(values))
    if len(values) < LEAST_REPEATS:
        return Interval(middle, None, None, len(values))
    if min(values) == max(values):
        return Interval(middle, middle, middle, len(values))
    found = bootstrap(
        (np.asarray(values),),
        np.median,
        n_resamples=_RESAMPLES,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return Interval(middle, float(found.low), float(found.high), len(values))


def share(part: float | None, whole: float | None) -> float | None:
    """part / whole; None where either is missing, not finite, or the whole is zero."""
    if part is None or whole is None or not whole:
        return None
    value = part / whole
    return value if math.isfinite(value) else None


def tau(counts: Tally) -> float | None:
    """Tokens emitted per verify step, bonus included, pooled over all steps."""
    return share(counts.emitted, counts.steps)


def alpha_by_depth(counts: Tally) -> list[float | None]:
    """For depth 1..D, of the steps that reached it uncut, the share accepted there; None where no step got there."""
    return [share(accepted, reached) for accepted, reached in zip(counts.accepted_at, counts.reached, strict=True)]


def alpha_by_rank(counts: Tally) -> list[list[float | None]]:
    """For depth 1..D and rank 1, 2, ...: of the steps that asked for such a draft, the share that accepted it.

    A draft that the drafter did not have counts as not right, where `alpha_by_depth` leaves such steps out.
    """
    lines = zip(counts.right, counts.offered, strict=True)
    return [[share(right, offered) for right, offered in zip(*line, strict=True)] for line in lines]


def alpha_intervals(counts: Tally) -> list[tuple[float, float] | None]:
    """For depth 1..D, Wilson's 95 % interval of alpha."""
    return [_wilson(accepted, reached) for accepted, reached in zip(counts.accepted_at, counts.reached, strict=True)]


def _wilson(hits: int, trials: int) -> tuple[float, float] | None:
    if not trials:
        return None
    z = 1.959964
    rate = hits / trials
    scale = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def draft_efficiency(counts: Tally) -> float | None:
    """Drafts accepted over drafts verified."""
    return share(counts.accepted, counts.drafted)


def by_repeat(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    """The samples of each repeat, repeats in order."""
    repeats: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        repeats[sample.repeat].append(sample)
    return dict(sorted(repeats.items()))


def seconds_per_token(samples: Iterable[Sample]) -> dict[int, float | None]:
    """Per repeat, seconds over tokens, both pooled over its prompt batches."""
    return {
        repeat: share(math.fsum(s.seconds for s in group), sum(s.tokens for s in group))
        for repeat, group in by_repeat(samples).items()
    }


def ratios_by_repeat(samples: Iterable[Sample]) -> dict[int, float | None]:
    """Per repeat, AR's pooled time per token over the method's, over the batches where both were timed."""
    paired = [s for s in samples if s.ar_seconds is not None and s.ar_tokens is not None]
    own = seconds_per_token(paired)
    return {
        repeat: share(
            share(math.fsum(s.ar_seconds or 0.0 for s in group), sum(s.ar_tokens or 0 for s in group)), own[repeat]
        )
        for repeat, group in by_repeat(paired).items()
    }


def paired_ratio(samples: Iterable[Sample]) -> Interval:
    """Speedup to AR: one pooled ratio a repeat, then the median and its interval over repeats."""
    return median_interval(ratios_by_repeat(samples).values())


def ratio_to(baseline: Iterable[Sample], samples: Iterable[Sample]) -> Interval:
    """The baseline's pooled time per token over the method's, in the repeats that both have."""
    other = seconds_per_token(baseline)
    own = seconds_per_token(samples)
    return median_interval(share(other.get(repeat), value) for repeat, value in own.items())


def tok_s(samples: Iterable[Sample]) -> Interval:
    """Tokens per second, pooled within a repeat."""
    return median_interval(share(1.0, value) for value in seconds_per_token(samples).values())


def step_us(samples: Iterable[Sample]) -> Interval:
    """Microseconds per verify step, pooled within a repeat."""
    groups = by_repeat(samples).values()
    return median_interval(share(1e6 * math.fsum(s.seconds for s in g), sum(s.steps for s in g)) for g in groups)


def split_us(samples: Sequence[Sample]) -> Split | None:
    """Where a step's time goes: weighed by steps within a repeat, the median over repeats; None if it was not timed."""

    def part(get: Callable[[Split], float]) -> float | None:
        repeats = []
        for group in by_repeat(samples).values():
            timed = [(s.split_us, s.steps) for s in group if s.split_us is not None]
            repeats.append(
                share(math.fsum(get(split) * steps for split, steps in timed), sum(steps for _, steps in timed))
            )
        return median_interval(repeats).median

    draft, verify = part(lambda split: split.draft), part(lambda split: split.verify)
    accept, commit = part(lambda split: split.accept), part(lambda split: split.commit)
    if draft is None or verify is None or accept is None or commit is None:
        return None
    return Split(draft, verify, accept, commit)


def kernel_us(samples: Iterable[KernelSample]) -> Interval:
    """The operation's time: the median of each repeat, then over repeats."""
    return median_interval(_repeat_medians((s.repeat, s.time_us) for s in samples).values())


def kernel_ratios(samples: Sequence[KernelSample]) -> Mapping[str, Interval]:
    """Per baseline, its time over the operation's, sample by sample; the median of each repeat, then over repeats."""
    names = sorted({name for sample in samples for name in sample.baseline_us})
    return {
        name: median_interval(
            _repeat_medians((s.repeat, share(s.baseline_us.get(name), s.time_us)) for s in samples).values()
        )
        for name in names
    }


def _repeat_medians(values: Iterable[tuple[int, float | None]]) -> dict[int, float]:
    repeats: dict[int, list[float]] = defaultdict(list)
    for repeat, value in values:
        if value is not None and math.isfinite(value):
            repeats[repeat].append(value)
    return {repeat: float(np.median(group)) for repeat, group in sorted(repeats.items())}
