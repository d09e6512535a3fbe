"""JSON files from elsewhere: looked at before they are read, and read as what they say or not at all."""

import json
from pathlib import Path
from typing import Any

from specla.errors import SpeclaError
from specla.models.plain_file import size_of

MOST_BYTES = 64 << 20
"""Of one file: the index of the largest models takes a tenth of it."""


def read_object(file: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        FileNotFoundError: there is no such file.
        SpeclaError: it is no plain file, too large or too deep, not JSON, no object, or has a key twice.
    """
    size = size_of(file)
    if size is None:
        raise FileNotFoundError(file)
    if size > MOST_BYTES:
        raise SpeclaError(f"{file}: {size:,} bytes; no such file is larger than {MOST_BYTES:,}")
    try:
        return parse_object(file.read_bytes(), str(file))
    except OSError as problem:
        raise SpeclaError(f"{file}: cannot be read ({problem.strerror or problem})") from None


def parse_object(content: bytes | str, where: str) -> dict[str, Any]:
    """The object in a JSON text; `where` it stands is for messages. Raises SpeclaError as `read_object` does."""
    try:
        found = json.loads(content, object_pairs_hook=lambda pairs: _once(pairs, where))
    except ValueError as damage:
        raise SpeclaError(f"{where}: not valid JSON ({damage})") from None
    except RecursionError:
        raise SpeclaError(f"{where}: not valid JSON (nested too deeply)") from None
    if not isinstance(found, dict):
        raise SpeclaError(f"{where}: a JSON object was expected")
    return found


def _once(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    # Python would take the last of two values, others the first: which one is meant is not for us to guess.
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise SpeclaError(f"{where}: the key {key[:60]!r} is there twice; leave one")
        found[key] = value
    return found
