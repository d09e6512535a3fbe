"""Reading runs back: whole, unfinished, damaged, of another schema."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specla.bench.record import Method, Status, to_json
from specla.errors import SpeclaError
from specla.report.find import folder_name
from specla.report.load import load_runs
from tests.factory import alpha_sweep, ar_record, bench_run, decode_record, kernel_record, unmeasured, write_run


def test_frames_hold_what_the_records_say(tmp_path: Path) -> None:
    record = decode_record(speedup=1.5, categories=("code", "prose"))
    loaded = load_runs([write_run(tmp_path, [ar_record(), record])])
    assert list(loaded.cells.verify) == ["ar", "tree"] and list(loaded.cells.baseline) == [True, False]
    assert loaded.cells.speedup.iloc[0] == 1.0
    assert loaded.cells.verify_us.iloc[1] == 260.0
    assert list(loaded.depths.alpha) == pytest.approx([0.8, 0.7, 0.6], abs=0.005)
    assert loaded.depths.tau.iloc[-1] == pytest.approx(loaded.cells.tau.iloc[1])
    assert list(loaded.categories.speedup) == pytest.approx([1.5 * 1.12, 1.5 * 0.9])
    assert len(loaded.repeats) == 10
    assert not loaded.partial and loaded.repeated == 0


def test_cells_that_did_not_pass_have_no_figures(tmp_path: Path) -> None:
    failed = decode_record(status=Status.FAILED, reason="gate")
    loaded = load_runs([write_run(tmp_path, [failed, kernel_record()])])
    assert np.isnan(loaded.cells.speedup).all() and np.isnan(loaded.cells.tau).all()
    assert loaded.depths.empty and loaded.repeats.empty and loaded.categories.empty
    assert loaded.cells.time_us.max() == 50.0


def test_sweeps_are_told_from_methods(tmp_path: Path) -> None:
    loaded = load_runs([write_run(tmp_path, [*bench_run(), *alpha_sweep()])])
    swept = loaded.cells[loaded.cells.sweep]
    assert len(swept) == 54 and set(swept.group) == {"acceptance"}


def test_two_runs_join_and_the_newest_of_a_cell_counts(tmp_path: Path) -> None:
    old = write_run(tmp_path, [ar_record(), decode_record(speedup=1.2)], slug="z-old")
    later: dict[str, Any] = {"started": "2026-08-02T00:00:00+00:00", "fingerprint": "other code"}
    new = write_run(tmp_path, [decode_record(speedup=1.6, **later)], slug="a-new")
    for order in ([old, new], [new, old], [old, new, old]):
        loaded = load_runs(order)
        assert [run.name[0] for run in loaded.runs] == ["a", "z"]
        assert sorted(loaded.cells.speedup) == pytest.approx([1.0, 1.6]) and loaded.repeated == 1
    elsewhere = write_run(tmp_path, [decode_record(device="CPU")], slug="cpu")
    assert len(load_runs([old, new, elsewhere]).cells) == 3


def test_runs_of_one_name_stay_apart(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / part, [ar_record(workload=part)]) for part in ("a", "b")]
    assert len({run.name for run in load_runs(paths).runs}) == 2


def test_what_is_unfinished_is_partial_and_named(tmp_path: Path) -> None:
    missing = [
        decode_record(
            Method("hybrid"),
            overrides=(f"topology.length={n}",),
            fingerprint=str(n),
            **unmeasured(ar_record(), Status.PENDING),
        )
        for n in range(6)
    ]
    path = write_run(tmp_path, [*missing, decode_record()])
    with open(path / "records.jsonl", "a") as file:
        file.write('{"schema": 1, "comm')
    (path / "env.json").unlink()
    (path / "config.yaml").unlink()
    notes = load_runs([path]).notes
    assert len(notes) == 4
    assert "line 8 of records.jsonl, the last, was cut short" in notes[0]
    assert "6 planned cells were not measured: topology.length=0; " in notes[1] and "and 2 more" in notes[1]
    assert "env.json is missing" in notes[2] and "config.yaml is missing" in notes[3]


def test_pending_after_a_result_is_neither_missing_nor_unused(tmp_path: Path) -> None:
    result = decode_record(fingerprint="a")
    again, edited = (decode_record(fingerprint=name, **unmeasured(result, Status.PENDING)) for name in "ab")
    kept = load_runs([write_run(tmp_path / "kept", [ar_record(), result, again])])
    assert list(kept.cells.status) == ["passed", "passed"] and not kept.notes
    lost = load_runs([write_run(tmp_path / "lost", [ar_record(), result, edited])])
    assert sorted(lost.cells.status) == ["passed", "pending"]
    assert "1 planned cell was not measured" in lost.notes[0]
    halves = [write_run(tmp_path, [ar_record(), one], slug=slug) for slug, one in (("a", result), ("b", again))]
    assert not load_runs(halves).partial and load_runs(halves[1:]).partial


def test_bad_runs_give_one_clear_line(tmp_path: Path) -> None:
    def fails(path: Path, says: str) -> None:
        with pytest.raises(SpeclaError, match=says) as caught:
            load_runs([path])
        assert "\n" not in str(caught.value)

    fails(tmp_path / "nothing", r"neither a run nor a report \(no such folder\); give a run's folder")
    path = write_run(tmp_path, [])
    fails(path / "records.jsonl", rf"\(a file\); give the folder that it lies in: {path}$")
    fails(path / "env.json", r"env.json: .*\(a file\); give a run's folder, such as one of those in runs/$")
    fails(tmp_path, rf"records.jsonl is missing\); give one of its runs: {path}$")
    for name in "abcd":
        write_run(tmp_path, [ar_record()], slug=name)
    fails(tmp_path, r"give one of its runs: \S+/a-\w+, \S+/b-\w+, \S+/c-\w+, \S+/d-\w+ and 1 more$")
    fails(path, "holds no measured cell yet")
    lines = path / "records.jsonl"
    lines.write_text('{"schema": 7}\n')
    fails(path, "records.jsonl:1: record has schema 7")
    lines.write_text("oops\n{}\n")
    mend = "restore the file, delete the line, or measure again into another --out"
    fails(path, f"records.jsonl:1: damaged record, not JSON .*; {mend}$")
    lines.write_text(to_json(ar_record()).replace('"seconds":', '"seconds":-', 1) + "\n")
    fails(path, rf"records.jsonl:1: record.samples\[0\].seconds: expected a number above 0 .*, found -\S+; {mend}$")
    path = write_run(tmp_path / "b", [ar_record()])
    for damaged in ("{", json.dumps([1]), "[" * 100_000, '{"a": ' * 5000):
        (path / "env.json").write_text(damaged)
        fails(path, r"env.json: .*; restore it, or remove it: hardware and versions are unknown then$")


def test_what_the_file_system_does_not_take_is_bad_input(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, says in ((loop, "neither a run nor a report"), (tmp_path / ("x" * 300), "File name too long")):
        with pytest.raises(SpeclaError, match=says):
            load_runs([path])
    with pytest.raises(SpeclaError, match="cannot be followed to a folder; give a run's folder"):
        folder_name(loop)


def test_a_run_that_lost_its_records_is_damaged(tmp_path: Path) -> None:
    report = tmp_path / "report"
    kept = [write_run(report / "records", [ar_record(workload=name)], slug=name) for name in "ab"]
    assert len(load_runs([report]).cells) == 2
    (kept[1] / "records.jsonl").unlink()
    for path in (report, kept[1]):
        with pytest.raises(SpeclaError, match=rf"^{kept[1]}: damaged run, records.jsonl is missing; restore it, or"):
            load_runs([path])
    shutil.rmtree(kept[1])
    assert len(load_runs([report]).cells) == 1
    shutil.rmtree(report / "records")
    (report / "report.md").write_text("")
    with pytest.raises(SpeclaError, match="its records/ is missing"):
        load_runs([report])


def test_a_run_without_any_record_is_left_out_beside_a_good_one(tmp_path: Path) -> None:
    empty = write_run(tmp_path, [], slug="empty")
    good = write_run(tmp_path, [ar_record()], slug="good")
    assert len(load_runs([empty, good]).cells) == 1


def test_a_report_needs_no_torch() -> None:
    code = "import sys, specla.report.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
