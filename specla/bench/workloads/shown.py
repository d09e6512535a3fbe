"""What messages say of data that users bring: its kind, its size and how it starts, in one line of bounded length."""

import reprlib
from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any

from specla.bench.validate import escaped
from specla.errors import first_line

MOST_SHOWN = 60
"""Characters of a value that a message quotes."""
MOST_REASON = 200
"""Characters of what a library says is wrong."""
MOST_NAMES = 8
"""Names that a message lists."""


class _Short(reprlib.Repr):
    """Short forms whose work is short too; objects keep the order of their keys."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxdict = 4, 4, 4
        self.maxstring = self.maxlong = self.maxother = 2 * MOST_SHOWN

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        if level <= 0 and x:
            return "{...}"
        pairs = [f"{self.repr1(k, level - 1)}: {self.repr1(v, level - 1)}" for k, v in islice(x.items(), self.maxdict)]
        return "{" + ", ".join(pairs + ["..."] * (len(x) > self.maxdict)) + "}"


_SHORT = _Short()


def quoted(text: str) -> str:
    """A text in quotes, on one line: its first MOST_SHOWN characters."""
    return repr(text[:MOST_SHOWN]) + "..." * (len(text) > MOST_SHOWN)


def name_shown(text: str) -> str:
    """A name that a user chose, as it is where it is short and plain, else quoted."""
    plain = text.isprintable() and text == text.strip() and 0 < len(text) <= MOST_SHOWN
    return text if plain and not {"'", '"', ",", ";"} & set(text) else quoted(text)


def listed(names: Iterable[str]) -> str:
    """The first MOST_NAMES names, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - MOST_NAMES:,} more" if len(known) > MOST_NAMES else ""
    return ", ".join(name_shown(name) for name in known[:MOST_NAMES]) + more


def described(value: Any) -> str:
    """The kind of a value, its size, and its first MOST_SHOWN characters."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"text of {len(value):,} characters, {quoted(value)}"
    if isinstance(value, bool):
        return f"{str(value).lower()}, a truth value"
    if isinstance(value, int | float):
        return f"{_start(value)}, a number"
    kind = {"dict": "object", "tuple": "list", "bytes": "byte string"}.get(type(value).__name__, type(value).__name__)
    article = "an" if kind[0] in "aeiou" else "a"
    size = f" of {len(value):,}" if isinstance(value, Sized) else ""
    return f"{article} {kind}{size}, {_start(value)}"


def reason(error: BaseException) -> str:
    """What an error of a library says, its first line, escaped and cut: it may quote the file."""
    return escaped(first_line(error)[:MOST_REASON])


def repeated(names: Iterable[str]) -> str | None:
    """The first name that was there before, or None."""
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _start(value: Any) -> str:
    try:
        text = _SHORT.repr(value)
    except Exception as error:  # what a foreign type's repr raises is not known
        text = f"<{type(error).__name__}>"
    # On one line, and printable: keys and strings inside are shown by repr already.
    return text[:MOST_SHOWN] + "..." * (len(text) > MOST_SHOWN)
