"""Profiles written from a run's counts: which decode is meant, and what is too little to go by."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specla.bench.profile import read_profile
from specla.bench.record import Method, Record
from specla.errors import SpeclaError
from specla.report.profile import profile_of
from tests.factory import ar_record, decode_record


def counted(offered: Any, right: Any, **changes: Any) -> Record:
    """A decode by prompt lookup that counted so much by depth and rank."""
    record = decode_record(Method("tree", "factors", "ngram", "kary-b2-n7"), **changes)
    assert record.counts is not None
    return replace(record, counts=replace(record.counts, offered=offered, right=right))


RECORD = counted(((200, 150), (80, 40), (29, 29)), ((120, 15), (40, 6), (20, 2)), overrides=("topology=kary",))


def test_a_profile_comes_back(tmp_path: Path) -> None:
    found = profile_of([ar_record(), RECORD], [])
    assert found["alpha"] == [[0.6, 0.1], [0.5, 0.15]] and found["offered"] == [[200, 150], [80, 40]]
    assert (found["drafter"], found["topology"], found["workload"]) == ("ngram", "kary-b2-n7", "heldout")
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(found))
    assert read_profile(str(path)).alpha == ((0.6, 0.1), (0.5, 0.15))


def test_shares_of_other_steps_sum_to_one() -> None:
    found = profile_of([counted(((100, 10),), ((90, 4),))], [])
    assert sum(found["alpha"][0]) == pytest.approx(1.0, abs=1e-5)


def test_which_decode_is_meant() -> None:
    other = replace(RECORD, method=replace(RECORD.method, topology="chain-l4"), overrides=("topology=chain",))
    same = replace(RECORD, method=replace(RECORD.method, verify="hybrid"))
    assert profile_of([RECORD, same], [])["topology"] == "kary-b2-n7"
    assert profile_of([RECORD, other], ["topology=chain"])["topology"] == "chain-l4"
    with pytest.raises(
        SpeclaError, match="2 kinds of decodes; add words of one of them: topology=kary; topology=chain"
    ):
        profile_of([RECORD, other], [])
    with pytest.raises(SpeclaError, match="no decode by a real drafter with seed=3"):
        profile_of([RECORD], ["seed=3"])
    with pytest.raises(SpeclaError, match="an oracle's acceptance is none"):
        profile_of([ar_record(), replace(RECORD, synthetic=True)], [])
    with pytest.raises(SpeclaError, match="steps are too few; measure at least 30"):
        profile_of([counted(((20,),), ((9,),))], [])
