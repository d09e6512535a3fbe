"""The paper's claims as data, and what the measured cells say about each (paper.md; design.md, section 6).

A verdict compares an interval with the claim's band: it meets it (reproduced), lies above it (exceeded) or below it
(short). For a claim where lower is better, 'above' means better, that is, below.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specla.bench.stats import Interval
from specla.report.evidence import ACCEPT_BAND, Evidence, break_even, end_to_end, perfect_drafter
from specla.report.load import Loaded
from specla.report.operations import DEFER, OPERATIONS, RECOVER, VERIFY, Operation, operation_evidence

Verdict = Literal["reproduced", "exceeded", "short", "not_measured"]


@dataclass(frozen=True)
class Band:
    """What the paper gives: a range, or one figure twice. `high` None is open."""

    low: float
    high: float | None
    lower_is_better: bool = False


@dataclass(frozen=True)
class Claim:
    """One row of the claims table; a claim judged in parts has one row for each."""

    id: str
    claimed: str
    baseline: str
    band: Band
    part: str = ""
    """GSM8K, mix or HumanEval; alpha or draft_efficiency."""


@dataclass(frozen=True)
class Judged:
    """A claim beside what was measured."""

    claim: Claim
    verdict: Verdict
    measured: Interval | None = None
    device: str = ""
    differs: tuple[str, ...] = ()
    """What is not as in the claim."""
    method: str = ""
    """The method it was judged by, and out of how many."""
    cells: int = 0
    """How many cells `measured` ranges over; 0 where it is the interval of one figure."""
    barred: str = ""
    """Why no verdict was given where there was something to judge, in a few words; `differs` has them all."""

    def to_json(self) -> dict[str, Any]:
        """The claim as the JSON document gives it."""
        measured = self.measured
        return {
            "id": self.claim.id,
            "part": self.claim.part,
            "claimed": self.claim.claimed,
            "band": {"low": self.claim.band.low, "high": self.claim.band.high},
            "measured": {"low": measured.low, "high": measured.high, "median": measured.median} if measured else None,
            "baseline": self.claim.baseline,
            "cells": self.cells,
            "device": self.device,
            "method": self.method,
            "differs": list(self.differs),
            "verdict": self.verdict,
        }


_PAYS = Band(*ACCEPT_BAND, lower_is_better=True)
CLAIMS = (
    Claim("E2E", "1.70x decode speedup on GSM8K", "autoregressive decoding", Band(1.70, 1.70), "GSM8K"),
    Claim("E2E", "1.42x decode speedup on a mix", "autoregressive decoding", Band(1.42, 1.42), "mix"),
    Claim("E2E", "1.06x decode speedup on HumanEval", "autoregressive decoding", Band(1.06, 1.06), "HumanEval"),
    Claim("VERIFY", "hybrid tree verification 1.80x to 7.11x", "sequential replay", Band(*VERIFY.band)),
    Claim("RECOVER", "commit from compact factors 2.74x to 4.28x", "token replay", Band(*RECOVER.band)),
    Claim("DEFER", "fused deferred commit, a further 1.15x to 1.44x", "committing at once", Band(*DEFER.band)),
    Claim("ACCEPT", "pays from 70 to 80 % of drafts accepted", "autoregressive decoding", _PAYS, "alpha"),
    Claim("ACCEPT", "pays from 70 to 80 % of drafts accepted", "autoregressive decoding", _PAYS, "draft_efficiency"),
    Claim("PERFECT", "a perfect drafter is faster still", "the best real drafter", Band(1.0, None)),
)
_Finder = Callable[[Loaded, str], Evidence | None]


def _of_operation(operation: Operation) -> _Finder:
    return lambda loaded, _part: operation_evidence(loaded, operation)


_FINDERS: Mapping[str, _Finder] = {
    "E2E": end_to_end,
    **{name: _of_operation(operation) for name, operation in OPERATIONS.items()},
    "ACCEPT": break_even,
    "PERFECT": perfect_drafter,
}
NOTHING = ("no cell measures it",)


def judge_claims(loaded: Loaded) -> list[Judged]:
    """Every claim of the paper, in the table's order, beside the evidence at hand."""
    return [judge(claim, loaded) for claim in CLAIMS]


def judge(claim: Claim, loaded: Loaded) -> Judged:
    """One claim. No verdict without five repeats, or for E2E without true acceptance on the published model."""
    found = _FINDERS[claim.id](loaded, claim.part)
    if found is None:
        return Judged(claim, "not_measured", differs=NOTHING)
    said: Verdict = "not_measured"
    measured, differs = found.measured, found.differs
    if found.barred:
        if found.is_shown:
            return Judged(claim, said, measured, found.device, differs, found.method, 0, found.barred)
        differs = (*differs, found.barred)
        return Judged(claim, said, None, found.device, differs, found.method, 0, _briefly(found.barred))
    if measured.low is None and measured.high is None:
        few = f"{measured.n} repeats give no interval"
        return Judged(claim, said, measured, found.device, (*differs, few), found.method, found.cells, few)
    said = verdict(claim.band, measured)
    return Judged(claim, said, measured, found.device, differs, found.method, found.cells)


def _briefly(barred: str) -> str:
    """A reason without what explains it."""
    return barred.partition(" (")[0].partition(",")[0]


def verdict(band: Band, measured: Interval) -> Verdict:
    """Where the interval lies to the band; a missing end is open. An open band ('faster') wants all of it above."""
    low = measured.low if measured.low is not None else float("-inf")
    high = measured.high if measured.high is not None else float("inf")
    if band.high is None:
        return "reproduced" if low > band.low else "short"
    if low <= band.high and high >= band.low:
        return "reproduced"
    better = high < band.low if band.lower_is_better else low > band.high
    return "exceeded" if better else "short"
