"""What users type, read and refused before anything is composed.

A word is `key=value` in Hydra's grammar, its value possibly a sweep: `a,b`, `range(1,4)`, `glob(gdn-*)`.
"""

import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from hydra.core.override_parser.types import RangeSweep, ValueType
from omegaconf.errors import OmegaConfBaseException

from specla.bench.compose import EXPERIMENT, Composer
from specla.bench.quoting import printable
from specla.bench.settings import GROUPS, dials
from specla.bench.validate import nearest
from specla.errors import SpeclaError

MAX_COMBINATIONS = 20_000
"""More than anyone measures; a sweep that exceeds it is a slip."""


@dataclass(frozen=True)
class Word:
    """One override, with the values that it takes in turn."""

    text: str
    key: str
    values: tuple[str, ...]

    @property
    def is_group(self) -> bool:
        """Whether it chooses an option of a config group."""
        return self.key in GROUPS or self.key == EXPERIMENT

    @property
    def is_sweep(self) -> bool:
        """Whether it takes more than one value."""
        return len(self.values) > 1


def read_words(texts: Iterable[str], composer: Composer) -> dict[str, Word]:
    """The words by key, in order. Raises SpeclaError for the first that is wrong, and says what to type instead."""
    words: dict[str, Word] = {}
    for text in texts:
        if text != text.encode(errors="replace").decode():
            raise SpeclaError(f"{printable(text)}: not UTF-8; rename what it names")
        word = _read(text.lstrip(), composer)
        if word.key in words:
            raise SpeclaError(f"{text}: '{word.key}' is given twice; keep one, or sweep as in {word.key}=a,b")
        words[word.key] = word
    return words


def combinations(words: Mapping[str, Word]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Every combination of the words' values as (group choices, values), the last word varying fastest."""
    count = math.prod(len(word.values) for word in words.values())
    if count > MAX_COMBINATIONS:
        raise SpeclaError(f"{count} combinations, over {MAX_COMBINATIONS}: sweep fewer dials at once")
    for picks in itertools.product(*(word.values for word in words.values())):
        pairs = [(word, f"{word.key}={pick}") for word, pick in zip(words.values(), picks, strict=True)]
        choices = tuple(sorted(text for word, text in pairs if word.is_group))
        yield choices, tuple(text for word, text in pairs if not word.is_group)


def merged(*layers: Mapping[str, Word]) -> dict[str, Word]:
    """The words of all layers by key; a later layer wins, in the place of the earlier."""
    return {key: word for layer in layers for key, word in layer.items()}


def _read(text: str, composer: Composer) -> Word:
    if text.startswith("+"):
        raise SpeclaError(f"{text}: '+' adds a key, but every key is there already; write {text.lstrip('+')}")
    if text.startswith("~"):
        raise SpeclaError(f"{text}: nothing can be left out; choose an option, as in drafter=ngram")
    key, equals, value = text.partition("=")
    if not equals:
        raise SpeclaError(f"{text}: give KEY=VALUE, as in topology=chain")
    if key.startswith(("hydra.", "hydra/")):
        raise SpeclaError(f"{text}: specla runs its own cells, and none of Hydra's own dials applies")
    if "@" in key:
        raise SpeclaError(f"{text}: a group has one place; write {key.partition('@')[0]}={value}")
    if key in GROUPS or key == EXPERIMENT:
        return _read_group(text, key, composer)
    _check_key(text, key)
    values = _values(text, composer)
    if not values:
        raise SpeclaError(f"{text}: holds no value; give a,b or range(start,stop,step) with stop past start")
    return Word(text, key, values)


def _check_key(text: str, key: str) -> None:
    known = dials()
    group, _, rest = key.partition(".")
    if group in GROUPS and rest == "name":
        raise SpeclaError(f"{text}: the name comes with the option; write {group}={text.partition('=')[2]}")
    inside = [dial for dial in known if dial.startswith(f"{key}.")]
    if inside:
        raise SpeclaError(f"{text}: give {' or '.join(inside)}")
    if key not in known:
        raise SpeclaError(f"no key '{key}'{_nearest_key(key)}")


def _read_group(text: str, group: str, composer: Composer) -> Word:
    options = composer.options[group]
    override = composer.parse(text)
    values = _values(text, composer)
    if not override.is_sweep_override():
        if isinstance(override.value(), list | dict):
            raise SpeclaError(f"{text}: one option at a time; to sweep write {group}={','.join(options[:2])}")
        values = ("null" if override.value() is None else str(override.value()),)
    if not values:
        raise SpeclaError(f"{text}: matches no option ({', '.join(options)})")
    for value in values:
        if value not in options and not (group == EXPERIMENT and value == "null"):
            raise SpeclaError(f"no option '{value}' of {group}{nearest(value, options)} ({', '.join(options)})")
    return Word(text, group, values)


def _values(text: str, composer: Composer) -> tuple[str, ...]:
    override = composer.parse(text)
    if override.is_interval_sweep():
        raise SpeclaError(f"{text}: an interval is no list of values; write a,b or range(start,stop,step)")
    if not override.is_sweep_override():
        return (override.get_value_element_as_str(),)
    if override.value_type == ValueType.GLOB_CHOICE_SWEEP and override.key_or_group not in composer.options:
        raise SpeclaError(f"{text}: glob matches the options of a group; write the values as a list")
    if isinstance(sweep := override.value(), RangeSweep):
        _make_exact(text, sweep)
    try:
        return tuple(dict.fromkeys(override.sweep_string_iterator()))
    except OmegaConfBaseException:
        raise SpeclaError(f"{text}: a list of values holds no range or other sweep; write a,b,c") from None


def _make_exact(text: str, sweep: RangeSweep) -> None:
    """Count in decimals, as they were typed: sums of binary tenths come out as 0.7000000000000001, and reach the stop.

    Raises SpeclaError for a range that never ends, holds nothing, or more than anyone measures.
    """
    ends = {name: Decimal(repr(getattr(sweep, name))) for name in ("start", "stop", "step")}
    if not all(number.is_finite() for number in ends.values()) or ends["step"] == 0:
        raise SpeclaError(f"{text}: a range has finite ends and a step other than 0, as in range(0.5,0.9,0.1)")
    count = math.ceil((ends["stop"] - ends["start"]) / ends["step"])
    if count < 1:
        raise SpeclaError(f"{text}: holds no number, since its stop is no further on than its start")
    if count > MAX_COMBINATIONS:
        raise SpeclaError(f"{text}: {count} combinations, over {MAX_COMBINATIONS}: sweep fewer dials at once")
    for name, number in ends.items():
        if isinstance(getattr(sweep, name), float):
            setattr(sweep, name, number)


def _nearest_key(word: str) -> str:
    known = [*GROUPS, EXPERIMENT, *dials()]
    hint = nearest(word, known)
    if hint or "." in word:
        return hint
    by_leaf = difflib.get_close_matches(word, [dial.rpartition(".")[2] for dial in dials()], n=1, cutoff=0.6)
    meant = [dial for dial in dials() if by_leaf and dial.rpartition(".")[2] == by_leaf[0]]
    return f"; did you mean {' or '.join(repr(dial) for dial in meant)}?" if meant else ""


def dial_in(overrides: Iterable[str], dial: str) -> str:
    """What overrides turn a dial to; empty where they do not, or to null."""
    values = [value for key, _, value in (word.partition("=") for word in overrides) if key == dial]
    return values[-1] if values and values[-1] != "null" else ""
