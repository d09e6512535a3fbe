"""Text in Hydra's grammar: values spelled so that they are read back, and paths as users type them.

The grammar gives `=`, `,`, brackets and braces a meaning, and knows no `#`, `&`, `~` or letters beyond ASCII outside
quotes. Paths have them all: what is typed for a dial that holds one is put in quotes wherever it can mean nothing else.
"""

import os
import re
import shlex
from collections.abc import Callable
from typing import Any

from hydra.core.override_parser.types import Override, Quote, QuotedString

from specla.bench.validate import escaped, located, show
from specla.errors import SpeclaError

MOST_SHOWN = 300
"""Characters of a word that a message repeats."""
_PLAIN = re.compile(r"(?:[A-Za-z_/]|\.{1,2}/)[A-Za-z0-9_./:-]*")
"""What needs no quotes: it starts like no number."""
_WORDS = ("null", "true", "false", "inf", "nan")


def spell(value: Any) -> str:
    """A value as Hydra's grammar reads it back."""
    if isinstance(value, list | tuple):
        return f"[{','.join(spell(inner) for inner in value)}]"
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value.lower() in _WORDS):
        # What looks like an interpolation is text: OmegaConf takes a backslash before it for that.
        text = re.sub(r"(\\*)\$\{", lambda found: f"{found[1] * 2}\\${{", value)
        return QuotedString(text, Quote.single).with_quotes()
    return repr(value) if isinstance(value, float) else show(value)


def helped(key: str, text: str, parse: Callable[[str], Override | None]) -> Override | None:
    """What is typed for a dial that holds a path, in Hydra's grammar.

    What names an existing file or folder is that path, and so is each of a list of such. What the grammar reads as a
    sweep or a text is taken as that. Anything else that has no comma is a path: quoted.

    Args:
        key: the dial.
        text: after the equals sign.
        parse: reads a word, and gives None for one that is not in the grammar.

    Raises:
        SpeclaError: there is no text.
    """
    pieces = text.split(",")
    if text.strip().lower() == "null":
        return parse(f"{key}={text}")
    if _exists(text):
        return parse(f"{key}={spell(text)}")
    if len(pieces) > 1 and all(map(_exists, pieces)):
        return parse(f"{key}={','.join(map(spell, pieces))}")
    override = parse(f"{key}={text}")
    lone = override is not None and not override.is_sweep_override()
    value = override.value() if override is not None and lone else text
    if not text or value == "":
        raise SpeclaError(f"{key}=: is empty; give a path, or null for none")
    if (override is None and len(pieces) == 1) or (lone and value is not None and not isinstance(value, str)):
        # Of what is no file here, an interpolation is one.
        interpolates = re.search(r"\$\{[^}]+\}", text)
        return parse(f"{key}={QuotedString(text, Quote.single).with_quotes() if interpolates else spell(text)}")
    return override


def path_text(key: str, text: str) -> str | None:
    """A path that is typed where nothing is swept over: as it is, but for `null` and quotes around the whole of it.

    Raises:
        SpeclaError: there is no text.
    """
    value = text.strip()
    if value.lower() == "null":
        return None
    if not _exists(text) and re.fullmatch(r"(['\"]).*\1", value, re.DOTALL):
        value = value[1:-1]
    if not value:
        raise SpeclaError(f"{key}=: is empty; give a path")
    return text if _exists(text) else value


def how_to_quote(key: str, text: str) -> str:
    """What to type for a value that the grammar does not take."""
    if len(text) > MOST_SHOWN or not text.isprintable():
        return "put text with other characters than letters, digits and / . : _ - in quotes"
    told = f"to mean this text, quote it within the word: {_in_a_shell(key, spell(text))}"
    if "," in text:
        pieces = ",".join(spell(piece.strip()) for piece in text.split(","))
        told += f"; to mean several, each: {_in_a_shell(key, pieces)}"
    return told


def _in_a_shell(key: str, value: str) -> str:
    """A word as a shell takes it; in double quotes, which read best about single ones, where they hold it all."""
    word = f"{key}={value}"
    return shlex.quote(word) if re.search(r'["$`\\!]', word) or not word.isprintable() else f'"{word}"'


def printable(word: str) -> str:
    """A word as a message repeats it: on one line, and not longer than MOST_SHOWN characters."""
    return escaped(word[:MOST_SHOWN]) + "..." * (len(word) > MOST_SHOWN)


def _exists(text: str) -> bool:
    """Whether there is a file or folder of this name."""
    return bool(text.strip()) and os.path.exists(located(text))
