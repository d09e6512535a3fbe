"""Whole reports: files, bytes, words, and what happens to the folder."""

import csv
import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specla.bench.record import Lossless, Method, Record, Status
from specla.errors import SpeclaError
from specla.report.build import build_report
from specla.report.evidence import interval_text
from specla.report.load import load_runs
from specla.report.markdown import report_markdown
from specla.report.plots import speedup_plot, split_plot
from specla.report.style import Plot
from specla.report.tables import markdown, sections
from tests.disk import full
from tests.factory import ENV, alpha_sweep, ar_record, bench_run, decode_record, kernel_record, unmeasured, write_run

PLOTS = ("category", "depth", "speedup", "speedup-alpha", "split")


def failed(record: Record, reason: str) -> Record:
    return Record(**{**vars(record), **unmeasured(record, Status.FAILED, reason)})


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    records = bench_run()
    records[2] = failed(records[2], "out of memory")
    runs = [write_run(root, records, slug="e2e"), write_run(root, alpha_sweep(), slug="acceptance")]
    return build_report(runs, root / "reports" / "main").path


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is most of a build's time and shows nothing where bytes of text are compared."""
    monkeypatch.setattr(Plot, "png", lambda *_: None)


def texts(folder: Path) -> dict[str, bytes]:
    kept = [path for path in folder.rglob("*") if path.suffix in (".md", ".csv", ".json", ".jsonl", ".yaml")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def test_every_plot_has_its_picture_and_its_figures(report: Path) -> None:
    assert sorted(path.stem for path in report.glob("*.png")) == sorted(PLOTS)
    assert sorted(path.stem for path in report.glob("*.csv")) == sorted((*PLOTS, "cells", "claims"))
    assert all(
        path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000 for path in report.glob("*.png")
    )
    text = (report / "report.md").read_text()
    assert all(f"({name}.png)" in text and f"({name}.csv)" in text for name in PLOTS)
    assert not [path for path in report.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0, 10.0])
def test_words_in_place_of_a_bar_stand_clear_of_the_line_of_ar(factor: float, tmp_path: Path) -> None:
    records = bench_run()
    index = next(i for i, record in enumerate(records) if record.method.verify not in ("ar", "tree"))
    records[index] = failed(records[index], "out of memory")
    records = [faster(record, factor) for record in records]
    (section,) = sections(load_runs([write_run(tmp_path, records)]))
    plot = speedup_plot(section)
    assert plot is not None
    plot.figure.draw_without_rendering()
    boxes = [
        text.get_window_extent().transformed(axes.transData.inverted())
        for axes in plot.figure.axes
        for text in axes.texts
        if text.get_text() in ("failed", "not measured")
    ]
    assert boxes and all(box.x1 < 1 or box.x0 > 1 for box in boxes)


def faster(record: Record, factor: float) -> Record:
    """The same decode, AR taking that many times as long beside it."""
    samples = tuple(replace(sample, ar_seconds=sample.ar_seconds * factor) for sample in record.samples)
    return record if record.method.verify == "ar" else replace(record, samples=samples)


@pytest.mark.usefixtures("no_pictures")
def test_the_same_records_give_the_same_bytes(report: Path, tmp_path: Path) -> None:
    again = build_report([report], tmp_path / "main")
    assert texts(again.path) == texts(report)
    build_report([again.path], again.path)
    assert texts(again.path) == texts(report)
    runs = sorted((report / "records").iterdir(), reverse=True)
    assert texts(build_report(runs, tmp_path / "other").path) == texts(report)


@pytest.mark.usefixtures("no_pictures")
def test_a_torn_run_is_partial_again_when_rebuilt(tmp_path: Path) -> None:
    run = write_run(tmp_path, [ar_record(), decode_record()])
    with open(run / "records.jsonl", "a") as file:
        file.write('{"schema": 1')
    first = build_report([run], tmp_path / "out")
    assert first.document["status"] == "partial"
    before = texts(first.path)
    assert "Partial: run-0123456789ab: line 3 of records.jsonl" in before["report.md"].decode()
    shutil.rmtree(run)
    assert texts(build_report([first.path], first.path).path) == before


