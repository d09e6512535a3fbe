"""Text from records, files and folders, shown for what it is: data.

A category, a folder's name or a reason may hold anything: markup of whatever it is shown in, control characters, more
letters than a page is wide. `shown` makes it one line of what can be seen, not too long; the other functions keep it
from being read as Markdown, rich's markup, mathematics, or a formula. What was cut is told apart by its digest.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from rich.markup import escape

if TYPE_CHECKING:
    import pandas as pd

NAME, SENTENCE = 60, 400
"""Columns that a name may take, and a reason or a note."""
_CUT_DIGITS = 6
_FILE_NAME = 100
# Controls, invisible marks (those that turn the direction of writing among them), halves of pairs, private characters,
# and what no version of Unicode knew; of the spaces only the plain one and the wide one of Chinese and Japanese show.
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")
_SPACES = " \u3000"
# Letters and signs by their category that fonts leave blank: fillers of Hangul, the empty pattern of Braille.
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
NAMELESS = "(no name)"
"""What stands where a name has no letters."""
# Of running text: what a terminal may obey, and what it may not be sent.
_MOVES = ("Cc", "Cf", "Cs")
_TEXT = "\n\t\u00ad\u200c\u200d"
_MARKS = {**{mark: f"\\{mark}" for mark in "\\`*[]~|"}, "<": "&lt;", "$": "&#36;"}
# Of an underscore within a word nothing is made.
_EDGE_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_LINK = re.compile(r"(?<=\])\(")
_ENTITY = re.compile(r"&(?=#?\w+;)")
# GitHub makes links of bare addresses and of @names.
_ADDRESS = re.compile(r"(?<=[a-z]):(?=//)|(?<=www)\.|@(?=\w)|(?<=mailto):|(?<=xmpp):", re.IGNORECASE)
# What begins a heading, a list, a quotation, a rule, or a block of code.
_LINE_START = re.compile(r"^(?:#{1,6}(?=\s|$)|[-+](?=\s)|=+\s*$|-{2,}|>| |\d{1,9}(?=[.)](?:\s|$)))")
_FORMULA = ("=", "+", "-", "@")


def shown(text: str, most: int | None = NAME) -> str:
    """One line of what can be seen: anything else stands as `\\u{a}`, its number in hexadecimal, and so do spaces
    that nothing stands between.

    Args:
        text: any.
        most: columns of a terminal, from 20 on, that it may take; of a longer one the middle is six digits of its
            digest. None cuts nothing.
    """
    seen = _visible(text)
    return seen if most is None or _columns(seen) <= most else _ended(seen, text, most)


def _ended(seen: str, text: str, most: int) -> str:
    """Of what is seen the beginning and the end, and between them the digest of the text."""
    room = most - _CUT_DIGITS - 2 * len("...")
    behind = _kept(seen[::-1], room // 3)[::-1]
    return f"{_kept(seen, room - _columns(behind))}...{_digest(text)}...{behind}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_CUT_DIGITS]


def _kept(text: str, room: int) -> str:
    """As many letters as there are columns for."""
    kept = ""
    for letter in text:
        room -= _columns(letter)
        if room < 0:
            break
        kept += letter
    return kept


def running(text: str) -> str:
    """Running text, its lines and tabs as they are: a letter that moves a cursor, or is none, as its number.

    A model's output is shown so, letter by letter as it comes. Spaces of all widths stay, and the joiners that some
    scripts are written with.
    """
    return "".join(
        _numbered(letter) if letter not in _TEXT and unicodedata.category(letter) in _MOVES else letter
        for letter in text
    )


class Markdown(str):
    """Text that is Markdown already, so that nothing in it is to be escaped."""


def for_markdown(text: str, most: int | None = None) -> Markdown:
    """Text that Markdown shows as it stands: no heading, link, tag, formula, list or column of a table begins in it."""
    if isinstance(text, Markdown):
        return text
    marked = "".join(_MARKS.get(letter, letter) for letter in _ENTITY.sub("&amp;", shown(text, most)))
    marked = _LINK.sub(r"\\(", _EDGE_UNDERSCORE.sub(r"\\_", marked))
    marked = _ADDRESS.sub(lambda found: f"&#{ord(found[0])};", marked)
    return Markdown(_LINE_START.sub(lambda found: f"&#{ord(found[0][0])};{found[0][1:]}", marked))


def bold(text: str) -> Markdown:
    """Text that stands out."""
    return Markdown(f"**{for_markdown(text)}**")


def code(text: str, most: int | None = None) -> Markdown:
    """Text as code, in which nothing can be escaped: a backtick becomes an apostrophe, a bar a broken one."""
    seen = shown(text, most).replace("`", "'").replace("|", "\u00a6").strip()
    return Markdown(f"`{seen or ' '}`")


def for_terminal(text: str, most: int | None = SENTENCE) -> str:
    """Text that rich prints as it stands, and that moves no cursor."""
    seen = shown(text, most)
    # Backslashes before a tag are halved, and escape it: those at the end are doubled, and a tag of no style follows.
    body = seen.rstrip("\\")
    ending = "\\\\" * (len(seen) - len(body))
    return escape(body) + (f"{ending}[none][/none]" if ending else "")


def for_figure(text: str, most: int | None = None) -> str:
    """Text that a figure shows as it stands, a letter that its font lacks as `\\u{4e2d}`.

    Formulas are turned off in `style.house_rules`; a legend leaves out what begins with an underscore.
    """
    letters = _font_letters()
    seen = "".join(letter if ord(letter) in letters else _numbered(letter) for letter in _visible(text))
    cut = shown(seen, most)
    return f" {cut}" if cut.startswith("_") else cut


def shown_apart(texts: Iterable[str], most: int | None = NAME) -> dict[str, str]:
    """How each of several texts is shown, no two of them alike: those that would be get their digests."""
    found = {text: shown(text, most) for text in texts}
    counts = Counter(found.values())
    return {text: seen if counts[seen] == 1 else _ended(seen, text, most or SENTENCE) for text, seen in found.items()}


def for_csv(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A frame whose text no spreadsheet takes for a formula: what would be one gets an apostrophe in front."""
    texts = frame.select_dtypes(exclude=["number", "bool"]).columns
    return frame.assign(**{name: frame[name].map(_no_formula) for name in texts})


def file_names(texts: Iterable[str]) -> dict[str, str]:
    """A part of a file's name for each of several texts, no two of them alike: letters, digits and hyphens."""
    found = {text: re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") for text in texts}
    counts = Counter(found.values())
    return {
        text: name if counts[name] == 1 and 0 < len(name) <= _FILE_NAME else f"{name[:NAME].strip('-')}-{_digest(text)}"
        for text, name in found.items()
    }


def _no_formula(value: object) -> object:
    if not isinstance(value, str):
        return value
    seen = shown(value, None)
    return f"'{seen}" if len(seen) > 1 and seen.lstrip(" '").startswith(_FORMULA) else seen


def _visible(text: str) -> str:
    # Twice gives what once gives, since a label may be made of what was shown before.
    keeps = _SPACES if text.strip(_SPACES) else ""
    return "".join(
        _numbered(letter)
        if letter in _BLANK or (letter not in keeps and unicodedata.category(letter) in _UNSEEN)
        else letter
        for letter in text
    )


def _numbered(letter: str) -> str:
    return f"\\u{{{ord(letter):x}}}"


def _columns(text: str) -> int:
    """Columns of a terminal; a mark above a letter counts as one, so that none can be heaped."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


@cache
def _font_letters() -> frozenset[int]:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties())).get_charmap())
