"""Prompt files as they are typed: dry runs that open them, and runs that say and keep what was made of them."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("workload.path=missing.jsonl", "workload.path=missing.jsonl: no such file"),
        ("workload.path=few.txt", "workload.prompts=8: dataset holds 2; give at most that"),
        (
            "workload.path=few.txt workload.column=prompt",
            "workload.column=prompt: workload.path=few.txt: there is no such column; set it to",
        ),
        ("workload.path=few.txt workload.prompts=1 topology=auto", "measured leave 1 of the 2 prompts"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would(words: str, told: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    code, out, err = run(f"specla bench e2e --dry-run workload=dataset {words}")
    assert (code, out) == (2, "") and told in err and err.count("\n") == 1


def test_a_dry_run_tells_of_every_file_of_a_sweep(run: Run, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    code, out, err = run(
        "specla bench e2e --dry-run workload=dataset workload.path=few.txt,missing.txt workload.prompts=1"
    )
    assert code == 4 and out
    assert "workload.path=few.txt: 2 prompts, the first: 'one'\n" in err
    assert "workload.path=missing.txt: no such file: its cells fail\n" in err


def test_what_was_made_of_a_file_is_said_and_kept(run: Run, tmp_path: Path) -> None:
    talk = [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}, {"from": "human", "value": "Bye"}]
    rows = [{"conversations": talk}, {"conversations": []}, {"conversations": talk[:1]}]
    name = "it's, (1) step=3 #ä.ndjson"
    (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = "model=gdn-tiny engine.verify=ar threads=1 measure=quick measure.repeats=1 measure.warmup=0"
    words += " workload=dataset workload.max_new_tokens=4"
    command = f'specla bench e2e {words} workload.prompts=null workload.turns=all "workload.path={name}"'
    blank = f"workload.path={name}: 1 of 3 rows hold no text (line 2) and are left out"
    code, out, err = run(f"{command} --dry-run")
    held = f"workload.path={name}: 2 prompts, the first: "
    assert code == 0 and all(err.count(note) == 1 for note in (held, blank)) and out
    code, _, err = run(command)
    joined = "workload=dataset: turns are joined by blank lines: the model has no chat template"
    (log,) = Path("runs").glob("*/log.txt")
    # One repeat is no interval.
    assert code == 3 and all(note in text for note in (blank, joined) for text in (err, log.read_text()))
    typed = yaml.safe_load((log.parent / "config.yaml").read_text())
    assert typed["first"]["workload"]["path"] == name


def test_a_dry_run_lists_what_is_left_beside_a_bad_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    code, out, err = run(
        "specla bench e2e --dry-run workload=dataset drafter=ngram workload.path=few.txt,missing.txt workload.prompts=1"
    )
    held, left = err.splitlines()
    assert code == 4 and out and held == "workload.path=few.txt: 2 prompts, the first: 'one'"
    assert left.startswith("workload.path=missing.txt: no such file") and left.endswith(": its cells fail")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/nope", "model.path=/nope: no such folder"),
        ("file", "model.path=file: is a file; name the folder that holds config.json"),
        ("empty", "empty: no config.json; name the folder of a gated delta net checkpoint"),
        ("damaged", "damaged/config.json: not valid JSON"),
        ("asset:nope", "model.path=asset:nope: no such bundled model; there are: gdn-mini"),
    ],
)
def test_a_dry_run_refuses_a_model_that_is_not_there(path: str, told: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    code, out, err = run(f"specla bench e2e --dry-run drafter=ngram model.path={path}")
    assert (code, out) == (2, "") and err.startswith(f"specla: {told}") and err.count("\n") == 1
    for drafter in ("ngram", "aligned"):
        code, out, err = run(f"specla bench e2e --dry-run drafter={drafter} model.path={path},asset:gdn-mini")
        held, *left = err.splitlines()
        assert code == 4 and out and held.startswith("workload=heldout: 120 prompts")
        assert left[0].startswith(told) and err.count(": its cells fail\n") == 1


def test_a_dry_run_leaves_a_hub_model_to_the_run(run: Run) -> None:
    code, out, err = run("specla bench e2e --dry-run drafter=ngram model.path=own/model")
    assert code == 0 and out and "\nmodel.path=own/model: no such folder here; a run asks the hub" in err
