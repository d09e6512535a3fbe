"""JSON of frozen dataclasses and back, driven by their annotations: a damaged record is named field by field."""

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from specla.errors import SpeclaError

# JSON has no such numbers, and a line with one must still be readable: a NaN error is a finding, not a damaged file.
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_LEAST, _BELOW = "least", "below"
_MOST = 1e9
"""No second, microsecond or token was ever counted up to here in one sample; far above it sums overflow."""
MANY = 1e15
"""The same for bytes, and for what is counted over all steps of a cell."""


def measured(least: int = 1, below: float = _MOST) -> Mapping[str, Any]:
    """Metadata of a field that was measured: finite, below `below`, and above 0, or from 0 on where `least` is 0."""
    return {_LEAST: least, _BELOW: below}


def encode(value: object) -> Any:
    """Plain JSON data of a dataclass, a mapping, a sequence, an enum, a number (numpy's too), a string or None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if hasattr(value, "tolist"):
        return encode(value.tolist())
    raise TypeError(f"{type(value).__name__} has no JSON form")


def decode(kind: Any, value: object, where: str) -> Any:
    """The value of type `kind` that plain JSON data stands for. Raises SpeclaError with `where` and the field."""
    origin = get_origin(kind)
    if origin is Union or origin is types.UnionType:
        return _decode_union(get_args(kind), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        return tuple(decode(get_args(kind)[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return {key: decode(get_args(kind)[1], item, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    return _decode_plain(kind, value, where)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode_dataclass(kind: Any, value: object, where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    known = {field.name: field for field in fields(kind)}
    strangers = sorted(set(value) - set(known))
    if strangers:
        raise SpeclaError(f"{where}: unknown field {strangers[0]!r}")
    missing = [
        name
        for name, field in known.items()
        if name not in value and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise SpeclaError(f"{where}: field {missing[0]!r} is missing")
    hints = _hints(kind)
    found = {name: decode(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    for name, item in found.items():
        if _LEAST in known[name].metadata:
            _check_measured(item, value[name], known[name].metadata, f"{where}.{name}")
    try:
        return kind(**found)
    except SpeclaError as contradiction:
        raise SpeclaError(f"{where}: {contradiction}") from None


def _check_measured(found: object, written: Any, bounds: Mapping[str, Any], where: str) -> None:
    if isinstance(found, Mapping):
        for key, item in found.items():
            _check_measured(item, written[key], bounds, f"{where}.{key}")
    elif isinstance(found, tuple):
        for index, item in enumerate(found):
            _check_measured(item, written[index], bounds, f"{where}[{index}]")
    elif isinstance(found, int | float) and not (0 < found < bounds[_BELOW] or (found == 0 and not bounds[_LEAST])):
        low, high = "above 0" if bounds[_LEAST] else "from 0 on", f"{bounds[_BELOW]:g}".replace("e+0", "e")
        raise _wrong(where, f"a number {low} and below {high.replace('e+', 'e')}", written)


def _decode_union(kinds: tuple[Any, ...], value: object, where: str) -> Any:
    """The one kind of a union that fits. Of several dataclasses it is the one that has the fields at hand."""
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    classes = [kind for kind in kinds if is_dataclass(kind)]
    if isinstance(value, dict) and classes:
        best = max(classes, key=lambda kind: len(set(value) & {field.name for field in fields(kind)}))
        return decode(best, value, where)
    lists = [kind for kind in kinds if get_origin(kind) is tuple]
    if isinstance(value, list) and lists:
        return decode(lists[0], value, where)
    return decode(next((kind for kind in kinds if kind not in lists and kind not in classes), kinds[0]), value, where)


def _decode_plain(kind: Any, value: object, where: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        names = [member.value for member in kind]
        if value not in names:
            raise _wrong(where, "one of " + ", ".join(names), value)
        return kind(value)
    if kind is float:
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(where, "a number", value)
        try:
            return float(value)
        except OverflowError:
            raise _wrong(where, "a number that a float can hold", value) from None
    if kind is int and (isinstance(value, bool) or not isinstance(value, int)):
        raise _wrong(where, "a whole number", value)
    if kind is str and not isinstance(value, str):
        raise _wrong(where, "text", value)
    if kind is bool and not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def shortened(value: object) -> str:
    """What was found, in at most 40 characters."""
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def _wrong(where: str, wanted: str, value: object) -> SpeclaError:
    return SpeclaError(f"{where}: expected {wanted}, found {shortened(value)}")
