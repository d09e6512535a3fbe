"""Any error in one line."""

import pytest

from specla.errors import first_line, told


@pytest.mark.parametrize(
    ("error", "first", "whole"),
    [
        (ValueError("one\ntwo"), "one", "ValueError: one"),
        (ValueError("\n  one  \n"), "one", "ValueError: one"),
        (RuntimeError(), "RuntimeError", "RuntimeError"),
        (KeyError("name"), "'name'", "KeyError: 'name'"),
        (MemoryError(), "MemoryError", "out of memory: use a smaller batch, tree or model"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes."),
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes.",
            "out of memory (1.0 GiB more were asked for): use a smaller batch, tree or model",
        ),
    ],
)
def test_an_error_in_one_line(error: Exception, first: str, whole: str) -> None:
    assert (first_line(error), told(error)) == (first, whole)
