"""Rows from the text of prompt files, one function a format."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from specla.bench.workloads.shown import described, listed, name_shown, reason, repeated

TEXT_COLUMN = "text"
"""The column of rows that are nothing but a text."""
TEXTS = ("prompt", TEXT_COLUMN, "question")
"""Where a prompt is looked for, in this order."""
CONVERSATIONS = ("turns", "messages", "conversations", "conversation")
"""Where a conversation is looked for, after TEXTS; a list of bare texts is one here alone."""
ROLES = ("role", "from")
"""What an object that is a turn has one of."""

_BLANK = re.compile(f"[\\s{chr(0xFEFF)}]*")
_MARK = "\ufeff"
"""A byte order mark, which joined files repeat."""
_SEPARATORS = {
    ",": ("commas", "name it .csv"),
    "\t": ("tabs", "name it .tsv"),
    ";": ("semicolons", "save it with commas, or as .tsv"),
    "|": ("bars", "save it with commas, or as .tsv"),
}
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
    hint: str = ""
    """What may be wrong where a column is missing."""


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
            return Found(list(_sequence(text, decoder)))
        line = text.count("\n", 0, end + len(text[end:]) - len(text[end:].lstrip())) + 1
        raise DamageError(f"line {line:,}: not JSON (more follows after its end)")
    if isinstance(value, list):
        return Found(_rows(value), nothing="holds an empty list")
    if isinstance(value, dict):
        return _in_object(value)
    return Found([("row 1", _row(value, "row 1", "give a list of objects"))])


def _sequence(text: str, decoder: json.JSONDecoder) -> Iterator[tuple[str, dict[str, Any]]]:
    """Values one behind another, a line each or spread over many, as `jq .` writes them."""
    start, line = 0, 1
    while blank := _BLANK.match(text, start):
        line += text.count("\n", start, blank.end())
        start, place = blank.end(), f"line {line:,}"
        if start == len(text):
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError, MemoryError) as error:
            raise DamageError(_told(error, "")) from None
        yield place, _row(value, place, "give objects, one behind another")
        line += text.count("\n", start, end)
        start = end


def separated(text: str, delimiter: str) -> Found:
    """Rows of cells, the first row their names; cells in quotes may hold whatever, line ends included."""
    hint = _other_separator(text, delimiter)
    rows = _cells(text, delimiter, hint)
    place, names = next(rows, ("line 1", []))
    if names == ["sep=", ""]:
        # Excel's own first line, which names the separator.
        place, names = next(rows, (place, []))
    named = [name for name in names if name]
    if not named:
        raise DamageError(f"{place}: the first line names no column")
    twice = repeated(named)
    if twice is not None:
        raise DamageError(f"{place}: names column {name_shown(twice)} twice; rename one")
    filled = _filled(rows, names, hint, delimiter == "\t" and len(names) > 1)
    return Found(filled, tuple(named), hint=hint, nothing=f"holds its header alone ({listed(named)}), and no rows")


def _other_separator(text: str, delimiter: str) -> str:
    """A hint where the header has another separator alone."""
    header = re.split("[\r\n]", text, maxsplit=1)[0]
    found = [told for character, told in _SEPARATORS.items() if character in header]
    if delimiter in header or not found:
        return ""
    name, remedy = found[0]
    return f" (separated by {name}? {remedy})"


def _filled(
    rows: Iterator[tuple[str, list[str]]], names: list[str], hint: str, tabs: bool
) -> Iterator[tuple[str, dict[str, str]]]:
    for place, cells in rows:
        if len(cells) != len(names):
            raise DamageError(
                f"{place}: has {len(cells):,} cells, the header {len(names):,}; "
                f"quote a cell that holds separators{hint}"
            )
        # A column without a name, as spreadsheets leave behind, cannot be asked for.
        if tabs and any(line.count("\t") == len(names) - 1 for cell in cells for line in cell.split("\n")):
            raise DamageError(
                f"{place}: a cell in quotes runs over lines with {len(names):,} columns of their own; double a quote "
                "that is text"
            )
        yield place, {name: cell for name, cell in zip(names, cells, strict=True) if name}


def _cells(text: str, delimiter: str, hint: str) -> Iterator[tuple[str, list[str]]]:
    """The cells of every row that has any, with the line it starts in."""
    begins = True

    def lines() -> Iterator[str]:
        nonlocal begins
        for line in io.StringIO(text, newline=""):
            first, begins = begins, False
            yield line.removeprefix(_MARK) if first else line

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    start = 1
    while True:
        begins = True
        # One limit for the whole process: held only while a row is read.
        usual = csv.field_size_limit(_MOST_CELL)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            named = "TSV" if delimiter == "\t" else "CSV"
            open_quote = "unexpected end" in str(error)
            what = "a quote opens in this row and is never closed" if open_quote else f"not {named} ({reason(error)})"
            what += '; double a quote that is text, as in "a ""word"""'
            raise DamageError(f"line {start:,}: {what}{hint}") from None
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
        yield f"line {number:,}", line.removeprefix(_MARK)


