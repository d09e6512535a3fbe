"""Text that repeats: records of one shape, a passage told twice, code with one name changed.

Every maker returns the text and the span (start, end in characters) of the second telling, which is where a drafter
that looks back can copy.
"""

import builtins
import io
import json
import keyword
import re
import tokenize
from random import Random

from specla.train.arithmetic import GOODS, NAMES, PLACES
from specla.train.sources import Document

Repeat = tuple[str, tuple[int, int]]

_STATES = ("open", "closed", "pending", "shipped", "paid", "returned", "active", "draft")
_LEVELS = ("INFO", "WARNING", "ERROR", "DEBUG")
_ACTIONS = ("GET /items", "POST /orders", "connection opened", "cache miss for key", "job finished", "user signed in")
_NEW_NAMES = (
    *("total", "result", "entry", "buffer", "current", "target", "record", "limit"),
    *("index_value", "payload", "handle_name", "source_text"),
)
_KEPT_NAMES = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "self", "cls"})
_QUOTES = (
    ("{0}\n\nHere is the same text once more:\n\n", "\n"),
    ("Original:\n\n{0}\n\nCopy:\n\n", "\n"),
    ("{0}\n\nAs it was said above:\n\n", "\n"),
    ("Please repeat the following text.\n\n{0}\n\nRepeated:\n\n", "\n"),
)


def _told_twice(before: str, first: str, between: str, second: str, after: str) -> Repeat:
    start = len(before) + len(first) + len(between)
    return f"{before}{first}{between}{second}{after}", (start, start + len(second))


def records(random: Random) -> Repeat:
    """CSV, JSON, log lines or a list, made from word lists: the rows come in cycles, or the whole is given twice."""
    return random.choice((_csv, _json_lines, _log, _list_twice, _json_twice, _table_edit))(random)


def _rows(random: Random, count: int) -> list[dict[str, str | int]]:
    return [
        {
            "id": random.randint(100, 999),
            "name": random.choice(NAMES),
            "city": random.choice(PLACES),
            "item": random.choice(GOODS),
            "count": random.randint(1, 60),
            "status": random.choice(_STATES),
        }
        for _ in range(count)
    ]


def _columns(random: Random) -> list[str]:
    columns = random.sample(["name", "city", "item", "count", "status"], random.randint(3, 5))
    return ["id", *columns] if random.random() < 0.5 else columns


def _cycled(random: Random, head: str, lines: list[str], cycles: int) -> Repeat:
    """Lines in cycles: the first cycle is new, all later ones repeat it."""
    first = "".join(f"{line}\n" for line in lines)
    return _told_twice(head, first, "", first * (cycles - 1), "")


def _csv(random: Random) -> Repeat:
    columns = _columns(random)
    lines = [",".join(str(row[column]) for column in columns) for row in _rows(random, random.randint(2, 5))]
    return _cycled(random, ",".join(columns) + "\n", lines, random.randint(3, 4))


def _json_lines(random: Random) -> Repeat:
    columns = _columns(random)
    lines = [json.dumps({column: row[column] for column in columns}) for row in _rows(random, random.randint(2, 3))]
    return _cycled(random, "", lines, 3)


def _log(random: Random) -> Repeat:
    """Log lines whose clock goes on while host, level and message come back."""
    host, day = random.choice(PLACES).lower(), f"2024-{random.randint(1, 12):02d}-{random.randint(1, 28):02d}"
    messages = [
        f"{random.choice(_LEVELS)} {random.choice(_ACTIONS)} {random.randint(1, 99)}"
        for _ in range(random.randint(2, 3))
    ]
    second = random.randint(0, 3000)
    lines = []
    for number in range(3 * len(messages)):
        clock = f"{9 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        lines.append(f"{day} {clock} {host} {messages[number % len(messages)]}\n")
        second += random.choice((1, 1, 2, 5))
    return _told_twice("", "".join(lines[: len(messages)]), "", "".join(lines[len(messages) :]), "")


def _list_twice(random: Random) -> Repeat:
    words = random.sample(GOODS + PLACES + NAMES, random.randint(8, 16))
    listed = "".join(f"{number + 1}. {word}\n" for number, word in enumerate(words))
    name = random.choice(NAMES)
    return _told_twice(f"{name} reads the list:\n", listed, f"\n{name} reads the list again:\n", listed, "")


