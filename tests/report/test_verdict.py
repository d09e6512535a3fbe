"""The rule of comparison, on figures whose truth is known: how often it cries wolf, and how small a wolf it sees.

The noise is modelled on what a shared machine with two cores showed. Two sides take turns of a tenth of a second, in
rounds of new processes, each with a few passes of two windows. What others do comes as a drift that both share and in
bursts that hit one window of a pair, up to three times as slow; a new process is a percent faster or slower.
"""

from collections.abc import Callable

import numpy as np
import pytest

from specla.bench.sidebyside import PASSES, ROUNDS
from specla.report.verdict import (
    COARSEST,
    LEAST_APART,
    LEAST_IN_TURNS,
    Change,
    Verdict,
    judge,
    paired_change,
    threshold,
    unpaired_change,
)

CELLS = 25
RUNS = 20
WINDOWS = 2 * PASSES
QUIET, BUSY, CROWDED = (0.02, 0.05), (0.04, 0.12), (0.25, 0.5)
"""(relative spread of a window, share of windows that a burst hits); busy is five processes on the two cores."""


def in_turns(random: np.random.Generator, noise: tuple[float, float], slower: float = 1.0) -> Change:
    """One cell, measured in turns."""
    spread, bursts = noise
    drift = np.cumsum(random.normal(0, 0.03, ROUNDS * WINDOWS)).reshape(ROUNDS, WINDOWS)
    sides = []
    for _ in range(2):
        process = random.normal(0, 0.01, (ROUNDS, 1))
        burst = (random.random((ROUNDS, WINDOWS)) < bursts) * random.uniform(0, np.log(3), (ROUNDS, WINDOWS))
        sides.append(np.exp(drift + process + random.normal(0, spread, (ROUNDS, WINDOWS)) + burst))
    base, new = sides
    return paired_change((slower * new / base).tolist(), CELLS)


def steady(ratios: list[float]) -> list[list[float]]:
    """Rounds whose windows agree."""
    return [[ratio] * WINDOWS for ratio in ratios]


def apart(random: np.random.Generator, noise: tuple[float, float], slower: float = 1.0) -> Change:
    """One cell's time over AR's, five repeats in each of two runs."""
    spread, bursts = noise
    runs = []
    for _ in range(2):
        run = random.normal(0, 0.015)
        burst = (random.random(5) < bursts) * random.uniform(0, np.log(1.5), 5)
        runs.append(np.exp(run + random.normal(0, spread, 5) + burst))
    base, new = runs
    return unpaired_change([float(x) for x in base], [float(x) for x in slower * new], CELLS)


MEASURE = {"in turns": (in_turns, LEAST_IN_TURNS), "apart": (apart, LEAST_APART)}


@pytest.mark.slow
@pytest.mark.parametrize("noise", [QUIET, BUSY, CROWDED], ids=["quiet", "busy", "crowded"])
@pytest.mark.parametrize("way", MEASURE)
def test_the_same_code_twenty_times_gives_no_regression(way: str, noise: tuple[float, float]) -> None:
    measure, least = MEASURE[way]
    random = np.random.default_rng(1)
    verdicts = [judge(measure(random, noise), least)[0] for _ in range(RUNS * CELLS)]
    assert verdicts.count(Verdict.SLOWER) == verdicts.count(Verdict.FASTER) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("noise", [QUIET, BUSY, CROWDED], ids=["quiet", "busy", "crowded"])
@pytest.mark.parametrize("way", MEASURE)
def test_two_hundred_runs_of_the_same_code_give_few_regressions(way: str, noise: tuple[float, float]) -> None:
    measure, least = MEASURE[way]
    random = np.random.default_rng(2)
    wrong = sum(
        any(judge(measure(random, noise), least)[0] is Verdict.SLOWER for _ in range(CELLS)) for _ in range(200)
    )
    assert wrong <= 1


