"""Files looked at before they are opened: everything that is none is said to be what it is, and nothing waits."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from specla.errors import SpeclaError
from specla.models.drafter_checkpoint import WEIGHTS, _require_file
from specla.models.json_file import read_object
from specla.models.plain_file import size_of
from specla.models.shards import SINGLE, weight_files
from specla.models.tokenizer import read_tokenizer

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def loop(file: Path) -> None:
    file.symlink_to(file.name)


def dangling(file: Path) -> None:
    file.symlink_to("elsewhere")


def device(file: Path) -> None:
    file.symlink_to("/dev/null")


def pointer(file: Path) -> None:
    file.write_bytes(POINTER)


KINDS = [
    (os.mkdir, "is a folder, not a plain file"),
    (os.mkfifo, "is a named pipe, not a plain file"),
    (device, "is a device, not a plain file"),
    (loop, "is a link that leads back to itself"),
    (dangling, "is a link to elsewhere, where nothing is"),
    (pointer, "is a git-lfs pointer, not the file; run `git lfs pull`"),
]
READERS: list[tuple[str, Callable[[Path], object]]] = [
    (SINGLE, lambda file: weight_files(file.parent)),
    (WEIGHTS, lambda file: _require_file(file, "")),
    ("config.json", read_object),
    ("tokenizer.json", lambda file: read_tokenizer(file, 97)),
]


@pytest.mark.parametrize(("make", "told"), KINDS)
@pytest.mark.parametrize(("name", "read"), READERS)
def test_what_is_no_file_is_called_what_it_is(
    make: Callable[[Path], None], told: str, name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    make(tmp_path / name)
    with pytest.raises(SpeclaError) as caught:
        read(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: {told}")


def test_a_socket_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of a socket is short.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("x")
        with pytest.raises(SpeclaError, match=r"^x: is a socket"):
            size_of(Path("x"))


def test_a_name_that_no_file_has(tmp_path: Path) -> None:
    for name in ("a\0b", "a\ud800"):
        with pytest.raises(SpeclaError, match="no file can be called that"):
            size_of(tmp_path / name)
    with pytest.raises(SpeclaError, match=r"cannot be read \(File name too long\)"):
        size_of(tmp_path / ("x" * 300))


def test_what_is_there_has_a_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    assert size_of(tmp_path / "a") == size_of(tmp_path / "link") == 3
    assert size_of(tmp_path / "b") is size_of(tmp_path / "a" / "b") is None
