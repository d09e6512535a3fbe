"""A prompt from a cell: a text as it is, or turns as ShareGPT, chat models and MT-bench write them."""

import json
import re
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from specla.bench.workloads.parse import CONVERSATIONS, ROLES
from specla.bench.workloads.shown import described, listed, quoted
from specla.models.chat import USER, Turn

FIRST, ALL = "first", "all"
"""What `workload.turns` takes: the first user turn alone, or the conversation up to its last one."""
MOST_TEXT = 1 << 24
"""Characters of a prompt: more than any model reads."""
MOST_NAME = 1000
"""Characters of an id or a category: records repeat them."""
_JSON = (str, int, float, list, tuple, dict)

_CONTENT = ("content", "value")
_LIST = re.compile(r"\s*\[\s*(\{\s*)?['\"].*\]\s*\Z", re.DOTALL)
"""How a list of texts or objects begins and ends, in JSON or as Python spells it; `[INST]` is none."""
_CALLS = ("tool_calls", "function_call")
_USERS = (USER, "human", "prompter")
_SAME_ROLE = {**dict.fromkeys(_USERS, USER), **dict.fromkeys(("gpt", "chatgpt", "bot", "model"), "assistant")}
"""What data sets call the two sides; another role is left as it is, for the template to know."""


class NoPromptError(Exception):
    """Why a cell is no prompt, without its place."""


class LeftOutError(NoPromptError):
    """Why a row is left out, as the end of `3 of 8 rows ...`: a data set may hold a few such beside good ones."""


def read_prompt(value: Any, which: str, texts: bool = True) -> str | tuple[Turn, ...]:
    """The text in a cell, or the turns of a conversation.

    Args:
        value: of the cell; null is an empty text.
        which: FIRST or ALL.
        texts: whether a list of bare texts is a conversation, as it is in the columns of CONVERSATIONS.

    Raises:
        LeftOutError: it is a conversation without a user turn, or a turn that is taken holds more than text.
        NoPromptError: it is neither, or too long, or holds what no text has.
    """
    if value is None:
        return ""
    if isinstance(value, str) and texts:
        value = _unpacked(value)
    if isinstance(value, str):
        return checked(value)
    if not isinstance(value, list):
        raise NoPromptError(f"{described(value)}, which is no text")
    if not value:
        return ""
    if not texts and any(isinstance(item, str) for item in value):
        raise NoPromptError(
            f"{described(value)}, which is no text; write one text a row, or rename the column {CONVERSATIONS[0]} if "
            "these are the user's turns"
        )
    try:
        roles = [_role(item, place) for place, item in enumerate(value, start=1)]
    except NoPromptError as problem:
        raise NoPromptError(f"{described(value)}, which is no text and no conversation: {problem}") from None
    users = [place for place, role in enumerate(roles) if role == USER]
    if not users:
        raise LeftOutError("hold a conversation without a user turn")
    taken = users[:1] if which == FIRST else range(users[-1] + 1)
    return tuple(Turn(roles[place], _turn_text(value[place], place + 1)) for place in taken)


def _unpacked(text: str) -> Any:
    """What stands in a cell of a conversation: a list that a table of texts keeps as JSON, or the text itself.

    Raises:
        NoPromptError: it is a list as Python spells it, which may be a text as well.
    """
    if _LIST.match(text) is None:
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise NoPromptError(f"{quoted(text)}, a list but not in JSON; write the column with json.dumps") from None
    return found if all(isinstance(item, str | dict) for item in found) else text


def holds_prompt(value: Any, texts: bool) -> bool:
    """Whether a cell holds a text that is not blank, or a conversation."""
    try:
        read = read_prompt(value, FIRST, texts)
    except NoPromptError:
        return False
    return bool(read.strip() if isinstance(read, str) else read)


def checked(text: str) -> str:
    """A text that can be encoded and is not too long. Raises NoPromptError."""
    if len(text) > MOST_TEXT:
        raise NoPromptError(f"{described(text)}; a prompt has at most {MOST_TEXT:,}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = ascii(text[error.start])
        raise NoPromptError(f"half of a surrogate pair, {found}, at character {error.start + 1:,}: no text") from None
    return text


def _role(item: Any, place: int) -> str:
    """Whose turn an item is; a bare text is the user's."""
    if isinstance(item, str):
        return USER
    if not isinstance(item, Mapping):
        raise NoPromptError(f"turn {place:,} is {described(item)}")
    name = _first(item, ROLES)
    if not isinstance(name, str):
        raise NoPromptError(f"turn {place:,} has no {' or '.join(ROLES)}")
    return _SAME_ROLE.get(name.lower(), checked(name.lower()))


def _turn_text(item: Any, place: int) -> str:
    content = item if isinstance(item, str) else _first(item, _CONTENT)
    if content is None and isinstance(item, Mapping) and not any(name in item for name in (*_CONTENT, *_CALLS)):
        there = listed(name for name in item if name not in ROLES)
        raise NoPromptError(f"turn {place:,} has no {' or '.join(_CONTENT)}" + (f", but {there}" if there else ""))
    parts = content if isinstance(content, list) else [content]
    texts = list[str]()
    for part in parts:
        if part is None or (isinstance(part, Mapping) and not _is_text(part)):
            raise LeftOutError("hold a turn with images, tool calls or other parts that are no text")
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise NoPromptError(f"turn {place:,} holds {described(text)}, which is no text")
        texts.append(text)
    return checked("".join(texts))


def _is_text(part: Mapping[str, Any]) -> bool:
    """Whether a part of a message is text, not an image or a tool call."""
    return part.get("type", "text") in ("text", "input_text")


def _first(item: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((item[name] for name in names if item.get(name) is not None), None)


def as_name(value: Any) -> str | None:
    """An id or a category: text as it is, anything else as JSON or ISO 8601 spells it; None where there is none.

    Raises:
        NoPromptError: it is longer than a name, or holds what no text has.
    """
    # A number that is missing in a table of numbers is NaN.
    if value is None or value != value:
        return None
    try:
        whole = value if isinstance(value, _JSON) else _spelled(value)
        text = whole if isinstance(whole, str) else json.dumps(whole, ensure_ascii=False, default=_spelled)
    except (RecursionError, TypeError, ValueError):
        raise NoPromptError(f"{described(value)}, which is no name") from None
    if len(text) > MOST_NAME:
        raise NoPromptError(f"{quoted(text)}, {len(text):,} characters; a name has at most {MOST_NAME:,}")
    return checked(text)


def _spelled(value: Any) -> str:
    """A value that JSON has no spelling for. Raises TypeError for what has none of its own, ValueError for bytes."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, timedelta | UUID):
        return str(value)
    raise TypeError
