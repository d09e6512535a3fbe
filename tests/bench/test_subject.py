"""What is decoded of prompts: conversations as the model's own template puts them, and no empty ones."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from specla.bench.plan import plan
from specla.bench.settings import Settings
from specla.bench.subject import Subject, Target
from specla.bench.workloads.prompt import Prompt
from specla.errors import SpeclaError
from specla.models.chat import ChatTemplate, Turn

TEMPLATE = ChatTemplate(
    "FOLDER/chat_template.jinja", "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}>"
)
TALK = Prompt("talk", "all", "Hello\n\nHi", (Turn("user", "Hello"), Turn("assistant", "Hi")))
TEXT = Prompt("text", "all", "Hello")


class Characters:
    """A token a character; `?` has none."""

    digest = "characters"

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text if character != "?"]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


def settings(*words: str) -> Settings:
    return plan("bench e2e", words).cells[-1].settings


def subject(chat: ChatTemplate | None, *prompts: Prompt, words: tuple[str, ...] = ()) -> Subject:
    model: Any = SimpleNamespace(config=SimpleNamespace(eos_token_id=()))
    return Subject(Target(model, Characters(), "digest", chat=chat), settings(*words), 2, prompts)


def test_a_conversation_is_put_by_the_models_template_and_a_text_is_not() -> None:
    put = subject(TEMPLATE, TALK, TEXT)
    assert [prompt.text for prompt in put.prompts] == ["[user]Hello[assistant]Hi>", "Hello"]
    assert put.notes == ("workload=heldout: turns are put together by the chat template of FOLDER/chat_template.jinja",)
    joined = subject(None, TALK, TEXT)
    assert [prompt.text for prompt in joined.prompts] == ["Hello\n\nHi", "Hello"]
    assert joined.notes == ("workload=heldout: turns are joined by blank lines: the model has no chat template",)
    assert subject(TEMPLATE, TEXT).notes == ()


def test_prompts_that_are_cut_are_counted() -> None:
    long = replace(TEXT, text="Hello, all")
    cut = subject(None, TEXT, long, long, words=("workload.prompt_tokens=5",))
    told = "2 of 3 prompts were cut to their last 5 tokens (workload.prompt_tokens)"
    assert cut.notes == (f"workload=heldout: {told}",)
    assert cut._ids == [[ord(character) for character in text] for text in ("Hello", ", all", ", all")]
    assert subject(None, long, words=("workload.prompt_tokens=null",)).notes == ()


def test_the_digest_covers_the_template_where_it_matters() -> None:
    other = replace(TEMPLATE, text="{{ messages[0].content }}")
    assert len({subject(chat, TALK).digest for chat in (None, TEMPLATE, other)}) == 3
    assert len({subject(chat, TEXT).digest for chat in (None, TEMPLATE, other)}) == 1


def test_a_template_that_refuses_a_prompt_names_it() -> None:
    refusing = ChatTemplate("FOLDER/x.jinja", "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(
        SpeclaError, match=r"^workload=heldout: prompt 'talk': FOLDER/x.jinja: .*roles must alternate, line 1\)$"
    ):
        subject(refusing, TALK)


@pytest.mark.parametrize("words", [(), ("workload.batch=2",), ("workload.prompt_tokens=null",)])
def test_a_prompt_without_tokens_is_refused_alone_or_in_a_batch(words: tuple[str, ...]) -> None:
    for prompts in ([Prompt("empty", "all", "")], [TEXT, Prompt("empty", "all", "???")]):
        with pytest.raises(SpeclaError, match=r"^workload=heldout: prompt 'empty' has no tokens$"):
            subject(None, *prompts, words=words)
