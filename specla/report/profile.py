"""An acceptance profile from a run's counts; `specla.bench.profile` tells what it holds."""

from collections.abc import Iterable, Sequence
from typing import Any

from specla.bench.model_labels import identity_of, model_labels
from specla.bench.profile import SCHEMA
from specla.bench.record import Record
from specla.bench.stats import alpha_by_rank
from specla.bench.workload_labels import workload_labels, workload_of
from specla.errors import SpeclaError

LEAST_OFFERED = 30
"""A depth that fewer steps reached is left out: an oracle would be as right as chance had it there, and deeper too."""


def profile_of(records: Iterable[Record], words: Sequence[str]) -> dict[str, Any]:
    """The profile that a run's decodes give, as JSON data.

    Args:
        records: of the run.
        words: overrides that the decode must have, where a run has several drafters, trees or workloads.

    Raises:
        SpeclaError: no decode of a real drafter, more than one kind of them, or too few steps.
    """
    found: dict[tuple[object, ...], Record] = {}
    for record in records:
        counted = record.decoding is not None and record.counts is not None and record.counts.offered
        if counted and not record.synthetic and set(words) <= set(record.overrides):
            # Strategies that verify the same drafts of the same texts accept the same.
            key = (record.method.drafter, record.method.topology, workload_of(record), record.batch, record.sampling)
            found.setdefault((*key, identity_of(record), record.dtype), record)
    if not found:
        asked = f" with {' '.join(words)}" if words else ""
        raise SpeclaError(f"profile: this run has no decode by a real drafter{asked}; an oracle's acceptance is none")
    if len(found) > 1:
        kinds = "; ".join(" ".join(record.overrides) for record in list(found.values())[:4])
        raise SpeclaError(f"profile: this run has {len(found)} kinds of decodes; add words of one of them: {kinds}")
    return _profile(next(iter(found.values())))


def _profile(record: Record) -> dict[str, Any]:
    assert record.counts is not None
    alpha, offered = [], []
    for shares, counts in zip(alpha_by_rank(record.counts), record.counts.offered, strict=True):
        if not counts or counts[0] < LEAST_OFFERED:
            break
        line = [share or 0.0 for share in shares]
        # Ranks that only some parents had are shares of other steps, and may sum to a little over 1 with the rest.
        alpha.append([round(share / max(1.0, sum(line)), 6) for share in line])
        offered.append(list(counts))
    if not alpha:
        steps = record.counts.steps
        raise SpeclaError(
            f"profile: {steps} steps are too few; measure at least {LEAST_OFFERED}: raise workload.prompts"
        )
    return {
        "schema": SCHEMA,
        "alpha": alpha,
        "offered": offered,
        "model": model_labels([record])[0],
        "drafter": record.method.drafter,
        "topology": record.method.topology,
        "workload": workload_labels([workload_of(record)])[0],
        "temperature": record.sampling.temperature,
    }