@pytest.mark.parametrize("noise", [QUIET, BUSY], ids=["quiet", "busy"])
def test_a_fifth_slower_is_seen_in_turns(noise: tuple[float, float]) -> None:
    random = np.random.default_rng(3)
    verdicts = [judge(in_turns(random, noise, 1.2), LEAST_IN_TURNS)[0] for _ in range(60)]
    assert verdicts.count(Verdict.SLOWER) >= (60 if noise is QUIET else 54)
    assert Verdict.SAME not in verdicts and Verdict.FASTER not in verdicts


def test_a_fifth_slower_is_seen_apart_on_a_quiet_machine() -> None:
    random = np.random.default_rng(4)
    verdicts = [judge(apart(random, (0.01, 0.0), 1.2), LEAST_APART)[0] for _ in range(60)]
    assert verdicts.count(Verdict.SLOWER) >= 45
    assert Verdict.SAME not in verdicts and Verdict.FASTER not in verdicts


def test_a_crowded_machine_says_that_it_cannot_tell() -> None:
    random = np.random.default_rng(5)
    verdicts = [judge(apart(random, CROWDED, 1.2), LEAST_APART)[0] for _ in range(30)]
    assert verdicts.count(Verdict.INCONCLUSIVE) >= 28


@pytest.mark.parametrize("measure", [in_turns, apart])
def test_the_same_code_is_the_same_on_a_quiet_machine(
    measure: Callable[[np.random.Generator, tuple[float, float]], Change],
) -> None:
    random = np.random.default_rng(6)
    verdicts = [judge(measure(random, (0.01, 0.0)), LEAST_APART)[0] for _ in range(60)]
    assert verdicts.count(Verdict.SAME) >= 58


def test_a_steady_change_is_told_with_its_size() -> None:
    change = paired_change(steady([1.25] * ROUNDS), CELLS)
    assert change.ratio.median == pytest.approx(1.25) and change.low == pytest.approx(1.25) and change.noise == 0.0
    assert judge(change, 0.05) == (Verdict.SLOWER, "")
    assert judge(paired_change(steady([0.8] * ROUNDS), CELLS), 0.05) == (Verdict.FASTER, "")
    assert judge(paired_change(steady([1.04] * ROUNDS), CELLS), 0.05) == (Verdict.SAME, "")


def test_faster_and_slower_mirror_each_other() -> None:
    ratios = [1.19, 1.22, 1.2, 1.25, 1.18, 1.21, 1.3]
    there, back = paired_change(steady(ratios), CELLS), paired_change(steady([1 / ratio for ratio in ratios]), CELLS)
    assert there.ratio.median is not None and back.ratio.median is not None
    assert there.ratio.median == pytest.approx(1 / back.ratio.median)
    assert (judge(there, 0.05)[0], judge(back, 0.05)[0]) == (Verdict.SLOWER, Verdict.FASTER)


def test_an_interval_for_all_cells_holds_that_of_one() -> None:
    ratios = np.random.default_rng(7).lognormal(0, 0.05, (ROUNDS, WINDOWS)).tolist()
    narrow, wide = paired_change(ratios, 1), paired_change(ratios, 40)
    assert narrow.low is not None and narrow.high is not None and wide.low is not None and wide.high is not None
    assert wide.low < narrow.low < narrow.high < wide.high
    assert narrow.ratio.low == pytest.approx(narrow.low) and narrow.ratio == wide.ratio


def test_noise_raises_the_threshold_and_one_outlier_does_not() -> None:
    scattered = paired_change(steady([0.8, 1.25, 0.9, 1.1, 1.0, 1.2, 0.85]), CELLS)
    assert threshold(scattered, 0.05) > COARSEST
    assert judge(scattered, 0.05)[0] is Verdict.INCONCLUSIVE and "scatter" in judge(scattered, 0.05)[1]
    assert threshold(paired_change(steady([1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 3.0]), CELLS), 0.05) == 0.05


def test_few_repeats_decide_nothing() -> None:
    verdict, reason = judge(paired_change(steady([1.5] * 4), CELLS), 0.05)
    assert (verdict, reason) == (Verdict.INCONCLUSIVE, "4 repeats where an interval takes 5")
    assert judge(unpaired_change([], [1.0] * 5, CELLS), 0.05)[1].startswith("0 repeats")
