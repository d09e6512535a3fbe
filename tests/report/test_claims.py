"""The claims: the verdict rule, and which cells may speak to which claim."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specla.bench.identity import ModelInfo
from specla.bench.record import Method, Record, Status
from specla.bench.stats import Interval
from specla.report.claims import CLAIMS, Band, Judged, judge_claims, verdict
from specla.report.evidence import break_even_of, sweeps
from specla.report.load import Loaded, load_runs
from tests.factory import MINI, PUBLISHED, alpha_sweep, ar_record, decode_record, write_run

ALIGNED = Method("tree", "factors_deferred", "aligned", "chain-d3")
PAPER: dict[str, Any] = {
    **{"device": "NVIDIA H100", "model": "gdn-1.3b", "workload": "gsm8k", "noise": 0.01},
    "model_info": PUBLISHED,
}


def loaded(folder: Path, records: Sequence[Record]) -> Loaded:
    return load_runs([write_run(folder, records)])


def judged(folder: Path, records: Sequence[Record]) -> dict[str, Judged]:
    return {f"{one.claim.id} {one.claim.part}".strip(): one for one in judge_claims(loaded(folder, records))}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.6, 1.9, "reproduced"),
        (2.0, 2.2, "reproduced"),
        (1.0, 1.5, "reproduced"),
        (2.1, 2.2, "exceeded"),
        (1, 1.4, "short"),
    ],
)
def test_verdict_against_a_band(low: float, high: float, expected: str) -> None:
    assert verdict(Band(1.5, 2.0), Interval(None, low, high, 5)) == expected


def test_where_lower_is_better_the_verdict_turns_round() -> None:
    band = Band(0.7, 0.8, lower_is_better=True)
    assert verdict(band, Interval(0.5, 0.4, 0.6, 5)) == "exceeded"
    assert verdict(band, Interval(0.75, 0.6, 0.9, 5)) == "reproduced"
    assert verdict(band, Interval(0.9, 0.85, 0.95, 5)) == "short"
    assert verdict(band, Interval(None, 0.95, None, 5)) == "short"
    assert verdict(band, Interval(None, 0.0, 0.3, 5)) == "exceeded"


def test_faster_needs_the_whole_interval_above() -> None:
    assert verdict(Band(1.0, None), Interval(1.1, 1.01, 1.2, 5)) == "reproduced"
    assert verdict(Band(1.0, None), Interval(1.1, 0.99, 1.2, 5)) == "short"


def test_every_claim_of_the_paper_has_its_row(tmp_path: Path) -> None:
    assert [claim.id for claim in CLAIMS] == ["E2E"] * 3 + ["VERIFY", "RECOVER", "DEFER", "ACCEPT", "ACCEPT", "PERFECT"]
    found = judged(tmp_path, [ar_record()])
    assert {one.verdict for one in found.values()} == {"not_measured"}
    names = {"id", "claimed", "measured", "baseline", "device", "differs", "verdict"}
    assert all(names <= set(one.to_json()) for one in found.values())


@pytest.mark.parametrize(("speedup", "expected"), [(1.70, "reproduced"), (2.2, "exceeded"), (1.3, "short")])
def test_e2e_is_judged_by_its_benchmark(tmp_path: Path, speedup: float, expected: str) -> None:
    found = judged(tmp_path, [ar_record(**PAPER), decode_record(ALIGNED, speedup, **PAPER)])
    one = found["E2E GSM8K"]
    assert (one.verdict, one.differs, one.device) == (expected, (), "NVIDIA H100")
    assert one.measured is not None and one.measured.low is not None and one.measured.low <= speedup * 1.01
    assert found["E2E mix"].verdict == found["E2E HumanEval"].verdict == "not_measured"


def test_e2e_says_what_differs_and_uses_prompts_of_the_kind(tmp_path: Path) -> None:
    mixed = decode_record(ALIGNED, 1.42, categories=("arithmetic", "code", "prose"), noise=0.001, device="some CPU")
    found = judged(tmp_path, [mixed])
    assert found["E2E GSM8K"].differs == ("device some CPU", "model gdn-mini", "prompts heldout, arithmetic")
    assert found["E2E HumanEval"].differs[-1] == "prompts heldout, code"
    assert found["E2E HumanEval"].verdict == "not_measured", "not by another model"
    assert found["E2E HumanEval"].barred == "not the published model"
    assert found["E2E mix"].differs[-1] == "prompts heldout"
    maths = found["E2E GSM8K"].measured
    assert maths is not None and maths.median == pytest.approx(1.42 * 1.02, rel=0.01)


def test_e2e_takes_what_differs_least_before_what_is_fastest(tmp_path: Path) -> None:
    ngram = decode_record(Method("tree", "factors", "ngram", "chain-d3"), 1.9, **PAPER)
    slow = decode_record(Method("chain", "factors", "aligned", "chain-d3"), 1.5, **PAPER)
    foreign = decode_record(Method("sequential_replay", "snapshot", "aligned", "chain-d3"), 3.0, **PAPER)
    found = judged(tmp_path, [ngram, decode_record(ALIGNED, 1.7, **PAPER), slow, foreign])
    assert found["E2E GSM8K"].method.startswith("tree + factors_deferred, aligned")
    assert "fastest of 2" in found["E2E GSM8K"].method
    assert found["E2E GSM8K"].verdict == "reproduced"


@pytest.mark.parametrize("flagged", [True, False])
def test_synthetic_acceptance_never_earns_a_verdict_for_e2e(tmp_path: Path, flagged: bool) -> None:
    oracle = Method("tree", "factors_deferred", "oracle", "chain-d3")
    found = judged(tmp_path, [decode_record(oracle, 1.7, synthetic=flagged, alpha_asked=0.8, **PAPER)])
    one = found["E2E GSM8K"]
    assert one.verdict == "not_measured" and one.measured is None and "synthetic acceptance" in one.differs
    weights = judged(tmp_path / "b", [decode_record(ALIGNED, 1.7, synthetic=True, **PAPER)])
    assert weights["E2E GSM8K"].verdict == "not_measured"


@pytest.mark.parametrize(
    ("info", "words", "why", "differs"),
    [
        (MINI, ("model.path=asset:gdn-mini",), "not the published model", ("model gdn-mini (9.5 M)",)),
        (replace(MINI, name="gdn-1.3b"), (), "not the published model", ("model gdn-1.3b (9.5 M)",)),
        (replace(PUBLISHED, weights="random seed 0"), (), "random weights", ("random weights",)),
        (replace(PUBLISHED, layers=23), (), "not the published model", ("model gdn-1.3b (1.5 B)",)),
        (None, (), "the record does not say which weights", ()),
        (None, ("model.path=/x",), "not the published model", ("model gdn-1.3b at /x",)),
    ],
)
def test_e2e_is_earned_by_the_published_model_alone_whatever_its_option_is_called(
    tmp_path: Path, info: ModelInfo | None, words: tuple[str, ...], why: str, differs: tuple[str, ...]
) -> None:
    facts = {**PAPER, "model_info": info, "overrides": words}
    one = judged(tmp_path, [ar_record(**facts), decode_record(ALIGNED, 1.7, **facts)])["E2E GSM8K"]
    assert (one.verdict, one.barred, one.differs) == ("not_measured", why, differs)
    assert one.measured is not None and one.measured.median == pytest.approx(1.7, rel=0.02), "shown all the same"


def test_the_published_model_speaks_before_a_faster_one(tmp_path: Path) -> None:
    facts = {**PAPER, "model_info": MINI, "overrides": ("model.path=asset:gdn-mini",)}
    found = judged(tmp_path, [decode_record(ALIGNED, 1.7, **PAPER), decode_record(ALIGNED, 3.0, **facts, seed=2)])
    one = found["E2E GSM8K"]
    assert one.verdict == "reproduced" and one.method.endswith(", gdn-1.3b (1.5 B)")


def test_failed_and_inconclusive_cells_and_few_repeats_earn_no_verdict(tmp_path: Path) -> None:
    for place, status in enumerate((Status.FAILED, Status.INCONCLUSIVE)):
        record = decode_record(ALIGNED, 1.7, status=status, reason="throttled", **PAPER)
        assert judged(tmp_path / str(place), [ar_record(), record])["E2E GSM8K"].verdict == "not_measured"
    few = judged(tmp_path / "few", [decode_record(ALIGNED, 1.7, repeats=4, **PAPER)])["E2E GSM8K"]
    assert few.verdict == "not_measured" and few.differs == ("4 repeats give no interval",)


def sweep_of(speedups: dict[float, float], **changes: Any) -> list[Record]:
    method = Method("tree", "factors", "oracle", "chain-d1")
    return [
        decode_record(method, speed, (alpha,), alpha_asked=alpha, group="acceptance", synthetic=True, **changes)
        for alpha, speed in speedups.items()
    ]


@pytest.mark.parametrize(
    ("speedups", "median", "low", "high"),
    [
        ({0.4: 0.8, 0.6: 0.9, 0.8: 1.1}, 0.7, 0.7, 0.7),
        ({0.8: 1.1, 0.4: 0.8, 0.6: 0.9}, 0.7, 0.7, 0.7),
        ({0.4: 1.1, 0.6: 1.2, 0.8: 1.3}, None, 0.0, 0.4),
        ({0.4: 0.7, 0.6: 0.8, 0.8: 0.9}, None, 0.8, None),
        ({0.4: 1.1, 0.6: 0.9, 0.8: 1.1}, 0.7, 0.7, 0.7),
    ],
)
def test_break_even_is_interpolated_or_bounded(
    tmp_path: Path, speedups: dict[float, float], median: float | None, low: float, high: float | None
) -> None:
    data = loaded(tmp_path, sweep_of(speedups))
    (sweep,) = sweeps(data)
    found = break_even_of(data, sweep, "alpha_asked").interval
    assert (found.median, found.low, found.high) == pytest.approx((median, low, high), nan_ok=True)
    assert found.n == 5


def test_accept_gives_alpha_and_draft_efficiency_and_says_synthetic(tmp_path: Path) -> None:
    records = sweep_of({0.4: 0.8, 0.6: 0.9, 0.8: 1.1}, drafter_cost="aligned", noise=1e-4)
    found = judged(tmp_path, records)
    for part in ("alpha", "draft_efficiency"):
        one = found[f"ACCEPT {part}"]
        assert one.verdict == "reproduced" and "synthetic acceptance" in one.differs
        assert one.measured is not None and one.measured.median == pytest.approx(0.7, abs=0.01)
    free = judged(tmp_path / "free", sweep_of({0.4: 0.8, 0.6: 0.9, 0.8: 1.1}))
    assert "drafting not paid for" in free["ACCEPT alpha"].differs


def test_accept_is_interpolated_and_noise_earns_it_no_verdict(tmp_path: Path) -> None:
    speeds = {0.3: 0.8, 0.6: 0.95, 0.9: 1.1}
    sharp = judged(tmp_path / "a", sweep_of(speeds, noise=1e-4))["ACCEPT alpha"]
    assert sharp.verdict == "reproduced" and sharp.method.endswith("; interpolated between the points swept")
    noisy = judged(tmp_path / "b", sweep_of(speeds, noise=0.15))["ACCEPT alpha"]
    assert (noisy.verdict, noisy.measured, noisy.barred) == ("not_measured", None, "too noisy")
    assert noisy.differs[-1].endswith("its high end over 1.14x its low)")


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ({0.5: 1.1, 0.6: 1.2, 0.9: 1.3}, "exceeded"),
        ({0.75: 1.1, 0.8: 1.2, 0.9: 1.3}, "not_measured"),
        ({0.3: 0.7, 0.5: 0.8, 0.75: 0.9}, "not_measured"),
        ({0.3: 0.7, 0.5: 0.8, 0.9: 0.9}, "short"),
    ],
)
def test_a_break_even_beyond_the_sweep_is_judged_where_the_edge_decides(
    tmp_path: Path, speedups: dict[float, float], expected: str
) -> None:
    one = judged(tmp_path, sweep_of(speedups))["ACCEPT alpha"]
    assert one.verdict == expected
    assert "interpolated" not in one.method, "an edge is a bound, not a crossing"
    assert one.barred == ("the sweep ends at 0.75" if expected == "not_measured" else "")


def test_break_even_of_the_factory_is_recovered(tmp_path: Path) -> None:
    data = loaded(tmp_path, alpha_sweep(noise=0.005))
    tree = next(s for s in sweeps(data) if s.iloc[0].verify == "tree" and s.iloc[0].topology == "chain-d4")
    found = break_even_of(data, tree, "alpha_asked").interval.median
    # 1 + a + a^2 + a^3 + a^4 = 1.55 at a = 0.366
    assert found == pytest.approx(0.366, abs=0.02)


def perfect(speedup: float, **changes: Any) -> Record:
    method = Method("tree", "factors", "oracle", "chain-d3")
    return decode_record(method, speedup, (1.0,) * 3, alpha_asked=1.0, synthetic=True, noise=0.005, **changes)


def test_perfect_is_over_the_best_real_drafter(tmp_path: Path) -> None:
    real = [
        decode_record(Method(v, "factors", "aligned", "chain-d3"), s, noise=0.005)
        for v, s in (("chain", 1.2), ("tree", 1.5))
    ]
    paid = judged(tmp_path / "a", [*real, perfect(2.1, drafter_cost="aligned")])["PERFECT"]
    assert paid.verdict == "reproduced" and "synthetic acceptance" in paid.differs
    assert paid.measured is not None and paid.measured.median == pytest.approx(1.4, rel=0.02)
    told = judged(tmp_path / "b", [*real, perfect(2.1, overrides=("drafter.cost=aligned",))])["PERFECT"]
    assert told.verdict == "reproduced"
    free = judged(tmp_path / "c", [*real, perfect(2.1)])["PERFECT"]
    assert free.verdict == "not_measured" and "drafting not paid for" in free.differs
    slow = judged(tmp_path / "d", [*real, perfect(1.3, drafter_cost="aligned")])["PERFECT"]
    assert slow.verdict == "short"
    elsewhere = judged(tmp_path / "e", [*real, perfect(2.1, drafter_cost="aligned", workload="gsm8k")])["PERFECT"]
    assert elsewhere.verdict == "not_measured"
