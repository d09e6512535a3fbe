"""Any error in one line."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from specla.errors import LONGEST, SpeclaError, first_line, is_full, is_out_of_memory, naming, told


@pytest.mark.parametrize(
    ("error", "first", "whole"),
    [
        (ValueError("one\ntwo"), "one", "ValueError: one"),
        (ValueError("\n  one  \n"), "one", "ValueError: one"),
        (RuntimeError(), "RuntimeError", "RuntimeError"),
        (KeyError("name"), "'name'", "KeyError: 'name'"),
        (MemoryError(), "out of memory", "out of memory: use a smaller batch, tree or model"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes."),
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes.",
            "out of memory (1.0 GiB more were asked for): use a smaller batch, tree or model",
        ),
    ],
)
def test_an_error_in_one_line(error: Exception, first: str, whole: str) -> None:
    assert (first_line(error), told(error)) == (first, whole)


def test_a_refusal_is_one_line_that_a_terminal_can_print() -> None:
    """Whatever is quoted in it: line ends, control characters, half a surrogate pair, a megabyte."""
    assert str(SpeclaError("model.path=ä b: no such folder")) == "model.path=ä b: no such folder"
    assert str(SpeclaError("a\nb\x1b[2J\udcff")) == "a\\nb\\x1b[2J\\udcff"
    long = str(SpeclaError("begins " + "x" * 10**6 + " ends"))
    assert len(long) <= LONGEST and long.startswith("begins xxx") and long.endswith("xxx ends") and "[...]" in long
    assert len(str(SpeclaError("\n" * LONGEST))) <= LONGEST


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("unable to mmap 14890672 bytes from file <model.safetensors>: Cannot allocate memory (12)"),
        ImportError("_csparsetools.so: failed to map segment from shared object"),
    ],
)
def test_a_limit_of_address_space_is_no_bug(error: Exception) -> None:
    """Files that are mapped, and libraries that are loaded, under `ulimit -v`."""
    assert is_out_of_memory(error) and told(error).startswith("out of memory")
    assert not is_out_of_memory(type(error)("something else"))


def closing() -> None:
    """As torch does: an error of the file, and another one on the way out."""
    try:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")
    finally:
        raise RuntimeError("unexpected pos 435392 vs 435284")


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "code", "file"),
    [
        (raising(OSError(errno.ENOSPC, "No space left on device")), errno.ENOSPC, "some/file"),
        (raising(OSError(errno.EROFS, "Read-only file system", "its/own")), errno.EROFS, "its/own"),
        (raising(SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")), 28, ""),
        (raising(Exception("No space left on device (os error 28)")), errno.ENOSPC, ""),
        (raising(OSError("4096 requested and 1024 written")), errno.ENOSPC, ""),
        (closing, errno.EDQUOT, ""),
    ],
)
def test_a_disk_error_of_any_library_names_the_file(act: Callable[[], None], code: int, file: str) -> None:
    with pytest.raises(OSError, match=re.escape(os.strerror(code))) as raised, naming(Path("some/file")):
        act()
    assert (raised.value.errno, raised.value.filename) == (code, file or "some/file")
    assert is_full(raised.value) == (code != errno.EROFS)


def test_what_is_no_disk_error_passes() -> None:
    for error in (ValueError("os error"), RuntimeError("4096 requested"), OSError("encoder error -2")):
        with pytest.raises(type(error)) as raised, naming(Path("some/file")):
            raise error
        assert raised.value is error
