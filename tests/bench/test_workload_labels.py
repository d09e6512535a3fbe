"""Workloads of one name that read different files are different workloads, wherever they are named."""

from pathlib import Path

import pytest

from specla.bench.plan import plan
from specla.bench.planned import planned_record
from specla.bench.record import Method, Record
from specla.bench.settings import WorkloadSettings
from specla.bench.summary import build_document
from specla.bench.workload_labels import source_of, workload_labels, workload_of
from specla.cli.results import print_plan, print_results
from specla.report.build import build_report
from specla.report.load import load_runs
from specla.report.markdown import report_markdown
from specla.report.style import Plot
from specla.report.tables import sections
from tests.factory import ar_record, decode_record, write_run

TREE = Method("tree", "factors", "ngram", "chain-d3")
BOTH = ("dataset (d1/prompts.txt)", "dataset (d2/prompts.txt)")


def two_files(**own: object) -> list[Record]:
    """AR and a method on two files of one name; `source` stands in the record or, as in older ones, in the words."""
    records = []
    for folder, speedup in (("d1", 1.6), ("d2", 1.2)):
        words = (f"workload.path={folder}/prompts.txt", "workload=dataset")
        common = {"workload": "dataset", "overrides": words, "fingerprint": folder, **own}
        records += [ar_record(**common), decode_record(TREE, speedup, **common)]
    return records


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        (("",), ("heldout",)),
        (("a/b/p.txt",), ("heldout (p.txt)",)),
        (("a/p.txt", "b/p.txt", "b/q.txt"), ("heldout (a/p.txt)", "heldout (b/p.txt)", "heldout (q.txt)")),
        (("p.txt", "a/p.txt"), ("heldout (p.txt)", "heldout (a/p.txt)")),
        (("/x/a/p.txt", "/y/a/p.txt"), ("heldout (x/a/p.txt)", "heldout (y/a/p.txt)")),
        (("/p.txt", "p.txt"), ("heldout (/p.txt)", "heldout (p.txt)")),
        (("hub:own/set, split test",), ("heldout (own/set, split test)",)),
        (("p.csv, column a", "p.csv, column b"), ("heldout (p.csv, column a)", "heldout (p.csv, column b)")),
    ],
)
def test_a_label_has_as_much_of_the_folder_as_it_takes(sources: tuple[str, ...], told: tuple[str, ...]) -> None:
    assert tuple(workload_labels([("heldout", source) for source in sources])) == told


def test_what_a_workload_reads() -> None:
    assert source_of(WorkloadSettings("heldout")) == ""
    assert source_of(WorkloadSettings("dataset", path="./d1//p.txt", column="q")) == "d1/p.txt, column q"
    assert source_of(WorkloadSettings("dataset", dataset="own/set", split="test")) == "hub:own/set, split test"
    (cell, *_) = plan("bench e2e", ["workload=dataset", "workload.path=d1/p.txt", "drafter=ngram"]).cells
    record = planned_record(cell, "f", "cpu", "float32")
    assert record.source == "d1/p.txt" and workload_of(record) == ("dataset", "d1/p.txt")


def test_the_terminal_and_a_dry_run_tell_files_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    print_results(build_document(two_files(), "bench e2e", "run", "CPU"))
    out = capsys.readouterr().out
    assert all(out.count(name) == 2 for name in BOTH)
    monkeypatch.chdir(tmp_path)
    for folder in ("d1", "d2"):
        Path(folder).mkdir()
        Path(folder, "prompts.txt").write_text("One.\n")
    print_plan(
        plan("bench e2e", ["workload=dataset", "workload.path=d1/prompts.txt,d2/prompts.txt", "drafter=ngram"]), {}
    )
    out = capsys.readouterr().out
    assert all(out.count(name) == 2 for name in BOTH)


def test_a_report_keeps_files_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plot, "png", lambda *_: None)
    text = (build_report([write_run(tmp_path, two_files())], tmp_path / "out").path / "report.md").read_text()
    for name in BOTH:
        rows = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert len(rows) == 2 and "1 (baseline)" in rows[0], "each has its own AR"
        assert text.count(f"{name}: the fastest is") == 1 and f"{name}: 1 prompt" in text
    assert "ahead of" not in text, "one method on one workload has no rival"


def test_several_runs_keep_files_apart_and_one_is_named(tmp_path: Path) -> None:
    first, second = two_files()[:2], two_files()[2:]
    loaded = load_runs([write_run(tmp_path, first, slug="one"), write_run(tmp_path, second, slug="two")])
    assert loaded.repeated == 0 and set(loaded.cells.workload) == set(BOTH)
    alone = load_runs([write_run(tmp_path / "alone", first)])
    text = report_markdown(alone, [], [(one, []) for one in sections(alone)], "passed")
    assert "| dataset (prompts.txt) |" in text