def test_the_document_is_the_contracts(report: Path) -> None:
    document = json.loads((report / "summary.json").read_text())
    assert {"schema", "command", "status", "run", "device", "cells", "claims"} == set(document)
    assert document["status"] == "failed" and document["command"] == "report"
    assert {claim["id"] for claim in document["claims"]} == {"E2E", "VERIFY", "RECOVER", "DEFER", "ACCEPT", "PERFECT"}
    assert all(set(claim["measured"] or {}) <= {"low", "high", "median"} for claim in document["claims"])


def test_the_csv_gives_the_speedups_back(report: Path) -> None:
    rows = list(csv.DictReader((report / "speedup.csv").open()))
    tree = next(r for r in rows if r["method"] == "tree" and r["tree"] == "chain-d4" and r["panel"] == "gsm8k")
    assert float(tree["speedup"]) == pytest.approx(1.52, rel=0.05)
    assert float(tree["low"]) <= float(tree["speedup"]) <= float(tree["high"]) and tree["n"] == "5"
    lost = next(r for r in rows if r["status"] == "failed")
    assert lost["speedup"] == lost["low"] == ""


def test_report_opens_with_the_claims_and_ends_with_the_machine(report: Path) -> None:
    text = (report / "report.md").read_text()
    places = [
        text.index(f"\n## {name}") for name in ("Claims", "Reading", "gdn-mini, float32, NVIDIA H200", "Measured on")
    ]
    assert places == sorted(places)
    foot = text[places[-1] :]
    for fact in ("NVIDIA H200", "570.86", "2026-08-01", "torch 2.9.0", ENV["commit"], "uncommitted edits: no"):
        assert fact in foot
    assert "out of memory" in text and "chain verifies chains only" in text
    assert "54 of them have synthetic acceptance" in text


def reading(folder: Path, records: list[Record], **changes: Any) -> str:
    run = write_run(folder, records, **changes)
    loaded = load_runs([run])
    text = report_markdown(loaded, [], [(section, []) for section in sections(loaded)], "passed")
    return text[text.index("## Reading") :]


def test_reading_is_computed(tmp_path: Path) -> None:
    common: dict[str, Any] = {"noise": 0.001}
    fast = decode_record(Method("tree", "factors", "aligned", "chain-d3"), 1.5, **common)
    near = decode_record(
        Method("hybrid", "factors", "aligned", "chain-d3"), 1.25, lossless=Lossless.NEAR_TIE, near_ties=2, **common
    )
    slow = decode_record(Method("sequential_replay", "snapshot", "aligned", "chain-d3"), 0.5, **common)
    made_up = decode_record(Method("tree", "factors", "oracle", "chain-d3"), 2.0, synthetic=True, **common)
    foreign = decode_record(Method("ar", engine="fla-generate"), 0.4, (), nodes=1, **common)
    text = reading(tmp_path, [ar_record(), fast, near, slow, made_up, foreign])
    assert "heldout: the fastest is tree + factors, oracle, chain-d3 (synthetic), 2.00x" in text
    assert "Without made-up acceptance it is tree + factors, aligned, chain-d3, 1.50x." in text
    assert "33.3 % ahead of tree + factors, aligned, chain-d3." in text.replace("33.2 %", "33.3 %").replace(
        "33.4 %", "33.3 %"
    )
    assert "Speculation does not pay in 1 of 4 cells" in text and "sequential_replay (always, down to 0.50x)" in text
    assert "Other AR, as a multiple of ours: fla-generate 0.40x" in text
    assert "heldout: 1 prompt at batch 1, greedy" in text
    assert "5 cells exact, 1 with near ties (2 of 1000 positions)" in text
    assert "*synthetic*" in text and "near_tie (2)" in text


