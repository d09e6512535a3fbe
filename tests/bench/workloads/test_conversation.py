"""Prompts from cells: texts, and conversations as their data sets write them."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.bench.workloads.conversation import ALL, FIRST, MOST_TEXT, LeftOutError, NoPromptError, as_name, read_prompt
from specla.models.chat import Turn

SHAREGPT = [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "Hello"},
    {"from": "gpt", "value": "Hi"},
    {"from": "human", "value": "Again"},
    {"from": "gpt", "value": "Hi again"},
]
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "User", "content": [{"type": "text", "text": "Hel"}, {"type": "input_text", "text": "lo"}]},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": "Again"},
    {"role": "assistant", "content": None, "tool_calls": [{}]},
]
WHOLE = (Turn("system", "Be brief."), Turn("user", "Hello"), Turn("assistant", "Hi"), Turn("user", "Again"))


@pytest.mark.parametrize("conversation", [SHAREGPT, MESSAGES])
def test_the_first_turn_or_all_up_to_the_last_question(conversation: list[object]) -> None:
    assert read_prompt(conversation, FIRST) == (Turn("user", "Hello"),)
    assert read_prompt(conversation, ALL) == WHOLE


def test_bare_texts_are_the_users_turns() -> None:
    assert read_prompt(["Write.", "Again."], FIRST) == (Turn("user", "Write."),)
    assert read_prompt(["Write.", "Again."], ALL) == (Turn("user", "Write."), Turn("user", "Again."))


def test_a_role_that_is_not_known_is_left_to_the_template() -> None:
    turns = [{"role": "tool", "content": "4"}, {"role": "user", "content": "So?"}]
    assert read_prompt(turns, ALL) == (Turn("tool", "4"), Turn("user", "So?"))


def test_what_holds_no_text() -> None:
    assert [read_prompt(value, FIRST) for value in (None, "", [], "null", " 12 ")] == ["", "", "", "null", " 12 "]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (12, "12, a number, which is no text"),
        (True, "true, a truth value, which is no text"),
        ({"a": 1}, "an object of 1, {'a': 1}, which is no text"),
        (b"abc", "a byte string of 3, b'abc', which is no text"),
        ([{"prompt": "word " * 2000}] * 50, "a list of 50, [{'prompt': 'word word word"),
        ([1, 2], "a list of 2, [1, 2], which is no text and no conversation: turn 1 is 1, a number"),
        ([{"content": "a"}], "no conversation: turn 1 has no role or from"),
        ([{"role": "system", "content": "a"}], "hold a conversation without a user turn"),
        ([{"role": "user", "content": 5}], "turn 1 holds 5, a number, which is no text"),
        ([{"role": "user", "content": "\ud800"}], "half of a surrogate pair, '\\ud800', at character 1: no text"),
        ("ab\udfffc", "half of a surrogate pair, '\\udfff', at character 3: no text"),
        ("x" * (MOST_TEXT + 1), "text of 16,777,217 characters, 'xxx"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_is_no_prompt_is_described_in_a_line(value: object, told: str) -> None:
    with pytest.raises(NoPromptError) as caught:
        read_prompt(value, FIRST)
    assert told in str(caught.value)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 250


@pytest.mark.parametrize("content", [None, [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "x"}]])
def test_a_turn_of_more_than_text_is_left_out_where_it_is_taken(content: object) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "tool", "content": content}, {"role": "user", "content": "b"}]
    assert read_prompt(turns, FIRST) == (Turn("user", "a"),)
    with pytest.raises(LeftOutError, match=r"^hold a turn with images, tool calls or other parts that are no text$"):
        read_prompt(turns, ALL)


def test_a_list_of_texts_is_a_conversation_only_where_it_is_said_to_be_one() -> None:
    told = r"^a list of 2, \['a', 'b'\], which is no text; write one text a row, or rename the column turns"
    with pytest.raises(NoPromptError, match=told):
        read_prompt(["a", "b"], FIRST, texts=False)
    assert read_prompt([{"role": "user", "content": "a"}], FIRST, texts=False) == (Turn("user", "a"),)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["role", "from", "content", "value", "x"]), inner),
)


@given(json_values, st.sampled_from([FIRST, ALL]))
def test_any_value_is_a_prompt_or_a_line(value: object, which: str) -> None:
    line = "-"
    try:
        read_prompt(value, which)
        as_name(value)
    except NoPromptError as error:
        line = str(error)
    assert line.isprintable() and len(line) < 700


def test_names_are_text_and_other_values_as_json_spells_them() -> None:
    values = ["7", "", 7, 7.0, True, {"$oid": "ä"}, ["a", 1], None, float("nan")]
    assert [as_name(value) for value in values] == [
        "7", "", "7", "7.0", "true", '{"$oid": "ä"}', '["a", 1]', None, None,
    ]  # fmt: skip
    moment = datetime(2024, 1, 31, 12, 30, tzinfo=UTC)
    stored = [Decimal("1.50"), Decimal("1E+3"), moment, moment.date(), "ä".encode(), timedelta(hours=1), [moment]]
    assert [as_name(value) for value in stored] == [
        "1.50", "1000", "2024-01-31T12:30:00+00:00", "2024-01-31", "ä", "1:00:00", '["2024-01-31T12:30:00+00:00"]',
    ]  # fmt: skip
    for nameless in (b"\xff", object()):
        with pytest.raises(NoPromptError, match="which is no name"):
            as_name(nameless)
    with pytest.raises(NoPromptError, match="1,001 characters; a name has at most 1,000"):
        as_name("x" * 1001)


@pytest.mark.parametrize("spelled", [json.dumps(["Write.", "Again."]), ' [ "Write.", "Again."]\n'])
def test_a_table_of_texts_keeps_a_conversation_as_json(spelled: str) -> None:
    assert read_prompt(spelled, ALL) == (Turn("user", "Write."), Turn("user", "Again."))
    assert read_prompt(json.dumps(MESSAGES), ALL) == WHOLE
    # In a column of texts it is one.
    assert read_prompt(spelled, ALL, texts=False) == spelled


@pytest.mark.parametrize("text", ["[INST] Hello [/INST]", "[1, 2]", "[]", "['a", '["a", 1]', "a ['b']"])
def test_a_text_in_brackets_is_a_text(text: str) -> None:
    assert read_prompt(text, FIRST) == text


@pytest.mark.parametrize("spelled", ["['Write.', 'Again.']", str(SHAREGPT), '["a", None]'])
def test_a_conversation_as_python_spells_it_is_refused(spelled: str) -> None:
    with pytest.raises(NoPromptError, match=r"a list but not in JSON; write the column with json.dumps"):
        read_prompt(spelled, FIRST)


def test_a_turn_without_its_text_says_what_it_has() -> None:
    with pytest.raises(NoPromptError, match=r"^turn 1 has no content or value, but text, when$"):
        read_prompt([{"role": "user", "text": "a", "when": 1}], FIRST)
