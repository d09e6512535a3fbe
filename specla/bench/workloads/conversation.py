"""A prompt from a cell: a text as it is, or turns as ShareGPT, chat models and MT-bench write them."""

import json
from collections.abc import Mapping
from typing import Any

from specla.bench.workloads.shown import described, listed, quoted
from specla.models.chat import USER, Turn

FIRST, ALL = "first", "all"
"""What `workload.turns` takes: the first user turn alone, or the conversation up to its last one."""
MOST_TEXT = 1 << 24
"""Characters of a prompt: more than any model reads."""
MOST_NAME = 1000
"""Characters of an id or a category: records repeat them."""

_ROLE, _CONTENT = ("role", "from"), ("content", "value")
_USERS = (USER, "human", "prompter")
_SAME_ROLE = {**dict.fromkeys(_USERS, USER), **dict.fromkeys(("gpt", "chatgpt", "bot", "model"), "assistant")}
"""What data sets call the two sides; another role is left as it is, for the template to know."""


class NoPromptError(Exception):
    """Why a cell is no prompt, without its place."""


def read_prompt(value: Any, which: str) -> str | tuple[Turn, ...]:
    """The text in a cell, or the turns of a conversation.

    Args:
        value: of the cell; null is an empty text.
        which: FIRST or ALL.

    Raises:
        NoPromptError: it is neither, or too long, or holds what no text has.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return checked(value)
    if not isinstance(value, list):
        raise NoPromptError(f"{described(value)}, which is no text")
    if not value:
        return ""
    try:
        roles = [_role(item, place) for place, item in enumerate(value, start=1)]
    except NoPromptError as problem:
        raise NoPromptError(f"{described(value)}, which is no text and no conversation: {problem}") from None
    users = [place for place, role in enumerate(roles) if role == USER]
    if not users:
        raise NoPromptError(f"a conversation without a user turn; its roles are {listed(dict.fromkeys(roles))}")
    taken = users[:1] if which == FIRST else range(users[-1] + 1)
    return tuple(Turn(roles[place], _turn_text(value[place], place + 1)) for place in taken)


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
    name = _first(item, _ROLE)
    if not isinstance(name, str):
        raise NoPromptError(f"turn {place:,} has no {' or '.join(_ROLE)}")
    return _SAME_ROLE.get(name.lower(), checked(name.lower()))


def _turn_text(item: Any, place: int) -> str:
    content = item if isinstance(item, str) else _first(item, _CONTENT)
    parts = content if isinstance(content, list) else [content]
    texts = list[str]()
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) and _is_text(part) else part
        if not isinstance(text, str):
            raise NoPromptError(f"turn {place:,} holds {described(text)}, which is no text")
        texts.append(text)
    return checked("".join(texts))


def _is_text(part: Mapping[str, Any]) -> bool:
    """Whether a part of a message is text: images and tool calls are left for the message to tell."""
    return part.get("type", "text") in ("text", "input_text")


def _first(item: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((item[name] for name in names if item.get(name) is not None), None)


def as_name(value: Any) -> str | None:
    """An id or a category: text as it is, anything else as JSON spells it; None where there is none.

    Raises:
        NoPromptError: it is longer than a name, or holds what no text has.
    """
    # A number that is missing in a table of numbers is NaN.
    if value is None or value != value:
        return None
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError):
        raise NoPromptError(f"{described(value)}, which is no name") from None
    if len(text) > MOST_NAME:
        raise NoPromptError(f"{quoted(text)}, {len(text):,} characters; a name has at most {MOST_NAME:,}")
    return checked(text)
