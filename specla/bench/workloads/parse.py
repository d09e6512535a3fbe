"""Rows from the text of prompt files, one function a format."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from specla.bench.workloads.shown import described, listed, name_shown, reason, repeated

TEXT_COLUMN = "text"
"""The column of rows that are nothing but a text."""
TEXTS = ("prompt", TEXT_COLUMN, "question")
"""Where a prompt is looked for, in this order."""
CONVERSATIONS = ("turns", "messages", "conversations", "conversation")
"""Where a conversation is looked for, after TEXTS."""

_MOST_CELL = 2**31 - 1
"""Characters of a CSV cell: files are bounded, and the library's 131,072 is less than a long prompt."""


class DamageError(Exception):
    """What is wrong with a file, and in which line: without its name."""


@dataclass(frozen=True)
class Found:
    """What a parser found: (place, values) of every row, as in `line 3`."""

    rows: Iterable[tuple[str, dict[str, Any]]]
    columns: tuple[str, ...] = ()
    held_in: str | None = None
    nothing: str = field(default="holds no rows")
    """What there is, where there are no rows."""


def text_lines(text: str) -> Found:
    """Every line is a row, in the column TEXT_COLUMN."""
    return Found((place, {TEXT_COLUMN: line}) for place, line in _lines(text))


def json_lines(text: str) -> Found:
    """An object a line; a bare string is a row of TEXT_COLUMN. Empty lines are left out."""
    return Found(
        (place, _row(_value(line, place), place, "JSON lines have an object in each line"))
        for place, line in _lines(text)
        if line.strip()
    )


def json_document(text: str) -> Found:
    """A list of objects, an object that holds one such list, an object of columns, or one row; JSON lines as well."""
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    start = len(text) - len(text.lstrip())
    try:
        value, end = decoder.raw_decode(text, start)
    except (ValueError, RecursionError, MemoryError) as error:
        raise DamageError(_told(error, "")) from None
    if text[end:].strip():
        if isinstance(value, dict | str):
            return json_lines(text)
        line = text.count("\n", 0, end + len(text[end:]) - len(text[end:].lstrip())) + 1
        raise DamageError(f"line {line:,}: not JSON (more follows after its end)")
    if isinstance(value, list):
        return Found(_rows(value), nothing="holds an empty list")
    if isinstance(value, dict):
        return _in_object(value)
    return Found([("row 1", _row(value, "row 1", "give a list of objects"))])


def separated(text: str, delimiter: str) -> Found:
    """Rows of cells, the first row their names; cells in quotes may hold whatever, line ends included."""
    rows = _cells(text, delimiter)
    place, names = next(rows, ("line 1", []))
    named = [name for name in names if name]
    if not named:
        raise DamageError(f"{place}: the first line names no column")
    twice = repeated(named)
    if twice is not None:
        raise DamageError(f"{place}: names column {name_shown(twice)} twice; rename one")
    filled = _filled(rows, names)
    return Found(filled, tuple(named), nothing=f"holds its header alone ({listed(named)}), and no rows")


def _filled(rows: Iterator[tuple[str, list[str]]], names: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    for place, cells in rows:
        if len(cells) != len(names):
            raise DamageError(
                f"{place}: has {len(cells):,} cells, the header {len(names):,}; quote a cell that holds separators"
            )
        # A column without a name, as spreadsheets leave behind, cannot be asked for.
        yield place, {name: cell for name, cell in zip(names, cells, strict=True) if name}


def _cells(text: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """The cells of every row that has any, with the line it starts in."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    start = 1
    while True:
        # One limit for the whole process: held only while a row is read.
        usual = csv.field_size_limit(_MOST_CELL)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            open_quote = "unexpected end" in str(error)
            what = "a quote opens in this row and is never closed" if open_quote else f"not CSV ({reason(error)})"
            raise DamageError(f"line {start:,}: {what}") from None
        finally:
            csv.field_size_limit(usual)
        if cells is None:
            return
        if cells:
            yield f"line {start:,}", cells
        start = reader.line_num + 1


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Lines by the ends that files have; `str.splitlines` would cut at characters that are text here, as U+2028."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        yield f"line {number:,}", line


def _value(text: str, place: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError, MemoryError) as error:
        raise DamageError(_told(error, place)) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. One of two values under a key would be lost without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"names {name_shown(str(repeated(name for name, _ in pairs)))} twice")
    return found


def _told(error: Exception, place: str) -> str:
    if isinstance(error, json.JSONDecodeError):
        place = place or f"line {error.lineno:,}"
        return f"{place}: not JSON ({error.msg}, column {error.colno:,})"
    why = "nested too deeply" if isinstance(error, RecursionError) else reason(error)
    return f"{place}{': ' * bool(place)}not JSON that can be read ({why})"


def _row(value: Any, place: str, wanted: str) -> dict[str, Any]:
    if isinstance(value, str):
        return {TEXT_COLUMN: value}
    if not isinstance(value, dict):
        hint = "; a list of rows is named .json" if isinstance(value, list) and place.startswith("line") else ""
        raise DamageError(f"{place}: holds {described(value)}; {wanted}{hint}")
    return value


def _rows(values: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, value in enumerate(values, start=1):
        place = f"row {number:,}"
        yield place, _row(value, place, "a row is an object or a text")


def _in_object(value: dict[str, Any]) -> Found:
    """The rows of an object: those of its one list, its columns put side by side, or itself."""
    lists = {name: inner for name, inner in value.items() if isinstance(inner, list)}
    is_row = any(name in value for name in CONVERSATIONS) or any(isinstance(value.get(name), str) for name in TEXTS)
    if is_row or not lists:
        return Found([("row 1", value)])
    if not any(isinstance(item, dict | list) for inner in lists.values() for item in inner):
        lengths = {len(inner) for inner in lists.values()}
        if len(lengths) > 1:
            raise DamageError(
                f"its columns {listed(lists)} have {min(lengths):,} to {max(lengths):,} rows; make them equal"
            )
        columns = zip(*lists.values(), strict=True)
        rows = ((f"row {i:,}", dict(zip(lists, items, strict=True))) for i, items in enumerate(columns, start=1))
        return Found(rows, tuple(lists), nothing=f"holds the empty columns {listed(lists)}")
    if len(lists) > 1:
        raise DamageError(f"holds {len(lists)} lists ({listed(lists)}); keep the one that holds the rows")
    (name,) = lists
    return Found(_rows(lists[name]), held_in=name)
