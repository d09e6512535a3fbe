"""Words that no sweep holds: refused at once, in one line, whatever Hydra's grammar makes of them."""

import pytest

from specla.bench.plan import plan
from specla.errors import LONGEST, SpeclaError


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("topology.length=range(0,10000000)", "over 20000: sweep fewer"),
        ("topology.length=shuffle(range(1,1000000000000))", "over 20000: sweep fewer"),
        ("topology.length=range(1,5,0)", "a range has finite ends and a step"),
        ("sampling.temperature=range(0,inf)", "a range has finite ends and a step"),
        ("sampling.temperature=range(0,nan)", "a range has finite ends and a step"),
        (f"seed=range(0,{'9' * 400},0.5)", "over 20000: sweep fewer"),
        ("topology.length=range(5,1)", "holds no number"),
        ("topology.length=range(1,3),4", "a list of values holds no range"),
        ("topology.parents=" + "[" * 500 + "]" * 500, "brackets nested deeper"),
        ("drafter.alpha=" + "{a:" * 500 + "1" + "}" * 500, "brackets nested deeper"),
        ("seed=" + "9" * 5000, "more digits than Python reads"),
        ("a" * 5000 + "=1", "no key"),
        ("seed=1\n2", "seed=1\\n2: not in Hydra's grammar"),
        ("topology='\x1b[2J'", "\\x1b[2J"),
    ],
    ids=lambda text: text[:40].replace("\n", " "),
)
def test_refused_in_one_bounded_line(word: str, message: str) -> None:
    with pytest.raises(SpeclaError) as refusal:
        plan("bench e2e", [word])
    told = str(refusal.value)
    assert message in told and told.isprintable() and len(told) <= LONGEST


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("seed=${oc.env:NOPE}", "Environment variable 'NOPE' not found"),
        ("model.path=${oc.env:NOPE}", "Environment variable 'NOPE' not found"),
        ("seed=${seed}", "refers to itself"),
        ("workload.path=${workload.path}", "refers to itself"),
        ("seed=${nope}", "Interpolation key 'nope' not found"),
    ],
)
def test_what_stands_for_nothing_is_told_as_it_was_typed(word: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    with pytest.raises(SpeclaError) as error:
        plan("bench e2e", [word])
    assert str(error.value) == f"{word}: {told}"