def _json_twice(random: Random) -> Repeat:
    row = _rows(random, 1)[0]
    shown = json.dumps({"order": row, "notes": random.sample(GOODS, 3)}, indent=2)
    return _told_twice("Request:\n", shown, "\n\nResponse:\n", shown, "\n")


def _table_edit(random: Random) -> Repeat:
    """A table, then the same with one cell changed."""
    columns = _columns(random)
    rows = _rows(random, random.randint(3, 5))
    first = "".join("| " + " | ".join(str(row[column]) for column in columns) + " |\n" for row in rows)
    chosen, column = random.choice(rows), random.choice(columns)
    old = chosen[column]
    chosen[column] = _rows(random, 1)[0][column]
    second = "".join("| " + " | ".join(str(row[column]) for column in columns) + " |\n" for row in rows)
    return _told_twice("", first, f"\nWith {column} {old} changed to {chosen[column]}:\n\n", second, "")


def recited(random: Random, document: Document) -> Repeat | None:
    """A passage of the document told twice, or None where it has no fitting one.

    Code comes back with one name changed or as it was; prose and documentation are quoted or recited in a dialogue.
    """
    if document.category == "code":
        return _renamed(random, document.text)
    passage = _passage(random, document.text)
    if passage is None:
        return None
    if random.random() < 0.35:
        asked, reciting = random.sample(NAMES, 2)
        opening = (
            f"{asked}: Listen to this.\n\n{passage}\n\n{asked}: Can you say it again, {reciting}?\n{reciting}: Yes.\n\n"
        )
        before, between = opening.split(passage, 1)
        return _told_twice(before, passage, between, passage, f"\n\n{asked}: That was right.\n")
    template, after = random.choice(_QUOTES)
    before, between = template.split("{0}")
    return _told_twice(before, passage, between, passage, after)


def _passage(random: Random, text: str) -> str | None:
    """A few whole lines or sentences of 150 to about 900 characters."""
    wanted = random.choice((150, 200, 250, 300, 300, 400, 600, 900))
    starts = [0, *(found.end() for found in re.finditer(r"\n\n+", text))]
    start = random.choice(starts)
    part = text[start : start + wanted]
    ends = [found.end() for found in re.finditer(r"[.!?;:]['\")]?(?=\s)|(?=\n)", part)]
    passage = part[: ends[-1]].strip("\n") if ends else ""
    letters = sum(map(str.isalpha, passage))
    return passage if len(passage) >= 120 and letters > 0.6 * len(passage) else None


def _renamed(random: Random, text: str) -> Repeat | None:
    """One function of the code, then the same with one name replaced (or, now and then, unchanged)."""
    functions = list(re.finditer(r"^([ \t]*)(?:async )?def \w+\(.*\n(?:(?:\1[ \t]+.*)?\n){2,24}", text, re.MULTILINE))
    functions = [found for found in functions if 120 <= len(found.group().strip("\n")) <= 1200]
    if not functions:
        return None
    chosen = random.choice(functions)
    indent = chosen.group(1)
    lines = chosen.group().strip("\n").split("\n")
    code = "\n".join(line.removeprefix(indent) for line in lines)
    places = _name_places(code)
    names = sorted(name for name, found in places.items() if len(found) >= 2)
    if not names or random.random() < 0.2:
        return _told_twice("```python\n", code, "\n```\n\nThe same code again:\n\n```python\n", code, "\n```\n")
    old = random.choice(names)
    new = random.choice([name for name in _NEW_NAMES if name not in code])
    edited = code
    for start in reversed(places[old]):
        edited = edited[:start] + new + edited[start + len(old) :]
    between = f"\n```\n\nThe same code with `{old}` renamed to `{new}`:\n\n```python\n"
    return _told_twice("```python\n", code, between, edited, "\n```\n")


def _name_places(code: str) -> dict[str, list[int]]:
    """Where each plain name of three letters or more stands in the code, attributes and words in text left out."""
    line_starts = [0, *(found.end() for found in re.finditer("\n", code))]
    places: dict[str, list[int]] = {}
    previous = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            plain = token.type == tokenize.NAME and previous not in (".", "def", "class", "import", "from")
            if plain and re.fullmatch("[a-z][a-z_]{2,}", token.string) and token.string not in _KEPT_NAMES:
                places.setdefault(token.string, []).append(line_starts[token.start[0] - 1] + token.start[1])
            previous = token.string
    except (tokenize.TokenError, SyntaxError):
        return {}
    return places
