"""Generated documents: the arithmetic is right, the splits are apart, the repetitions repeat."""

import ast
import re
from collections.abc import Callable
from itertools import islice
from random import Random

import pytest

from specla.train.arithmetic import Template, Worked
from specla.train.arithmetic_more import TEMPLATES
from specla.train.generators import SplitName, arithmetic_documents, problems, repeat_documents, split_of_question
from specla.train.repeats import recited, records
from specla.train.sources import Document

CODE = '''import os


class Reader:
    def lines(self, folder, suffix):
        """Lines of the folder's files; suffix tells which."""
        found = []
        for name in os.listdir(folder):
            if name.endswith(suffix):
                path = os.path.join(folder, name)
                # the folder stays as it is
                found.append((path, "folder"))
        return found
'''
PROSE = "\n\n".join(
    f"The {word} house stood by the river, and nobody in the village remembered who had built it. "
    f"Every evening a {word} lamp was lit in its highest window.\nIn winter the lamp burned until the morning."
    for word in ("old", "red", "tall", "low", "grey", "white")
)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: str(template.__name__).strip("_"))
def test_every_written_step_is_right_and_no_answer_is_negative(template: Template) -> None:
    for seed in range(200):
        worked = Worked(Random(seed))
        question = template(worked)
        steps = re.findall(r"(\d+) ([-+*/]) (\d+) = (-?\d+)", " ".join(worked.sentences))
        assert len(steps) == len(worked.sentences) >= 2
        for left, sign, right, result in steps:
            expected = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}
            assert int(result) == (expected[sign] if sign != "/" else int(left) / int(right)), question
        assert worked.answer == int(steps[-1][3]) >= 0
        assert question.endswith("?") and "{" not in question
        assert not re.search(r"\b1 (seats|hours|books|litres)\b", question), question


@pytest.mark.parametrize(
    ("start", "formula"),
    [
        (r"\w+ buys (\d+) \w+ at (\d+) dollars each and pays with (\d+) dollars", lambda n: n[2] - n[0] * n[1]),
        (
            r"A train leaves \w+ for \w+ at (\d+) km per hour. After (\d+) hours it still has (\d+)",
            lambda n: n[0] * n[1] + n[2],
        ),
        (r"\w+ scores (\d+), (\d+) and (\d+) points", lambda n: sum(n) / 3),
        (r"A triangle has a base of (\d+) cm and a height of (\d+) cm", lambda n: n[0] * n[1] / 2),
        (
            r"A (?:coat|chair|radio|clock|table|mirror) costs (\d+) dollars. .* gets (\d+) percent",
            lambda n: n[0] * (100 - n[1]) / 100,
        ),
        (r"\w+ and \w+ are (\d+) km apart. .* at (\d+) km per hour, .* at (\d+) km", lambda n: n[0] / (n[1] + n[2])),
    ],
)
def test_the_answer_solves_the_question(start: str, formula: Callable[[list[int]], float]) -> None:
    solved = 0
    for problem in islice(problems(3, "train"), 1500):
        found = re.match(start, problem.question)
        if found:
            answer = int(re.findall(r"The answer is (\d+)\.$", problem.answer)[0])
            assert answer == formula([int(number) for number in found.groups()]), problem.text
            solved += 1
    assert solved > 10


def test_training_and_heldout_never_share_a_question() -> None:
    train = {problem.question for seed in (0, 1) for problem in islice(problems(seed, "train"), 15_000)}
    heldout = {problem.question for problem in islice(problems(0, "heldout"), 2_000)}
    assert not train & heldout
    assert all(split_of_question(question) == "heldout" for question in heldout)
    # Drawn without the rule the two would meet: the triangle alone has few combinations.
    assert len(train) < 30_000


def test_streams_depend_on_nothing_but_their_arguments() -> None:
    def texts(seed: int, split: SplitName) -> list[str]:
        return [document.text for document in islice(arithmetic_documents(seed, split), 20)]

    assert texts(5, "train") == texts(5, "train")
    assert texts(5, "train") != texts(6, "train")
    assert not set(texts(5, "train")) & set(texts(5, "heldout"))


def test_arithmetic_documents_have_the_format() -> None:
    for document in islice(arithmetic_documents(2, "train"), 50):
        for part in document.text.removesuffix("\n").split("\n\n"):
            assert re.fullmatch(r"Question: [^\n]+\?\nAnswer: [^\n]+ The answer is \d+\.", part)


def test_records_come_again() -> None:
    for seed in range(300):
        text, (start, end) = records(Random(seed))
        assert 0 < start < end <= len(text)
        first = [re.sub(r"\d\d:\d\d:\d\d", "", line) for line in text[:start].split("\n")]
        second = [re.sub(r"\d\d:\d\d:\d\d", "", line) for line in text[start:end].split("\n")]
        new = [line for line in second if line not in first]
        # A table may come again with one cell changed, which shows in every row that holds it at most once.
        assert len(new) <= (1 if "changed to" in text else 0), text


def test_prose_is_recited_word_for_word() -> None:
    told = 0
    for seed in range(100):
        made = recited(Random(seed), Document("book", "prose", "a", PROSE))
        if made:
            text, (start, end) = made
            assert text[start:end] in PROSE and text[start:end] in text[:start]
            told += 1
    assert told > 30


def test_a_renamed_function_is_the_same_program_with_another_name() -> None:
    renamed = 0
    for seed in range(60):
        made = recited(Random(seed), Document("lib", "code", "a.py", CODE))
        assert made is not None
        text, (start, end) = made
        first, second = re.findall(r"```python\n(.*?)\n```", text, re.DOTALL)
        assert second == text[start:end]
        names = re.search(r"with `(\w+)` renamed to `(\w+)`", text)
        if not names:
            assert first == second
            continue
        renamed += 1
        old, new = names.groups()
        tree = ast.parse(second)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == new:
                node.id = old
            if isinstance(node, ast.arg) and node.arg == new:
                node.arg = old
        assert ast.dump(tree) == ast.dump(ast.parse(first))
        # Words in comments and strings are no names.
        assert '"folder"' in second and "# the folder stays" in second and "the folder's files" in second
    assert renamed > 20


def test_repeats_recite_only_what_they_are_given() -> None:
    given = [Document("book", "prose", "a", PROSE), Document("sums", "arithmetic", "b", "Question: " + "secret " * 80)]
    documents = list(islice(repeat_documents(given, 1, "train"), 100))
    assert sum("river" in document.text for document in documents) > 30
    assert not any("secret" in document.text for document in documents)
    assert all(document.again for document in documents)
    assert list(islice(repeat_documents([], 1, "train"), 5))
