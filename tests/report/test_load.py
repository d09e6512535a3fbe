"""Reading runs back: whole, unfinished, damaged, of another schema."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specla.bench.record import Method, Status
from specla.errors import SpeclaError
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


def test_bad_runs_give_one_clear_line(tmp_path: Path) -> None:
    def fails(path: Path, says: str) -> None:
        with pytest.raises(SpeclaError, match=says) as caught:
            load_runs([path])
        assert "\n" not in str(caught.value)

    fails(tmp_path / "nothing", "neither a run nor a report")
    path = write_run(tmp_path, [])
    fails(path, "holds no measured cell yet")
    lines = path / "records.jsonl"
    lines.write_text('{"schema": 7}\n')
    fails(path, "records.jsonl:1: record has schema 7")
    lines.write_text("oops\n{}\n")
    fails(path, "records.jsonl:1: damaged record")
    path = write_run(tmp_path / "b", [ar_record()])
    (path / "env.json").write_text("{")
    fails(path, "env.json: damaged")
    (path / "env.json").write_text(json.dumps([1]))
    fails(path, "env.json: damaged")


def test_a_run_without_any_record_is_left_out_beside_a_good_one(tmp_path: Path) -> None:
    empty = write_run(tmp_path, [], slug="empty")
    good = write_run(tmp_path, [ar_record()], slug="good")
    assert len(load_runs([empty, good]).cells) == 1


def test_a_report_needs_no_torch() -> None:
    code = "import sys, specla.report.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
