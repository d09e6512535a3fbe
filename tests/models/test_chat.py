"""Chat templates of checkpoints: where they are found, what they make of turns, and hostile ones in one line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specla.errors import MeasurementError, SpeclaError
from specla.models import chat
from specla.models.chat import MOST_BYTES, ChatTemplate, Turn, plain, read_chat_template

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TURNS = (Turn("system", "Be brief."), Turn("user", " Hello "))


def write(folder: Path, **config: Any) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def put(found: ChatTemplate | None, seconds: float = 5.0) -> str:
    assert found is not None
    (text,) = found.render([("prompt 'a'", TURNS)], seconds)
    return text


def test_a_template_ends_where_the_model_answers(tmp_path: Path) -> None:
    found = read_chat_template(write(tmp_path, chat_template=CHATML, bos_token={"content": "<s>", "special": True}))
    assert put(found) == (
        "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert plain(TURNS) == "Be brief.\n\n Hello "


def test_where_templates_are_found(tmp_path: Path) -> None:
    assert read_chat_template(tmp_path) is None
    assert read_chat_template(write(tmp_path, bos_token="<s>")) is None
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ eos_token }}"}]
    found = read_chat_template(write(tmp_path, chat_template=named, eos_token="</s>"))
    assert put(found) == "</s>"
    (tmp_path / "chat_template.jinja").write_text("{{ messages | length }}{{ eos_token }}")
    assert put(read_chat_template(tmp_path)) == "2</s>"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ messages[9].content }}", "UndefinedError: list object has no element 9, line 1"),
        ("a\n{{ raise_exception('Roles\nmust alternate') }}", "TemplateError: Roles must alternate, line 2"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError: access to attribute '__class__'"),
        ("{{ namespace(a=1).__init__ }}{{ namespace(_a=1) }}", "SecurityError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ undefined_function() }}", "UndefinedError: 'undefined_function' is undefined"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% for i in range(10000000) %}x{% endfor %}", "OverflowError: Range too big"),
        ("{{ '\ud800' }}", "UnicodeEncodeError"),
        ("{{ 'x' * 10 ** 11 }}", "MemoryError"),
        (f"{{{{ 'x' * {MOST_BYTES + 1} }}}}", "makes 16,777,217 characters of a conversation"),
    ],
)
def test_a_template_that_fails_is_one_line(template: str, told: str) -> None:
    with pytest.raises(SpeclaError) as caught:
        put(ChatTemplate("FOLDER/x.jinja", template))
    line = str(caught.value)
    assert line.startswith("prompt 'a': FOLDER/x.jinja: the chat template cannot be applied (")
    assert told in line and "\n" not in line and len(line) < 400


def test_a_template_that_is_none_is_told_without_a_prompt() -> None:
    """For no conversation at all, too."""
    for talks in ([], [("prompt 'a'", TURNS)]):
        with pytest.raises(SpeclaError, match=r"^x: the chat template .*: Unexpected end of template.*, line 2\)$"):
            ChatTemplate("x", "\n{% for m in messages %}").render(talks)
    assert ChatTemplate("x", "{{ messages }}").render([]) == []


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n }}{% endmacro %}{{ f(99) }}",
        "{% for n in [[1, [1]]] recursive %}{% for a in range(99999) %}{{ loop.cycle(range(99999)) }}{% endfor %}"
        "{% endfor %}",
        # One operation that no check between two of Python's would see, in the template and while it is compiled.
        "{% set power = (messages | length + 7) ** 10000000 %}{{ (power ** power) | length }}",
        "{{ 7 ** (9 ** 9) }}",
    ],
    ids=["loops", "macros", "cycles", "power", "constant"],
)
def test_a_template_without_an_end_is_ended(template: str) -> None:
    with pytest.raises(SpeclaError, match=r"the chat template cannot be applied \(it takes over 0.2 s of"):
        put(ChatTemplate("x", template), seconds=0.2)


def test_a_template_without_what_is_said_is_refused() -> None:
    talks = [("first", TURNS[:1]), ("second", TURNS)]
    with pytest.raises(
        SpeclaError, match=r"^x: the chat template makes one text of 2 conversations, 'Hello'; it leaves"
    ):
        ChatTemplate("x", "Hello").render(talks)
    assert ChatTemplate("x", "Hello").render([talks[0], talks[0]]) == ["Hello"] * 2
    for blank in ("", "{# nothing #}", "{% for m in messages %}{% endfor %} \n"):
        with pytest.raises(SpeclaError, match=r"^first: x: the chat template makes no text of it; correct it$"):
            ChatTemplate("x", blank).render(talks)


def test_the_conversation_that_fails_is_named() -> None:
    template = ChatTemplate("x", "{{ 1 / (messages | length - 2) }}")
    talks = [("first", TURNS[:1]), ("second", TURNS), ("third", TURNS[:1])]
    assert template.render([talks[0], talks[2]]) == ["-1.0", "-1.0"]
    with pytest.raises(SpeclaError, match=r"^second: x: .*ZeroDivisionError"):
        template.render(talks)


def test_a_process_that_cannot_start_is_no_fault_of_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_PROCESS", Path("/nowhere/process.py"))
    with pytest.raises(MeasurementError, match=r"its process was ended \(.*No such file"):
        put(ChatTemplate("x", "a"))


def test_a_template_loads_neither_specla_nor_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing from the folder that a user stands in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jinja2.py").write_text("raise SystemExit(3)")
    assert put(ChatTemplate("x", "a")) == "a"
    code = f"import runpy, sys; runpy.run_path({str(chat._PROCESS)!r}, run_name='x'); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "jinja2" in loaded and not {"torch", "specla", "transformers"} & set(loaded)


@pytest.mark.slow
def test_templates_mean_what_they_mean_to_transformers() -> None:
    """Which takes seconds to load; line by line what templates of public models do."""
    from transformers.utils.chat_template_utils import render_jinja_template

    template = """
    {%- set ns = namespace(count=0, system=none) %}
    {%- for m in messages if m.role != 'none' %}
      {%- if loop.first and m.role == 'system' %}{% set ns.system = m.content | trim %}{% continue %}{% endif %}
      {%- set ns.count = ns.count + 1 %}
      {% generation %}<|{{ m['role'] }}|>{{ m.content }}{% set ns.count = ns.count + 1 %}{% endgeneration %}
      {{ {'é': [1, ns.count], 'a': none} | tojson(indent=1) }}{{ m | tojson }}
      {% if ns.count > 5 %}{% break %}{% endif %}
    {% endfor %}
    {{ strftime_now('%Y') | length }} {{ dict(a=1).items() | list }} {{ ns.system }} {{ tools is none }}
    {{ documents is none }} {{ unknown is defined }} {{ bos_token }} {{ 'x'.upper() }} {{ messages[-1].content[:2] }}
    {% if add_generation_prompt -%}  <|assistant|>
    {% endif %}"""
    messages = [{"role": turn.role, "content": turn.text} for turn in TURNS]
    (wanted,), _ = render_jinja_template(
        [messages], chat_template=template, add_generation_prompt=True, bos_token="<s>"
    )
    assert put(ChatTemplate("x", template, (("bos_token", "<s>"),))) == wanted


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
@pytest.mark.parametrize(("make", "told"), [(os.mkfifo, "is a named pipe"), (os.mkdir, "is a folder")])
def test_what_is_no_file_is_not_passed_over(make: Callable[[Path], None], told: str, name: str, tmp_path: Path) -> None:
    make(tmp_path / name)
    with pytest.raises(SpeclaError, match=f"{name}: {told}, not a plain file"):
        read_chat_template(tmp_path)


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
