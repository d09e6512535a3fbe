"""The one reader of prompt files, which never guesses types: text stays text.

JSON lines and JSON keep the types that they write, Parquet those that it stores; CSV, TSV and text files have text
alone. Nothing is inferred from what a text looks like, so `null`, `12` and `2024-01-01` are prompts like any other.
"""

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specla.bench.validate import escaped
from specla.bench.workloads.conversation import holds_prompt
from specla.bench.workloads.foreign import EXCEL, EXCEL_TOLD, foreign
from specla.bench.workloads.parse import (
    CONVERSATIONS,
    TEXTS,
    DamageError,
    Found,
    json_document,
    json_lines,
    separated,
    text_lines,
)
from specla.bench.workloads.shown import described, listed, name_shown, reason, repeated
from specla.bench.workloads.unpack import MOST_BYTES, PACKED, file_bytes, unpacked
from specla.errors import SpeclaError

_PARSERS: dict[str, Callable[[str], Found]] = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".json": json_document,
    ".csv": lambda text: separated(text, ","),
    ".tsv": lambda text: separated(text, "\t"),
    ".txt": text_lines,
}
_PARQUET = ".parquet"
ENDINGS = (*_PARSERS, _PARQUET)
"""The endings of prompt files, in any case; each may be followed by one of PACKED."""
_PARQUET_ROWS = 16
"""Rows that are decoded at once: few, since a packed cell may be a thousand times the file."""
_FOREIGN = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


@dataclass(frozen=True)
class Row:
    """One row: its values by column, and its place in the file, as in `line 3`."""

    values: Mapping[str, Any]
    place: str


@dataclass(frozen=True)
class Table:
    """The rows of a file or data set.

    Attributes:
        where: the dial and what it is set to, for messages.
        rows: at least one.
        columns: of the first row; all of Parquet's, whether they were read or not.
        held_in: the key of a JSON object that holds the rows.
        hint: what may be wrong where a column is missing.
        kinds: of Parquet: the columns whose type is one of texts or conversations.
    """

    where: str
    rows: list[Row] = field(repr=False)
    columns: tuple[str, ...]
    held_in: str | None = None
    hint: str = ""
    kinds: tuple[str, ...] | None = None

    def value(self, row: Row, column: str) -> Any:
        """What a row has in a column. Raises SpeclaError where it has none."""
        if column in row.values:
            return row.values[column]
        if column in self.columns or any(column in each.values for each in self.rows):
            has = listed(row.values) or "no columns"
            raise SpeclaError(f"{self.where}: {row.place} has no column {name_shown(column)}; it has {has}")
        where = f"workload.column={name_shown(column)}: {self.where}"
        if self.hint:
            raise SpeclaError(f"{where}: there is no such column{self.hint}")
        usable = listed(self.usable)
        remedy = f"set it to one that holds text or a conversation: {usable}"
        if inner := self._inner():
            remedy = f"{inner}: write it one level up"
        elif not usable:
            remedy = "no column holds text or a conversation: write one prompt a line in a column prompt"
        if self.held_in is None:
            has = "there is no such column"
        else:
            rows = described([dict(each.values) for each in self.rows])
            holder = name_shown(self.held_in)
            has = f"{holder} holds the rows, {rows}, without such a column (one row alone is written as [{{...}}])"
        raise SpeclaError(f"{where}: {has}; {remedy}")

    def _inner(self) -> str:
        """Which object of the first row holds what is looked for, as in `body holds messages`; empty for none."""
        for name, value in self.rows[0].values.items():
            if isinstance(value, dict) and (found := [key for key in (*TEXTS, *CONVERSATIONS) if key in value]):
                return f"{name_shown(name)} holds {found[0]}"
        return ""

    @property
    def usable(self) -> Sequence[str]:
        """Columns whose first row holds text or a conversation."""
        if self.kinds is not None:
            return self.kinds
        first = self.rows[0].values.items()
        return [name for name, value in first if holds_prompt(value, name in CONVERSATIONS)]

    def wrong(self, row: Row, what: str) -> SpeclaError:
        """The error that a row is: where it is, and what is wrong with it."""
        return SpeclaError(f"{self.where}: {row.place}: {what}")


def file_rows(name: str, wanted: Container[str] | None = None) -> Table:
    """The rows of a file. Raises SpeclaError, in one line, for whatever is wrong with it."""
    return rows_of(file_bytes(name), name, wanted)


