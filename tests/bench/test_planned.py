"""What a record says of its cell before anything is measured."""

import pytest

from specla.bench.plan import plan
from specla.bench.planned import planned_record


@pytest.mark.parametrize("words", ["ablate acceptance", "ablate length", "bench e2e model.weights=random"])
def test_ar_has_no_drafts_that_could_be_synthetic(words: str) -> None:
    command, group, *rest = words.split()
    cells = plan(f"{command} {group}", rest).cells
    made_up = {cell.method.verify == "ar": planned_record(cell, "", "cpu", "float32").synthetic for cell in cells}
    assert made_up == {True: False, False: True}
