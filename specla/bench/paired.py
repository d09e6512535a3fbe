"""AR timed beside a few methods, in paired and interleaved repeats, and what AR's own record keeps of that."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from specla.bench.clock import quiet
from specla.bench.measure import Method, Timed
from specla.bench.record import Record, Sample
from specla.bench.settings import MeasureSettings
from specla.bench.subject import Item


class DiedError(Exception):
    """A method could not be timed.

    Attributes:
        who: its place, AR being 0.
        error: what it died of.
    """

    def __init__(self, who: int, error: Exception) -> None:
        super().__init__(str(error))
        self.who, self.error = who, error


def time_block(
    baseline: Method,
    methods: Sequence[Method],
    items: Sequence[Item],
    measure: MeasureSettings,
    tick: Callable[[], None],
) -> list[list[Sample]]:
    """Time AR and a few methods over all items, interleaved: every repeat runs all of them, in another order each time.

    Args:
        baseline: AR, whose samples come first in the result.
        methods: to be paired with it.
        measure: repeats, and warm-up repeats that are not kept; the gate's decode came before those.
        tick: called after every timed window.

    Returns:
        The samples of AR, then of each method in order.

    Raises:
        DiedError: one of them could not be timed; the others can be, without it.
    """
    everyone = [baseline, *methods]
    samples: list[list[Sample]] = [[] for _ in everyone]
    with quiet():
        for repeat in range(-measure.warmup, measure.repeats):
            for item in items:
                timed: dict[int, tuple[int, Timed]] = {}
                for order in range(len(everyone)):
                    who = (order + repeat + item.index) % len(everyone)
                    try:
                        timed[who] = (order, everyone[who].time(item))
                    except Exception as error:
                        raise DiedError(who, error) from error
                    tick()
                ar = timed[0][1]
                for who, (order, one) in timed.items():
                    if one.steps and repeat >= 0:
                        samples[who].append(_sample(repeat, item, order, one, ar))
    return samples


def _sample(repeat: int, item: Item, order: int, timed: Timed, ar: Timed) -> Sample:
    return Sample(
        repeat=repeat,
        item=item.index,
        seconds=timed.seconds,
        tokens=timed.tokens,
        steps=timed.steps,
        category=item.category,
        prompts=item.prompts,
        order=order,
        ar_seconds=ar.seconds if ar.steps else None,
        ar_tokens=ar.tokens if ar.steps else None,
        split_us=timed.split,
    )


def partners(ar: Record | None, kept: Iterable[Record]) -> list[Sample]:
    """AR's samples of earlier sessions: those of its record, and those that the other cells were timed beside.

    A session that was killed has told of the latter in its cells alone. There AR's time of every window is known, and
    its steps, each a token of every row; not where that time went.

    Args:
        ar: AR's record, where it was finished.
        kept: the cells that are not measured again.
    """
    found = {_window(sample): sample for sample in _decodes(ar)} if ar is not None else {}
    for record in kept:
        for sample in _decodes(record):
            seconds, tokens = sample.ar_seconds, sample.ar_tokens
            if seconds is not None and tokens is not None:
                own = replace(
                    sample, seconds=seconds, tokens=tokens, steps=tokens // record.batch, order=0, split_us=None
                )
                found.setdefault(_window(own), own)
    return list(found.values())


def _decodes(record: Record) -> list[Sample]:
    return [sample for sample in record.samples if isinstance(sample, Sample)]


def _window(sample: Sample) -> tuple[int, int, float]:
    """What tells one of AR's windows from another: no two take the same nanoseconds."""
    return sample.repeat, sample.item, sample.seconds
