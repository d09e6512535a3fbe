"""Conversations as a checkpoint's own chat template puts them, in a process of their own, see `chat_process`.

A template is a program from elsewhere: whatever goes wrong in one, endless loops among it, is one line. No torch.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specla.errors import MeasurementError, SpeclaError, first_line
from specla.models.plain_file import size_of

TEMPLATE_FILE, CONFIG_FILE = "chat_template.jinja", "tokenizer_config.json"
USER = "user"
MOST_BYTES = 16 << 20
"""Of a file with a template, and of what a template makes of a conversation."""
MOST_SECONDS = 5.0
"""Of processor time for one conversation: those of a thousand turns take a hundredth."""
_PROCESS = Path(__file__).with_name("chat_process.py")
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

    def render(self, conversations: Sequence[tuple[str, Sequence[Turn]]], seconds: float = MOST_SECONDS) -> list[str]:
        """The texts of conversations, up to where the model is to answer.

        Args:
            conversations: each with what a message calls it.
            seconds: of processor time that one may take.

        Raises:
            SpeclaError: the template is damaged, refuses a conversation, takes too long or too much memory over one, or
                makes more than MOST_BYTES of it.
            MeasurementError: this machine ended the process that applies it.
        """
        asked = {"template": self.text, "tokens": dict(self.tokens), "seconds": seconds, "bytes": MOST_BYTES}
        talks = [[{"role": turn.role, "content": turn.text} for turn in turns] for _, turns in conversations]
        done = subprocess.run(
            # Without -P the script's own folder would be searched for modules first.
            [sys.executable, "-P", str(_PROCESS)],
            input="".join(json.dumps(line) + "\n" for line in (asked, *talks)),
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        answers = [json.loads(line) for line in done.stdout.split("\n") if line.endswith("}")]
        texts = [answer["text"] for answer in answers if "text" in answer]
        if len(texts) <= len(talks):
            # The first answer is about the template itself.
            name = f"{conversations[len(texts) - 1][0]}: " if texts else ""
            raise self._failed(name, answers, done, seconds)
        return self._held(conversations, texts[1:])

    def _held(self, conversations: Sequence[tuple[str, Sequence[Turn]]], texts: list[str]) -> list[str]:
        """The texts. Raises SpeclaError where what the conversations say is not in them."""
        for (name, _), text in zip(conversations, texts, strict=True):
            if not text.strip():
                raise SpeclaError(f"{name}: {self.file}: the chat template makes no text of it; correct it")
        different = len({tuple(turns) for _, turns in conversations})
        if different > 1 and len(set(texts)) == 1:
            raise SpeclaError(
                f"{self.file}: the chat template makes one text of {different:,} conversations, {texts[0][:60]!r}; it "
                "leaves out what they say: correct it"
            )
        return texts

    def _failed(
        self, name: str, answers: list[dict[str, str]], done: subprocess.CompletedProcess[str], seconds: float
    ) -> SpeclaError | MeasurementError:
        """What to say of a conversation, or the template itself, that the process gave no text for."""
        what = f"{name}{self.file}: the chat template cannot be applied"
        if answers and "error" in answers[-1]:
            return SpeclaError(f"{what} ({' '.join(answers[-1]['error'].split())[:300]})")
        if done.returncode == -signal.SIGPROF:
            return SpeclaError(f"{what} (it takes over {seconds:g} s of processor time); correct it")
        if done.returncode in (-signal.SIGSEGV, -signal.SIGABRT):
            return SpeclaError(f"{what} (its process ended with {signal.Signals(-done.returncode).name})")
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1][:200]
        return MeasurementError(f"{what}: its process was ended ({said})")


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """The chat template of a checkpoint folder: of TEMPLATE_FILE, else of CONFIG_FILE; None where it has none.

    Raises:
        SpeclaError: a file is damaged, or has several templates and none called default.
    """
    config = _config(folder / CONFIG_FILE)
    tokens = tuple((name, token) for name in _TOKENS if (token := _token(config.get(name))) is not None)
    file = folder / TEMPLATE_FILE
    if size_of(file) is not None:
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
    if size_of(file) is None:
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
