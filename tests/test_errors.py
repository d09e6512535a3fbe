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
    ],
)
def test_an_error_in_one_line(error: Exception, first: str, whole: str) -> None:
    assert (first_line(error), told(error)) == (first, whole)
