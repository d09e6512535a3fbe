"""Any error in one line."""

import pytest

from specla.errors import LONGEST, SpeclaError, first_line, is_out_of_memory, told


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