def test_a_step_is_the_median_of_steps_and_not_the_sum_of_its_phases(tmp_path: Path) -> None:
    """60 steps for 128 tokens at 10 ms over 1.5 take 14,222 us each; the phases that were timed add up to 390."""
    text = reading(tmp_path, [ar_record(), decode_record()])
    assert "takes 14222 us (14222 to 14222), median over repeats." in text
    assert "Of the sum of its phases' medians, 390 us: draft 15 %, verify 67 %" in text
    (section,) = sections(load_runs([write_run(tmp_path / "b", [decode_record()])]))
    plot = split_plot(section)
    assert plot is not None and "the figure beside a bar is their sum" in plot.note and "oracle" not in plot.note
    made_up = decode_record(Method("tree", "factors", "oracle", "chain-d3"), synthetic=True)
    (section,) = sections(load_runs([write_run(tmp_path / "c", [made_up])]))
    plot = split_plot(section)
    assert plot is not None and "The oracle's acceptance is synthetic." in plot.note


def test_ar_beside_an_oracle_is_never_called_synthetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plot, "png", lambda *_: None)
    oracle = decode_record(Method("tree", "factors", "oracle", "chain-d3"), synthetic=True)
    out = build_report([write_run(tmp_path, [ar_record(synthetic=True), oracle])], tmp_path / "out").path
    text = (out / "report.md").read_text()
    assert "1 of them has synthetic acceptance and says so." in text
    (line,) = (line for line in text.splitlines() if "1 (baseline)" in line)
    assert "synthetic" not in line
    document = json.loads((out / "summary.json").read_text())
    assert {cell["method"]["verify"]: cell["synthetic"] for cell in document["cells"]} == {"ar": False, "tree": True}
    rows = {row["verify"]: row["synthetic"] for row in csv.DictReader((out / "cells.csv").open())}
    assert rows == {"ar": "False", "tree": "True"}


def test_points_of_sweeps_are_counted_apart(tmp_path: Path) -> None:
    method = Method("tree", "factors", "oracle", "chain-d2")
    sweep = [
        decode_record(method, speed, (alpha, alpha), alpha_asked=alpha, group="acceptance", synthetic=True)
        for alpha, speed in ((0.3, 0.8), (0.6, 0.9), (0.9, 1.1))
    ]
    text = reading(tmp_path, [ar_record(), decode_record(), *sweep])
    assert "Every one of the 1 methods measured is at least as fast as AR" in text
    assert "Sweeps of acceptance and length are counted apart: of their 3 points 2 are slower than AR." in text
    assert "counted apart" not in reading(tmp_path / "b", [ar_record(), decode_record()])


def test_a_run_of_which_nothing_was_measured_says_so_and_has_no_empty_table(tmp_path: Path) -> None:
    pending = [
        Record(**{**vars(record), **unmeasured(record, Status.PENDING)}) for record in (ar_record(), decode_record())
    ]
    result = build_report([write_run(tmp_path, pending)], tmp_path / "out")
    text = (result.path / "report.md").read_text()
    assert "0 of 2 cells were measured, from run-" in text and result.document["status"] == "partial"
    assert "No decode was measured." in text and "| workload |" not in text and "Speedup is the median" not in text
    some = build_report([write_run(tmp_path / "b", [ar_record(), pending[1]])], tmp_path / "some").path
    assert "1 of 2 cells were measured, from run-" in (some / "report.md").read_text()


def test_the_same_ar_of_several_groups_is_told_once(tmp_path: Path) -> None:
    twice = [ar_record(categories=("code",), group=name, fingerprint=name) for name in ("chain", "tree")]
    assert reading(tmp_path, twice).count("- heldout: 1 prompt at batch 1, greedy") == 1


@pytest.mark.parametrize(("second", "words"), [(1.49, "Ahead, within noise, on heldout"), (1.1, "Fastest on heldout")])
def test_the_title_of_speedups_says_fastest_only_where_the_intervals_do(
    tmp_path: Path, second: float, words: str
) -> None:
    pair = [
        decode_record(Method(verify, "factors", "aligned", "chain-d3"), speed, noise=0.05, seed=place)
        for place, (verify, speed) in enumerate((("tree", 1.5), ("hybrid", second)))
    ]
    (section,) = sections(load_runs([write_run(tmp_path, pair)]))
    plot = speedup_plot(section)
    assert plot is not None and plot.title.startswith(words)


def test_overlapping_intervals_are_said_to_overlap(tmp_path: Path) -> None:
    pair = [
        decode_record(Method(verify, "factors", "aligned", "chain-d3"), speed, noise=0.05, seed=place)
        for place, (verify, speed) in enumerate((("tree", 1.5), ("hybrid", 1.49)))
    ]
    assert "but the two intervals overlap" in reading(tmp_path, pair)


