"""The heat map by batch: what it holds, and what is said of batches at which drafting does not pay."""

from pathlib import Path

import pytest

from specla.bench.record import Method
from specla.report.batch_plot import batch_cells, batch_plot, batch_sentences
from specla.report.load import load_runs
from specla.report.tables import Section, sections
from tests.factory import ar_record, decode_record, write_run

CHAIN = Method("auto", "factors_deferred", "oracle", "chain-d3")


@pytest.fixture
def section(tmp_path: Path) -> Section:
    """One tree at three batches: faster, not told apart, slower; and another way to verify it at the first."""
    records = []
    for batch, speedup in ((1, 2.4), (8, 1.0), (128, 0.7)):
        records.append(ar_record(batch=batch, fingerprint=f"ar {batch}"))
        records.append(decode_record(CHAIN, speedup, batch=batch, fingerprint=f"auto {batch}"))
    records.append(decode_record(Method("chain", "snapshot", "oracle", "chain-d3"), 1.5))
    run = write_run(tmp_path / "run", records)
    (found,) = sections(load_runs([run]))
    return found


def test_a_line_has_its_fastest_method_at_every_batch(section: Section) -> None:
    cells = batch_cells(section)
    assert list(cells.batch) == [1, 8, 128] and set(cells.verify) == {"auto"}
    assert list(cells.verdict)[::2] == ["pays", "does not pay"]


def test_the_picture_has_the_figures(section: Section) -> None:
    plot = batch_plot(section)
    assert plot is not None and plot.name.startswith("speedup-batch")
    assert "2.40x at batch 1" in plot.title and "0.70x at batch 128" in plot.title
    assert len(plot.data) == 3


def test_where_it_does_not_pay_is_said(section: Section) -> None:
    told = batch_sentences(section)
    assert told[0] == "At batch 1 drafting pays in 1 of 1 cases."
    assert "does not with chain-d3, oracle" in told[2] and "(0.70x)" in told[2]


def test_one_batch_makes_no_map(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [ar_record(), decode_record(CHAIN, 2.0)])
    (found,) = sections(load_runs([run]))
    assert batch_plot(found) is None and batch_sentences(found) == []
