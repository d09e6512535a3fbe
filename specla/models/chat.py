"""Conversations as a checkpoint's own chat template puts them, rendered by `transformers` in its sandbox.

A template is remote data: whatever goes wrong in one is one line. No torch.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specla.errors import SpeclaError, first_line

TEMPLATE_FILE, CONFIG_FILE = "chat_template.jinja", "tokenizer_config.json"
USER = "user"
MOST_BYTES = 16 << 20
"""Of a file with a template, and of what a template makes of a conversation."""
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
"""Special tokens of CONFIG_FILE that templates name."""


@dataclass(frozen=True)
class Turn:
    """What one side of a conversation says; `role` is user, assistant, system, or another that a template knows."""

    role: str
    text: str


def plain(turns: Sequence[Turn]) -> str:
    """A conversation for a model without a template: the texts alone, a blank line between them."""
    return "\n\n".join(turn.text for turn in turns)


@dataclass(frozen=True)
class ChatTemplate:
    """The chat template of a checkpoint.

    Attributes:
        file: where it comes from, for messages.
        text: in Jinja.
        tokens: special tokens by name.
    """

    file: str
    text: str = field(repr=False)
    tokens: tuple[tuple[str, str], ...] = ()

    def render(self, turns: Sequence[Turn]) -> str:
        """The text of a conversation, up to where the model is to answer.

        Raises:
            SpeclaError: the template is damaged, refuses these turns, or makes more than MOST_BYTES of them.
        """
        # Loaded for conversations alone.
        from transformers.utils.chat_template_utils import render_jinja_template

        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        try:
            tokens: dict[str, Any] = dict(self.tokens)
            texts: Any = render_jinja_template(
                [messages], chat_template=self.text, add_generation_prompt=True, **tokens
            )
            text = str(texts[0][0])
            text.encode()
        except Exception as error:  # a template may raise anything that Python does
            reason = " ".join(f"{type(error).__name__}: {first_line(error)}".split())[:200]
            raise SpeclaError(f"{self.file}: the chat template cannot be applied ({reason})") from None
        if len(text) > MOST_BYTES:
            raise SpeclaError(f"{self.file}: the chat template makes {len(text):,} characters of a conversation")
        return text


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """The chat template of a checkpoint folder: of TEMPLATE_FILE, else of CONFIG_FILE; None where it has none.

    Raises:
        SpeclaError: a file is damaged, or has several templates and none called default.
    """
    config = _config(folder / CONFIG_FILE)
    tokens = tuple((name, token) for name in _TOKENS if (token := _token(config.get(name))) is not None)
    file = folder / TEMPLATE_FILE
    if file.is_file():
        return ChatTemplate(str(file), _text(file), tokens)
    found, file = config.get("chat_template"), folder / CONFIG_FILE
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default", next(iter(named.values())) if len(named) == 1 else found)
    if found is None:
        return None
    if not isinstance(found, str):
        raise SpeclaError(f"{file}: chat_template is no text; keep one template there, or one named default")
    return ChatTemplate(str(file), found, tokens)


def _config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        read = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise SpeclaError(f"{file}: not valid JSON ({first_line(error)[:200]})") from None
    if not isinstance(read, dict):
        raise SpeclaError(f"{file}: a JSON object was expected")
    return read


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise SpeclaError(f"{file}: is over {MOST_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpeclaError(f"{file}: not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise SpeclaError(f"{file}: cannot be read ({error.strerror})") from None


def _token(value: Any) -> str | None:
    """A special token, which is a text or an object that holds it."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None