def test_few_repeats_show_no_interval(tmp_path: Path) -> None:
    text = reading(tmp_path, [decode_record(repeats=3)])
    assert "1.50x (no interval)" in text and "1 cells have too few repeats" in text


@pytest.mark.parametrize(
    "records",
    [
        [ar_record()],
        [failed(decode_record(), "crash")],
        [kernel_record()],
        [decode_record(repeats=1)],
        [decode_record(samples=tuple(type(s)(**{**vars(s), "split_us": None}) for s in decode_record().samples))],
        [decode_record(workload="a|b", batch=8), decode_record(batch=1), ar_record(batch=8)],
        [decode_record(overrides=(f"engine.block={n}",), fingerprint=str(n)) for n in (16, 32)],
        [decode_record(Method(f"odd_{n}", "factors"), 1 + n / 100, workload="w") for n in range(60)],
    ],
    ids=["ar", "failed", "kernel", "one repeat", "no split", "odd names", "same names", "many"],
)
def test_every_run_gives_a_report(tmp_path: Path, records: list[Record]) -> None:
    result = build_report([write_run(tmp_path, records, env={})], tmp_path / "out")
    assert len(result.document["cells"]) == len(records)
    assert (
        "not recorded: date, device, CPU, versions, commit, uncommitted edits"
        in (result.path / "report.md").read_text()
    )


def test_methods_that_only_an_override_tells_apart(tmp_path: Path) -> None:
    records = [decode_record(overrides=("device=cuda", f"engine.block={n}"), fingerprint=str(n)) for n in (16, 32)]
    (section,) = sections(load_runs([write_run(tmp_path, records)]))
    assert list(section.cells.method) == ["tree, engine.block=16", "tree, engine.block=32"]


def test_settings_get_sections_of_their_own(tmp_path: Path) -> None:
    records = [decode_record(device=device) for device in ("NVIDIA H200", "some CPU")]
    result = build_report([write_run(tmp_path, records)], tmp_path / "out")
    assert {path.name for path in result.path.glob("speedup-*.png")} == {
        "speedup-nvidia-h200-gdn-mini-float32.png",
        "speedup-some-cpu-gdn-mini-float32.png",
    }
    assert result.document["device"] == "NVIDIA H200; some CPU"


@pytest.mark.usefixtures("no_pictures")
def test_a_folder_that_is_no_report_is_left_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path, [decode_record()])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(SpeclaError, match="is not a report"):
        build_report([run], tmp_path / "mine")
    with pytest.raises(SpeclaError, match="cannot be written"):
        build_report([run], tmp_path / "mine" / "thesis.tex" / "out")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    assert (build_report([run], tmp_path / "empty").path / "report.md").is_file()


@pytest.mark.parametrize("place", ["_csv", "_keep"])
@pytest.mark.usefixtures("no_pictures")
def test_a_failed_build_keeps_the_old_report(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full is no mistake of the user's; a folder that cannot be written is."""
    run = write_run(tmp_path, [decode_record()])
    out = build_report([run], tmp_path / "out").path
    before = texts(out)
    monkeypatch.setattr(f"specla.report.build.{place}", full)
    with pytest.raises(OSError, match="No space left") as raised:
        build_report([run], out)
    assert raised.value.filename == str(out) and texts(out) == before

    def broken(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(f"specla.report.build.{place}", broken)
    with pytest.raises(SpeclaError, match=r"out: cannot be written \(Read-only file system\); choose another folder"):
        build_report([run], out)
    assert texts(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", run.name]


def test_markdown_and_numbers() -> None:
    assert markdown(("a", "b"), [("x|y", "1")]) == "| a | b |\n|---|---|\n| x\\|y | 1 |\n"
    assert interval_text(1.234, 1.2, 1.3) == "1.23x (1.20 to 1.30)"
    assert interval_text(1.234, None, None) == "1.23x (no interval)"
    assert interval_text(None, None, None) == interval_text(float("nan"), None, None) == "-"
