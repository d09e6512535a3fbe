"""Any error in one line."""

import pytest

from specla.errors import LONGEST, SpeclaError, first_line, told


@pytest.mark.parametrize(
    ("error", "first", "whole"),
    [
        (ValueError("one\ntwo"), "one", "ValueError: one"),
        (ValueError("\n  one  \n"), "one", "ValueError: one"),
        (RuntimeError(), "RuntimeError", "RuntimeError"),
        (KeyError("name"), "'name'", "KeyError: 'name'"),
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
