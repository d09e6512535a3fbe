"""AR beside methods: who dies on the clock, and what AR's record keeps of earlier sessions."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from specla.bench.measure import Timed
from specla.bench.paired import DiedError, partners, time_block
from specla.bench.record import Record, Sample, Split
from specla.bench.settings import MeasureSettings
from tests.factory import ar_record, decode_record


class Paced:
    """In place of a method: every window takes as long."""

    def __init__(self, seconds: float, steps: int) -> None:
        self.timed = Timed(seconds, 2 * steps, steps, Split(0.0, 1.0, 1.0, 1.0))

    def time(self, item: Any) -> Timed:
        return self.timed


class Dying(Paced):
    """It does not survive."""

    def time(self, item: Any) -> Timed:
        raise ZeroDivisionError("no time")


ITEM: Any = SimpleNamespace(index=0, category="", prompts=("a",))


def test_ar_that_took_no_step_is_no_partner() -> None:
    ended, drafting, ar = Paced(0.0, 0), Paced(1.0, 3), Paced(2.0, 6)
    pairs: list[Any] = [(ended, drafting), (ar, drafting)]
    found = [time_block(base, [own], [ITEM], MeasureSettings(repeats=1), lambda: None) for base, own in pairs]
    assert found[0][0] == [] and [(s.seconds, s.ar_seconds, s.ar_tokens) for s in found[0][1]] == [(1.0, None, None)]
    assert [(s.seconds, s.ar_seconds, s.ar_tokens) for s in found[1][1]] == [(1.0, 2.0, 12)]


@pytest.mark.parametrize("who", [0, 2])
def test_who_died_is_told(who: int) -> None:
    everyone: list[Any] = [Paced(1.0, 3), Paced(1.0, 3), Paced(1.0, 3)]
    everyone[who] = Dying(1.0, 1)
    with pytest.raises(DiedError) as caught:
        time_block(everyone[0], everyone[1:], [ITEM], MeasureSettings(repeats=1), lambda: None)
    assert caught.value.who == who and isinstance(caught.value.error, ZeroDivisionError)


def beside(record: Record, ar: tuple[Sample, ...]) -> Record:
    """A cell that was timed beside these windows of AR."""
    pairs = zip(record.samples, ar, strict=True)
    return replace(record, samples=tuple(replace(s, ar_seconds=a.seconds, ar_tokens=a.tokens) for s, a in pairs))


def windows(seed: int) -> tuple[Any, ...]:
    return ar_record(noise=0.1, seed=seed).samples


def test_ar_keeps_the_windows_that_its_cells_were_timed_beside() -> None:
    """Three blocks of two methods; AR's record had the first alone when the session was killed."""
    cells = [beside(decode_record(noise=0.1, seed=seed), windows(seed // 2)) for seed in range(6)]
    found = partners(replace(ar_record(), samples=windows(0)), cells)
    assert len(found) == 15 and len({(s.repeat, s.item, s.seconds) for s in found}) == 15
    assert found[:5] == list(windows(0))
    for own, other in zip(found[5:], (*windows(1), *windows(2)), strict=True):
        assert (own.repeat, own.item, own.seconds, own.tokens) == (
            *(other.repeat, other.item),
            *(other.seconds, other.tokens),
        )
        # AR emits a token a step; where the time of it went, nobody noted.
        assert own.steps == own.tokens and own.split_us is None and own.prompts == other.prompts
    assert replace(ar_record(), samples=tuple(found)).decoding is not None
    assert len(partners(None, cells[:2])) == 5 and partners(None, []) == []


def test_a_batch_steps_all_of_its_rows() -> None:
    cell = beside(decode_record(batch=4), windows(0))
    assert {sample.steps for sample in partners(None, [cell])} == {32}
