"""What messages say of data that users bring: its kind, its size and how it starts, in one line of bounded length."""

import reprlib
from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any

MOST_SHOWN = 60
"""Characters of a value that a message quotes."""
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


def path_shown(path: str) -> str:
    """A path in full, escaped where it does not fit a line."""
    return path if path.isprintable() else ascii(path)


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
