"""Reading records.jsonl back: cut at any byte, changed, mixed with lines of earlier versions."""

import json
from pathlib import Path

import pytest

from specla.bench.lines import parse_records, read_records
from specla.bench.record import Method, to_json
from specla.errors import SpeclaError
from tests.factory import decode_record, kernel_record

RECORDS = [decode_record(repeats=1), kernel_record(repeats=1), decode_record(Method("chain"), repeats=1, reason="é")]
LINES = [to_json(record).encode() + b"\n" for record in RECORDS]
OLD = json.dumps({name: value for name, value in json.loads(LINES[0]).items() if name != "sha256"}).encode() + b"\n"


def test_a_file_cut_at_any_byte_keeps_its_whole_lines() -> None:
    """As a kill or a full disk leaves it: what was whole is read, what was not is noted by its number."""
    data = b"".join(LINES)
    ends = [sum(map(len, LINES[:count])) for count in range(len(LINES) + 1)]
    for at in range(len(data) + 1):
        # A line that lacks nothing but its end is whole.
        whole = max(count for count, end in enumerate(ends) if end <= at + (count > 0))
        found = parse_records(data[:at], "r")
        assert len(found.records) == whole and found.numbers == tuple(range(1, whole + 1))
        torn = at not in ends and at + 1 not in ends
        assert found.note == (f"r:{whole + 1}: the last line was cut short and is left out" if torn else "")
        assert found.sound_bytes == (ends[whole] if torn or at in ends else at) and found.data == data[:at]
    assert list(found.records) == RECORDS


def test_a_line_with_its_end_is_not_cut_short() -> None:
    with pytest.raises(SpeclaError, match=r"^r:2: damaged record, not JSON .*; restore the file, delete the line, or"):
        parse_records(LINES[0] + LINES[1][:-9] + b"\n", "r")


def test_lines_of_earlier_versions_come_first() -> None:
    assert len(parse_records(OLD + OLD.replace(b"heldout", b"another") + LINES[1], "r").records) == 3
    with pytest.raises(SpeclaError, match=r"^r:3: damaged record, without the checksum that those before it have; "):
        parse_records(OLD + LINES[1] + OLD, "r")


def test_numbers_are_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"\n" + LINES[0] + b"\n \n" + LINES[1])
    assert read_records(path).numbers == (2, 5)
    path.write_bytes(b"\n" + LINES[0] + b"\n" + LINES[1].replace(b'"passed"', b'"failed"'))
    with pytest.raises(SpeclaError, match=rf"^{path}:4: record: status failed needs a reason; restore the file"):
        read_records(path)
    with pytest.raises(SpeclaError, match="cannot be read"):
        read_records(tmp_path / "nowhere")


@pytest.mark.parametrize("junk", [b"\0\0\0", b"\xff\xfe", b"{" * 100_000])
def test_junk_at_the_end_is_noted(junk: bytes) -> None:
    assert parse_records(LINES[0] + junk, "r").note.startswith("r:2: the last line was cut short")


def test_junk_that_is_too_deep_to_be_looked_at_is_damage() -> None:
    with pytest.raises(SpeclaError, match=r"^r:2: damaged record, not JSON \(maximum recursion depth"):
        parse_records(LINES[0] + b'{"a":' * 5000, "r")
