"""Paths as users type them, in words that Hydra's grammar does not take, and values spelled for it."""

import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from specla.bench.cells import Cell
from specla.bench.compose import composer
from specla.bench.confdir import conf_dir
from specla.bench.plan import composed_yaml, plan
from specla.bench.quoting import path_text, spell
from specla.bench.settings import dials, paths
from specla.errors import SpeclaError
from specla.train.options import target_options
from tests.factory import typed_again

ODD = [
    "/x/epoch=3-step=100", "(", "{", "/x/{a}", "#1", "a&b", "it's", "Grüße", "a b", "~/models/x", "/x/[draft]", "日本",
    'say "hi"', "a!b;c", "C:\\dir\\", "1e3", "007", "1_000", "true", "[a]", "{a:1}", "'/x/a", "a^b|c<d>", "@x", "+x",
    "/x/${", "$",
]  # fmt: skip


def cell_of(*words: str) -> Cell:
    return plan("bench e2e", words).cells[-1]


def test_the_dials_that_hold_paths() -> None:
    assert paths(dials()) == {"model.path", "drafter.path", "drafter.profile", "workload.path"}


@pytest.mark.parametrize("path", ODD)
def test_a_lone_path_is_what_was_typed(path: str) -> None:
    for words in ([f"model.path={path}"], ["workload=dataset", f"workload.path={path}"]):
        cell = cell_of(*words)
        assert path in (cell.settings.model.path, cell.settings.workload.path)
        # The words that a record keeps, typed again as the shell splits them, give the same cell.
        again = plan("bench e2e", typed_again(cell)).cells[-1]
        assert again.config_hash == cell.config_hash
        assert path in yaml.safe_load(composed_yaml("bench e2e", words))[words[-1].split(".")[0]].values()
    assert plan("generate", [f"model.path={path}"]).cells[0].settings.model.path == path


def test_words_that_hydra_reads_stay_hydras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/here")
    for text, path in (
        ("'/a b/c=d,e'", "/a b/c=d,e"),
        ('"/x/a=1"', "/x/a=1"),
        ("${oc.env:PLACE}/x", "/here/x"),
        ("asset:gdn-mini", "asset:gdn-mini"),
        ("owner/name", "owner/name"),
    ):
        assert cell_of(f"model.path={text}").settings.model.path == path
    swept = plan("bench e2e", ["workload=dataset", "workload.path=a.txt,b.txt"]).cells
    assert {cell.settings.workload.path for cell in swept} == {"a.txt", "b.txt"}
    assert cell_of("model.path=null", "model.weights=random").settings.model.path is None


def test_what_exists_is_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [
        "a,b.jsonl",
        "choice(a,b)",
        "${x}",
        "\\${x}",
        "a\\",
        "[a,b]",
        "x=1,y=2",
        "'quoted'",
        "step=1",
        "step=2",
        "~x.txt",
    ]
    for name in names:
        Path(name).write_text("text\n")
        cells = plan("bench e2e", ["workload=dataset", f"workload.path={name}"]).cells
        assert {cell.settings.workload.path for cell in cells} == {name}
        again = plan("bench e2e", typed_again(cells[-1])).cells[-1]
        assert again.config_hash == cells[-1].config_hash
    swept = plan("bench e2e", ["workload=dataset", "workload.path=step=1,step=2"]).cells
    assert {cell.settings.workload.path for cell in swept} == {"step=1", "step=2"}


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("model.path=", "model.path=: is empty; give a path, or null for none"),
        ("model.path=''", "model.path=: is empty; give a path, or null for none"),
        (
            "model.path=/x/(a),/x/b",
            "model.path=/x/(a),/x/b: not in Hydra's grammar; to mean this text, quote it within the word: "
            "\"model.path='/x/(a),/x/b'\"; to mean several, each: \"model.path='/x/(a)',/x/b\"",
        ),
        (
            "workload.column=Frage (deutsch)",
            "workload.column=Frage (deutsch): not in Hydra's grammar; to mean this text, quote it within the word: "
            "\"workload.column='Frage (deutsch)'\"",
        ),
        ("workload.column=a\n(", "workload.column=a\\n(: not in Hydra's grammar; put text with other characters than"),
        ("seed=1,,2", "seed=1,,2: not in Hydra's grammar; give one value, or several as in a,b"),
        ("model.path=\udcff", "model.path=\\udcff: not UTF-8; rename what it names"),
        ("seed=" + "[" * 1000, "seed=[[["),
        ("workload.column=" + "(" * 5000, "workload.column=((("),
    ],
)
def test_what_cannot_be_helped_says_how_to_quote(word: str, told: str) -> None:
    with pytest.raises(SpeclaError) as caught:
        cell_of("workload=dataset", word)
    line = str(caught.value)
    assert line.startswith(told)
    assert "Exception" not in line and line.isprintable() and len(line) < 500


def test_what_a_message_says_to_type_is_read() -> None:
    with pytest.raises(SpeclaError) as caught:
        cell_of("workload=dataset", "workload.path=/x/(a),$b")
    alone, several = (text.partition(": ")[2] for text in str(caught.value).split("; ")[1:])
    shown = [plan("bench e2e", ["workload=dataset", *shlex.split(typed)]).cells for typed in (alone, several)]
    found = [{cell.settings.workload.path for cell in cells} for cells in shown]
    assert found == [{"/x/(a),$b"}, {"/x/(a)", "$b"}]


def test_a_category_that_reads_as_true_is_a_text() -> None:
    cell = cell_of("workload.categories=[true,false,7,'']")
    assert cell.settings.workload.categories == ("true", "false", "7", "")
    assert "workload.categories=['true','false','7','']" in cell.overrides


@given(st.text(alphabet=st.one_of(st.sampled_from("${}\\'\" ,=()[]a#~\n"), st.characters(exclude_categories=["Cs"]))))
@example("${a}")
@example("\\\\${a}\\")
@example(".5")
@example("Ä")
@example("")
def test_what_is_spelled_is_read_back(text: str) -> None:
    source = composer(conf_dir(), None)
    words = (f"workload.column={spell(text)}", f"workload.categories={spell([text, 'a'])}")
    workload = source.settings((), words).workload
    assert (workload.column, workload.categories) == (text, (text, "a"))


def test_paths_of_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("/x/epoch=3 #1", "007", "2024-01-01", "a: b", "[a]", "it's", "true"):
        assert path_text("out", text) == text
    assert [path_text("start", text) for text in ("null", "'a b'", '"a"')] == [None, "a b", "a"]
    Path("'a'").write_text("")
    assert path_text("out", "'a'") == "'a'"
    with pytest.raises(SpeclaError, match="out=: is empty"):
        path_text("out", "")


def test_a_training_goes_where_it_is_told() -> None:
    words = ["model=gdn-tiny", "model.path=/x/(a=1)", "out=/x/a=1 #2", "corpus=007", "steps=3"]
    _, options = target_options(words)
    assert (str(options.out), str(options.corpus), options.steps) == ("/x/a=1 #2", "007", 3)
