"""The lines of records.jsonl, read back: each whole and unchanged, but for a last one that a crash cut short."""

import json
from dataclasses import dataclass
from pathlib import Path

from specla.bench.record import Record, from_line
from specla.errors import SpeclaError

IS_FOLDER = "is a folder, not a file of records; restore the file, or measure again into another --out"
MEND = "restore the file, delete the line, or measure again into another --out"


@dataclass(frozen=True)
class RecordFile:
    """What a records.jsonl holds: its records as written, and a note if its last line was cut short."""

    records: tuple[Record, ...]
    numbers: tuple[int, ...] = ()
    """Of each record's line, from 1 on."""
    note: str = ""
    sound_bytes: int = 0
    """Length of the file up to and with its last whole record."""
    data: bytes = b""
    """The file itself."""


def read_records(path: Path) -> RecordFile:
    """The records of a file. Raises SpeclaError where it cannot be read, and as `parse_records` does."""
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise SpeclaError(f"{path}: {IS_FOLDER}") from None
    except OSError as error:
        raise SpeclaError(f"{path}: cannot be read ({error.strerror})") from None
    return parse_records(data, str(path))


def parse_records(data: bytes, where: str) -> RecordFile:
    """The records in the bytes of a records.jsonl; `where` names it in messages.

    Raises SpeclaError, with the line's number, for a damaged or changed line and an unknown schema; a last line that
    lacks its end is only noted.
    """
    records: list[Record] = []
    numbers: list[int] = []
    at, summed = 0, False
    for number, raw in enumerate(data.splitlines(keepends=True), start=1):
        line = f"{where}:{number}"
        if not raw.endswith((b"\n", b"\r")) and not _is_json(raw):
            note = f"{line}: the last line was cut short and is left out"
            return RecordFile(tuple(records), tuple(numbers), note, at, data)
        if raw.strip():
            try:
                record, checked = from_line(raw.decode("utf-8", errors="replace"), line)
            except SpeclaError as error:
                raise SpeclaError(f"{error}; {MEND}") from None
            # Only a version that wrote none can have written a line without, and none such writes after this one.
            if summed and not checked:
                raise SpeclaError(f"{line}: damaged record, without the checksum that those before it have; {MEND}")
            summed = checked
            records.append(record)
            numbers.append(number)
        at += len(raw)
    return RecordFile(tuple(records), tuple(numbers), sound_bytes=at, data=data)


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw or b"null")
    except ValueError:
        return not raw.strip()
    except RecursionError:
        pass
    return True