def rows_of(data: bytes, name: str, wanted: Container[str] | None = None, most: int = MOST_BYTES) -> Table:
    """The rows of a file's bytes.

    Args:
        data: what the file holds.
        name: of the file; its ending says how it is read.
        wanted: columns of Parquet that are read; None reads all.
        most: bytes that it may unpack to.

    Raises:
        SpeclaError: the ending is none of ENDINGS, or the bytes are not what it says, or hold no rows.
    """
    where = f"workload.path={escaped(name)}"
    stem, ending = os.path.splitext(name.lower())
    packing = ending if ending in PACKED else ""
    if packing:
        ending = os.path.splitext(stem)[1]
    if ending in EXCEL:
        raise SpeclaError(f"{where}: {EXCEL_TOLD}")
    if ending not in ENDINGS:
        raise SpeclaError(
            f"{where}: the ending must be one of {', '.join(ENDINGS)}, in any case, and {', '.join(PACKED)} may follow"
        )
    _require(data, ending + packing, where)
    if packing:
        data = unpacked(data, packing, where, most)
        _require(data, ending, where)
    if ending == _PARQUET:
        return _parquet(data, where, wanted, most)
    try:
        found = _PARSERS[ending](_decoded(data))
        rows = [Row(values, place) for place, values in found.rows]
    except DamageError as damage:
        raise SpeclaError(f"{where}: {damage}") from None
    if not rows:
        raise SpeclaError(f"{where}: {found.nothing}")
    return Table(where, rows, found.columns or tuple(rows[0].values), found.held_in, found.hint)


def _require(data: bytes, ending: str, where: str) -> None:
    """Raise SpeclaError for bytes that are none, or known to be something else than the ending says."""
    if not data:
        raise SpeclaError(f"{where}: the file is empty")
    if told := foreign(data, ending):
        raise SpeclaError(f"{where}: {told}")


def _decoded(data: bytes) -> str:
    """Text of UTF-8, a byte order mark left out."""
    for mark, name in _FOREIGN.items():
        if data.startswith(mark):
            raise DamageError(f"is {name}; convert it, as in iconv -f {name} -t UTF-8")
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode()
    except UnicodeDecodeError as damage:
        place, byte = _line_at(data, damage.start), data[damage.start]
        raise DamageError(f"{place}: byte 0x{byte:02x} is not UTF-8; convert the file first") from None
    if b"\x00" in data:
        raise DamageError(f"{_line_at(data, data.index(0))}: a NUL byte, so no text, or UTF-16 to be converted first")
    if not text.strip():
        raise DamageError("the file holds white space alone")
    return text


def _line_at(data: bytes, place: int) -> str:
    before = data[:place].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return f"line {before.count(10) + 1:,}"


def _parquet(data: bytes, where: str, wanted: Container[str] | None, most: int) -> Table:
    # Loaded for such a file alone.
    import pyarrow
    from pyarrow import parquet

    file: Any = None
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        columns: tuple[str, ...] = tuple(file.schema_arrow.names)
        count: int = file.metadata.num_rows
        twice = repeated(columns)
        if twice is not None:
            raise SpeclaError(f"{where}: names column {name_shown(twice)} twice; rename one")
        read = [name for name in columns if wanted is None or name in wanted]
        # Where no column is of use one row tells so.
        rows = list(_parquet_rows(file, read, where, most)) if read else [Row({}, "row 1")] * min(count, 1)
    except SpeclaError:
        raise
    except Exception as damage:  # Arrow raises many types for a malformed file
        place = _damaged_column(file, read) if file is not None else ""
        raise SpeclaError(f"{where}: {place}cannot be read as Parquet ({reason(damage)})") from None
    if not rows:
        raise SpeclaError(f"{where}: holds the columns {listed(columns)} and no rows")
    return Table(where, rows, columns, kinds=_kinds(file.schema_arrow))


def _parquet_rows(file: Any, columns: list[str], where: str, most: int) -> Iterator[Row]:
    size = number = 0
    for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=columns):
        size += batch.nbytes
        if size > most:
            raise SpeclaError(f"{where}: unpacks to over {most:,} bytes; give a part of it")
        for values in batch.to_pylist():
            number += 1
            yield Row(values, f"row {number:,}")


def _damaged_column(file: Any, columns: list[str]) -> str:
    """The first column that cannot be read alone, for a message; empty where there is none."""
    for name in columns:
        try:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=[name]):
                batch.to_pylist()
        except Exception:  # as above
            return f"column {name_shown(name)}: "
    return ""


def _kinds(schema: Any) -> tuple[str, ...]:
    """The columns whose type is text, or a list that may be a conversation."""
    # Loaded for such a file alone.
    from pyarrow import types

    texts = (types.is_string, types.is_large_string, types.is_string_view)

    def fits(kind: Any, name: str) -> bool:
        if types.is_dictionary(kind):
            return fits(kind.value_type, name)
        if types.is_list(kind) or types.is_large_list(kind):
            return types.is_struct(kind.value_type) or (name in CONVERSATIONS and fits(kind.value_type, ""))
        return any(is_text(kind) for is_text in texts)

    return tuple(field.name for field in schema if fits(field.type, field.name))
