"""Statistics: known values come back, intervals cover, and nothing divides by zero."""

import math

import numpy as np
import pytest

from specla.bench import stats
from specla.bench.record import KernelSample, Sample, Split
from specla.bench.tally import Tally
from tests.factory import decode_samples


def sample(repeat: int, seconds: float, tokens: int, ar_seconds: float | None = None, steps: int = 10) -> Sample:
    return Sample(
        repeat, 0, seconds, tokens, steps, ar_seconds=ar_seconds, ar_tokens=None if ar_seconds is None else tokens
    )


def test_known_ratio_is_recovered_exactly_without_noise() -> None:
    found = stats.paired_ratio(decode_samples(1.7, {"": 1.0}, 7, 0.0, 0, None))
    assert found.n == 7
    assert found.median == pytest.approx(1.7)
    assert found.low == found.median == found.high


def test_ratio_pools_time_and_tokens_before_dividing() -> None:
    # A short slow prompt and a long fast one: the mean of their ratios would be 1.25, the pooled ratio is not.
    samples = [
        Sample(0, 0, 1.0, 10, 5, ar_seconds=0.5, ar_tokens=10),
        Sample(0, 1, 1.0, 90, 5, ar_seconds=2.0, ar_tokens=90),
    ]
    assert stats.paired_ratio(samples).median == pytest.approx(2.5 / 2.0)
    uneven = [Sample(0, 0, 1.0, 100, 5, ar_seconds=2.0, ar_tokens=50)]
    assert stats.paired_ratio(uneven).median == pytest.approx(4.0)


def test_few_repeats_give_no_interval() -> None:
    found = stats.median_interval([1.0, 2.0, 4.0, 3.0])
    assert found == stats.Interval(2.5, None, None, 4)
    assert not found.has_bounds


@pytest.mark.parametrize("values", [[], [math.nan, None], [math.inf]])
def test_nothing_finite_gives_nothing(values: list[float | None]) -> None:
    assert stats.median_interval(values) == stats.NO_INTERVAL


def test_not_finite_values_are_dropped_and_n_says_so() -> None:
    assert stats.median_interval([1.0, math.nan, 1.0, None, 1.0, 1.0, 1.0]) == stats.Interval(1.0, 1.0, 1.0, 5)


def test_intervals_are_the_same_every_time() -> None:
    values = list(np.random.default_rng(1).normal(1.5, 0.1, 9))
    first = stats.median_interval(values)
    stats._interval.cache_clear()
    assert stats.median_interval(values) == first


@pytest.mark.parametrize(("repeats", "least"), [(5, 0.89), (15, 0.90)])
def test_interval_covers_the_true_ratio(repeats: int, least: float) -> None:
    # The percentile interval of a median of 5 is their range: 1 - 2 / 2**5 = 94 % at best.
    hits = 0
    trials = 200
    for seed in range(trials):
        found = stats.paired_ratio(decode_samples(1.4, {"": 1.0}, repeats, 0.05, seed, None))
        assert found.low is not None and found.high is not None
        hits += found.low <= 1.4 <= found.high
    assert hits / trials >= least
    assert hits < trials


def test_tau_and_alpha_are_pooled() -> None:
    counts = Tally(steps=100, emitted=220, drafted=300, accepted=120, reached=(100, 80, 0), accepted_at=(80, 40, 0))
    assert stats.tau(counts) == 2.2
    assert stats.alpha_by_depth(counts) == [0.8, 0.5, None]
    assert stats.draft_efficiency(counts) == 0.4
    low, high = stats.alpha_intervals(counts)[0] or (0.0, 0.0)
    assert 0.70 < low < 0.8 < high < 0.88
    assert stats.alpha_intervals(counts)[2] is None


def test_tau_is_one_plus_the_products_of_alpha_on_a_chain() -> None:
    counts = Tally(1000, 1000 + 800 + 560 + 280, 3000, 1640, (1000, 800, 560), (800, 560, 280))
    alpha = [value or 0.0 for value in stats.alpha_by_depth(counts)]
    assert stats.tau(counts) == pytest.approx(1 + alpha[0] + alpha[0] * alpha[1] + alpha[0] * alpha[1] * alpha[2])


def test_ar_has_tau_one_and_no_drafts() -> None:
    counts = Tally(steps=50, emitted=50, drafted=0, accepted=0)
    assert (stats.tau(counts), stats.alpha_by_depth(counts), stats.draft_efficiency(counts)) == (1.0, [], None)


def test_zeros_give_none() -> None:
    counts = Tally(0, 0, 0, 0)
    assert stats.tau(counts) is None and stats.draft_efficiency(counts) is None
    assert stats.paired_ratio([sample(0, 0.0, 0, 0.0)]) == stats.NO_INTERVAL
    assert stats.paired_ratio([sample(0, 1.0, 5)]) == stats.NO_INTERVAL
    assert stats.tok_s([]) == stats.NO_INTERVAL and stats.split_us([]) is None


def test_tokens_per_second_and_step_time() -> None:
    samples = [sample(0, 2.0, 100, steps=20), sample(0, 2.0, 300, steps=20), sample(1, 1.0, 100, steps=10)]
    assert stats.tok_s(samples).median == pytest.approx(100.0)
    assert stats.step_us(samples).median == pytest.approx(1e5)


def test_ratio_to_another_cell_pairs_repeats() -> None:
    baseline = [sample(repeat, 2.0 + repeat, 10) for repeat in range(6)]
    own = [sample(repeat, 1.0 + repeat / 2, 10) for repeat in range(1, 7)]
    assert stats.ratio_to(baseline, own) == stats.Interval(2.0, 2.0, 2.0, 5)


def test_split_is_weighed_by_steps() -> None:
    samples = [
        Sample(0, 0, 1.0, 10, 10, split_us=Split(1.0, 10.0, 0.0, 2.0)),
        Sample(0, 1, 1.0, 10, 30, split_us=Split(5.0, 10.0, 0.0, 2.0)),
        Sample(0, 2, 1.0, 10, 30),
    ]
    assert stats.split_us(samples) == Split(4.0, 10.0, 0.0, 2.0)


def test_kernel_times_and_ratios() -> None:
    samples = [
        KernelSample(repeat, 10.0 + repeat, 0, {"replay": 30.0 + 3 * repeat, "x": math.nan}) for repeat in range(5)
    ]
    samples.append(KernelSample(0, 10.0, 1, {"replay": 30.0}))
    assert stats.kernel_us(samples).median == 12.0
    assert stats.kernel_us(samples).n == 5
    assert stats.kernel_ratios(samples) == {"replay": stats.Interval(3.0, 3.0, 3.0, 5), "x": stats.NO_INTERVAL}
