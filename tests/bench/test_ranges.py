"""Ranges of numbers: as they are typed, without their stop, and never without an end."""

import pytest

from specla.bench.plan import plan
from specla.errors import SpeclaError


@pytest.mark.parametrize(
    ("words", "alphas"),
    [
        ("range(0.5,0.9,0.1)", ["0.5", "0.6", "0.7", "0.8"]),
        ("range(0.1,0.8,0.1)", ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7"]),
        ("range(0.9,0.5,-0.1)", ["0.9", "0.8", "0.7", "0.6"]),
        ("range(0,1,0.25)", ["0", "0.25", "0.5", "0.75"]),
        ("0.7,.70,0.70", ["0.7"]),
    ],
)
def test_a_number_is_shown_as_it_is_typed(words: str, alphas: list[str]) -> None:
    cells = plan("bench e2e", ["drafter=oracle", f"drafter.alpha={words}"]).cells[1:]
    assert [cell.drafter_label for cell in cells] == [f"oracle {alpha}" for alpha in alphas]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("drafter.alpha=range(0.5,0.9,0)", "a range has finite ends and a step other than 0"),
        ("drafter.alpha=range(0,inf,0.5)", "a range has finite ends"),
        ("drafter.alpha=range(nan,1,0.5)", "a range has finite ends"),
        ("drafter.alpha=range(0.9,0.5,0.1)", "holds no number, since its stop is no further on than its start"),
        ("drafter.alpha=range(0.1,0.9,1e-9)", "800000000 combinations, over 20000"),
        ("seed=range(1,1000000000000000000)", "999999999999999999 combinations, over 20000"),
    ],
)
def test_a_range_that_is_none_is_refused(word: str, told: str) -> None:
    with pytest.raises(SpeclaError) as caught:
        plan("bench e2e", ["drafter=oracle", word])
    assert str(caught.value).startswith(f"{word}: {told}")
