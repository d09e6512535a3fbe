"""The tracked exact figures: made, read back, compared, and what counts as a launch."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specla.bench import exact
from specla.bench.exact import (
    TRACKED,
    Baseline,
    Figures,
    Launches,
    deviations,
    difference_lines,
    measure_exact,
    read_baseline,
    write_baseline,
)
from specla.bench.plan import plan
from specla.bench.strategies import VERIFY
from specla.errors import SpeclaError

ROOT = Path(__file__).parents[2]
WORDS = (
    *("model=gdn-tiny", "device=cpu", "dtype=float32", "threads=1", "drafter=oracle", "topology=kary"),
    *("topology.nodes=7", "engine.verify=sequential_replay,tree", "workload.prompts=1", "workload.max_new_tokens=6"),
)


@pytest.fixture(scope="module")
def measured() -> Baseline:
    """Three cells of a tiny model."""
    return measure_exact(WORDS)


def test_the_same_code_gives_the_same_figures(measured: Baseline) -> None:
    again = measure_exact(WORDS)
    assert again == measured
    assert deviations(measured, again) == ([], [])


def test_figures_of_a_cell(measured: Baseline) -> None:
    ar, sequential, tree = measured.cells
    assert [cell.cell.split()[0] for cell in measured.cells] == ["ar", "sequential_replay", "tree"]
    assert (ar.tau, ar.drafted, ar.emitted, ar.lossless) == (1.0, 0, 5, "exact")
    assert sequential.tau == tree.tau > 1 and sequential.accepted == tree.accepted
    assert tree.drafted == 6 * tree.cycles and tree.moved_bytes > ar.moved_bytes
    assert tree.launches_per_cycle < sequential.launches_per_cycle
    assert tree.launches == tree.launches_per_cycle * tree.cycles


def test_a_file_gives_back_what_was_written(measured: Baseline, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "baseline" / "figures.jsonl"
    write_baseline(path, measured)
    assert read_baseline(path) == measured
    assert len(path.read_text().splitlines()) == 4


def test_every_figure_that_differs_is_named(measured: Baseline) -> None:
    first, second, third = measured.cells
    other = Baseline(measured.source, (first, replace(second, tau=1.0, launches=1), replace(third, cell="new one")))
    found, _ = deviations(measured, other)
    assert [(one.cell.split()[0], one.figure) for one in found] == [
        ("sequential_replay", "tau"),
        ("sequential_replay", "launches"),
        ("tree", "cell"),
        ("new", "cell"),
    ]
    assert (found[2].tracked, found[2].measured, found[3].tracked) == ("there", "missing", "missing")


def test_cells_that_differ_alike_share_a_line(measured: Baseline) -> None:
    first, second, third = (replace(cell, near_ties=1) for cell in measured.cells)
    found, _ = deviations(measured, Baseline(measured.source, (first, second, replace(third, emitted=0))))
    lines = difference_lines(found)
    assert lines[0] == f"{first.cell}; {second.cell}: near_ties 0 -> 1"
    assert lines[1:] == [f"{third.cell}: near_ties 0 -> 1, emitted 5 -> 0"]


def test_launches_are_compared_under_the_same_torch_alone(measured: Baseline) -> None:
    cells = tuple(replace(cell, launches=1) for cell in measured.cells)
    assert len(deviations(measured, Baseline(measured.source, cells))[0]) == 3
    found, notes = deviations(measured, Baseline(replace(measured.source, torch="1.0", data=("y",)), cells))
    assert not found and len(notes) == 2 and "launches not compared" in notes[0] and "prompts" in notes[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "no exact figures to compare with; `make baseline` records them"),
        ("", "has schema None; this version reads 1"),
        ('{"schema": 2}\n', "has schema 2; this version reads 1"),
        ('{"schema": 1, "torch": "2", "data": []}\n{"cell": "ar"', "figures.jsonl:2: damaged, not JSON"),
        ('{"schema": 1, "torch": "2", "data": []}\n{"cell": "ar"}', "figures.jsonl:2: field 'lossless' is missing"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "figures.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpeclaError, match=r"^\S+figures.jsonl") as error:
        read_baseline(path)
    assert told in str(error.value)


def test_views_and_allocations_are_no_launches() -> None:
    x = torch.ones(4, 4)
    with Launches() as counted:
        x.view(16)[2:].unsqueeze(0).expand(2, 14)
        torch.empty(3)
    assert counted.count == 0
    with Launches() as counted:
        x.add_(1)
        y = x @ x
        y.t().contiguous()
    assert counted.count == 3


def test_what_is_tracked_covers_every_verification() -> None:
    """Whether it still holds is what `make regress` asks: here a machine need not give the same digits."""
    tracked = read_baseline(ROOT / TRACKED)
    planned = [cell.method for cell in plan("bench e2e", exact.WORDS).cells]
    assert [cell.cell for cell in tracked.cells] == [
        " ".join((m.verify, m.recover, m.drafter, m.topology)) for m in planned
    ]
    assert {cell.cell.split()[0] for cell in tracked.cells} == set(VERIFY)
    assert all(cell.lossless == "exact" and cell.near_ties == 0 for cell in tracked.cells)
    assert all(isinstance(cell, Figures) and cell.launches for cell in tracked.cells)
