"""JSON from elsewhere: read as what it says, or refused in one line before it takes memory or time."""

from pathlib import Path

import pytest

from specla.errors import SpeclaError
from specla.models.json_file import MOST_BYTES, read_object


def refusal(file: Path) -> str:
    with pytest.raises(SpeclaError) as caught:
        read_object(file)
    told = str(caught.value)
    assert "\n" not in told and len(told) < 300 + len(str(file)) and told.startswith(str(file))
    return told


def test_an_object_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": {"b": [1, 2.5, null, true, "\\u00e9"]}, "b": Infinity}')
    assert read_object(tmp_path / "a.json") == {"a": {"b": [1, 2.5, None, True, "é"]}, "b": float("inf")}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[1]", "a JSON object was expected"),
        (b"null", "a JSON object was expected"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not valid JSON"),
        (b'{"vocab_size": 97, "vocab_size": 98}', "the key 'vocab_size' is there twice"),
        (b'{"a": {"b": 1, "b": 1}}', "the key 'b' is there twice"),
    ],
)
def test_what_is_no_object_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert told in refusal(tmp_path / "a.json")


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    monkeypatch.setattr(Path, "read_bytes", None)
    assert "no such file is larger" in refusal(tmp_path / "a.json")


def test_what_is_not_there_is_left_to_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_object(tmp_path / "nothing")
