"""The plan in config.yaml: cells that were deleted, lines of other runs, sessions of other code."""

from dataclasses import replace
from pathlib import Path

import pytest

from specla.bench.lines import read_records
from specla.bench.manifest import PlannedCell, read_manifest
from specla.bench.record import Method, Record, Status, to_json
from specla.bench.store import RunFolder
from specla.errors import SpeclaError
from specla.report.compare import compare_runs
from specla.report.load import load_runs
from tests.factory import ENV, ar_record, decode_record, unmeasured

CELLS = [
    ar_record(overrides=("engine.verify=ar",)),
    decode_record(overrides=("topology.length=3",)),
    decode_record(Method("chain", "factors", "ngram", "chain-d2"), overrides=("topology.length=2",)),
]


def write(root: Path, records: list[Record], code: str = "", name: str = "e2e") -> Path:
    """A session of code of its own: everything planned, and these measured."""
    planned = [named(replace(record, **unmeasured(record, Status.PENDING)), code) for record in records]
    cells = [PlannedCell.of(record) for record in planned]
    with RunFolder.open(root, name, "0" * 64, "seed: 0\n", ENV, cells) as run:
        run.plan(planned)
        for record in records:
            run.append(named(record, code))
    return run.path


def named(record: Record, code: str) -> Record:
    return replace(record, fingerprint=record.fingerprint + code)


def lines(path: Path, *numbers: int) -> None:
    """Keep these lines of the records alone."""
    file = path / "records.jsonl"
    held = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(held[number - 1] for number in numbers))


def test_a_whole_run_has_no_notes(tmp_path: Path) -> None:
    path = write(tmp_path, CELLS)
    plan = read_manifest(path / "config.yaml")
    assert plan is not None and [cell.overrides for cell in plan.cells] == [record.overrides for record in CELLS]
    assert plan.earlier == () and (path / "config.yaml").read_text().startswith("seed: 0\n")
    assert not load_runs([path]).notes


def test_a_planned_cell_that_was_deleted_is_told(tmp_path: Path) -> None:
    base, path = write(tmp_path / "base", CELLS), write(tmp_path, CELLS)
    lines(path, 1, 3, 4, 6)
    told = "1 cell was planned, and not even begun or deleted from the records: topology.length=3"
    loaded = load_runs([path])
    assert [note.partition(": ")[2] for note in loaded.notes] == [told] and loaded.partial
    found = compare_runs(base, path)
    assert found.status == "inconclusive" and f"NEW {path.name}: {told}" in found.notes
    # Another run that has it completes this one.
    assert not load_runs([path, base]).partial
    lines(path, 1)
    plan = read_manifest(path / "config.yaml")
    assert plan is not None
    (line,) = plan.missing(read_records(path / "records.jsonl"))
    assert line.startswith("2 cells were planned") and line.endswith("topology.length=3; topology.length=2")


def test_a_line_of_another_run_is_damage(tmp_path: Path) -> None:
    path = write(tmp_path, CELLS)
    other = decode_record(overrides=("topology.length=9",), fingerprint="another")
    whole = (path / "records.jsonl").read_bytes()
    (path / "records.jsonl").write_bytes(whole + to_json(other).encode() + b"\n")
    told = r"records.jsonl:7: a record of no cell that was planned here \(topology.length=9\); restore the file"
    for look in (lambda: load_runs([path]), lambda: compare_runs(path, path), lambda: write(tmp_path, CELLS)):
        with pytest.raises(SpeclaError, match=told):
            look()
    (path / "records.jsonl").write_bytes(whole)
    assert not load_runs([path]).notes


def test_lines_of_earlier_code_stay(tmp_path: Path) -> None:
    for code in ("a", "b", "a", "c"):
        path = write(tmp_path, CELLS, code)
        assert not load_runs([path]).notes
    plan = read_manifest(path / "config.yaml")
    assert plan is not None and {name[-1] for name in plan.earlier} == {"a", "b"} and len(plan.earlier) == 6
    assert len(load_runs([path]).records) == 3


def test_runs_of_earlier_versions_have_no_plan(tmp_path: Path) -> None:
    """They are read, and taken up again: what their records are of is then known."""
    with RunFolder.open(tmp_path, "e2e", "0" * 64, "cells:\n- {overrides: [], group: main}\n", ENV) as run:
        run.append(named(CELLS[1], "old"))
    assert read_manifest(run.path / "config.yaml") is None and read_manifest(tmp_path / "nowhere") is None
    assert not load_runs([run.path]).notes
    assert not load_runs([write(tmp_path, CELLS)]).notes
    plan = read_manifest(run.path / "config.yaml")
    assert plan is not None and plan.earlier == (CELLS[1].fingerprint + "old",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cells: [", "damaged, not YAML; restore it"),
        ("[" * 5000, "damaged, not YAML"),
        ("\0", "damaged, not YAML"),
        ("cells:\n- {fingerprint: 1}\n", "cells.0.: field 'overrides' is missing"),
    ],
)
def test_a_damaged_plan_is_named(text: str, told: str, tmp_path: Path) -> None:
    path = write(tmp_path, CELLS)
    (path / "config.yaml").write_text(text)
    with pytest.raises(SpeclaError, match=f"^{path / 'config.yaml'}.*{told}"):
        load_runs([path])
