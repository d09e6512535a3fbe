"""Chat templates of checkpoints: where they are found, what they make of turns, and hostile ones in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from specla.errors import SpeclaError
from specla.models.chat import MOST_BYTES, ChatTemplate, Turn, plain, read_chat_template

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TURNS = (Turn("system", "Be brief."), Turn("user", " Hello "))


def write(folder: Path, **config: Any) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a_template_ends_where_the_model_answers(tmp_path: Path) -> None:
    found = read_chat_template(write(tmp_path, chat_template=CHATML, bos_token={"content": "<s>", "special": True}))
    assert found is not None
    assert found.render(TURNS) == (
        "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert plain(TURNS) == "Be brief.\n\n Hello "


def test_where_templates_are_found(tmp_path: Path) -> None:
    assert read_chat_template(tmp_path) is None
    assert read_chat_template(write(tmp_path, bos_token="<s>")) is None
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ eos_token }}"}]
    found = read_chat_template(write(tmp_path, chat_template=named, eos_token="</s>"))
    assert found is not None and found.render(TURNS) == "</s>"
    (tmp_path / "chat_template.jinja").write_text("{{ messages | length }}{{ eos_token }}")
    newer = read_chat_template(tmp_path)
    assert newer is not None and newer.render(TURNS) == "2</s>"


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}",
        "{{ messages[9].content }}",
        "{{ raise_exception('Conversation roles\nmust alternate') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ 1 / 0 }}",
        "{{ undefined_function() }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(10000000) %}x{% endfor %}",
        "{{ '\ud800' }}",
    ],
)
def test_a_template_that_fails_is_one_line(template: str) -> None:
    with pytest.raises(SpeclaError) as caught:
        ChatTemplate("FOLDER/tokenizer_config.json", template).render(TURNS)
    line = str(caught.value)
    assert line.startswith("FOLDER/tokenizer_config.json: the chat template cannot be applied (")
    assert "\n" not in line and len(line) < 300


def test_a_template_that_makes_too_much_is_refused() -> None:
    with pytest.raises(SpeclaError, match="makes 16,777,217 characters of a conversation"):
        ChatTemplate("x", f"{{{{ 'x' * {MOST_BYTES + 1} }}}}").render(TURNS)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "tokenizer_config.json: not valid JSON"),
        (b"[]", "tokenizer_config.json: a JSON object was expected"),
        (b"[" * 100_000, "tokenizer_config.json: not valid JSON"),
        (b'{"chat_template": 3}', "tokenizer_config.json: chat_template is no text"),
        (b'{"chat_template": [{"name": "a"}, {"name": "b"}]}', "keep one template there, or one named default"),
        (b"\xff", "tokenizer_config.json: not UTF-8 (byte 0)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_files_are_told(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(SpeclaError) as caught:
        read_chat_template(tmp_path)
    assert told in str(caught.value) and "\n" not in str(caught.value)