def _value(text: str, place: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise DamageError(f"{_told(error, place)}; give one JSON object a line, as `jq -c .` writes them") from None
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
    """The rows of an object: those of its one list of objects, its columns put side by side, or itself."""
    if _is_frame(value):
        raise DamageError('holds columns or rows keyed by their index; write it with pandas\' orient="records"')
    lists = {name: inner for name, inner in value.items() if isinstance(inner, list)}
    talks = [name for name, inner in lists.items() if name in (*TEXTS, *CONVERSATIONS) and _is_talk(name, inner)]
    holders = [name for name in lists if name not in talks and any(isinstance(item, dict) for item in lists[name])]
    if talks:
        rows = [
            name for name in holders if any(key in item for item in lists[name] for key in (*TEXTS, *CONVERSATIONS))
        ]
        if rows:
            raise DamageError(
                f"holds a conversation in {name_shown(talks[0])} and rows in {name_shown(rows[0])}; keep one of the two"
            )
        return Found([("row 1", value)])
    if len(holders) > 1:
        raise DamageError(
            f"holds {len(holders)} lists ({listed(holders)}); keep the one that holds the rows, or make one row a list "
            "of one, as in [{...}]"
        )
    if holders:
        return Found(_rows(lists[holders[0]]), held_in=holders[0])
    is_row = any(isinstance(value.get(name), str) for name in TEXTS)
    is_row = is_row or any(name in value and not lists.get(name) for name in CONVERSATIONS)
    if is_row or not lists:
        return Found([("row 1", value)])
    lengths = {len(inner) for inner in lists.values()}
    if len(lengths) > 1:
        raise DamageError(
            f"its columns {listed(lists)} have {min(lengths):,} to {max(lengths):,} rows; make them equal"
        )
    columns = zip(*lists.values(), strict=True)
    cells = ((f"row {i:,}", dict(zip(lists, items, strict=True))) for i, items in enumerate(columns, start=1))
    return Found(cells, tuple(lists), nothing=f"holds the empty columns {listed(lists)}")


def _is_frame(value: dict[str, Any]) -> bool:
    """Whether an object is a table as pandas writes it by default, by columns, or by its index."""
    inner = list(value.values())
    if not inner or not all(isinstance(item, dict) and item for item in inner):
        return set(value) == {"columns", "index", "data"}
    return any(all(key.isdecimal() for key in keys) for keys in (value, inner[0]))


def _is_talk(name: str, items: list[Any]) -> bool:
    """Whether a column of an object holds turns, not rows."""
    if name in CONVERSATIONS and items and all(isinstance(item, str) for item in items):
        return True
    turns = [isinstance(item, dict) and any(key in item for key in ROLES) for item in items]
    return bool(turns) and all(turns)
