"""What tells cells apart in plots and tables: the acceptance that was asked for."""

from pathlib import Path
from typing import Any

from specla.bench.record import Method, Record
from specla.report.load import Loaded, load_runs
from specla.report.plots import speedup_plot, split_plot
from specla.report.style import Plot
from specla.report.tables import Section, sections
from tests.factory import ar_record, decode_record, write_run


def section_of(folder: Path, records: list[Record]) -> tuple[Section, Loaded]:
    loaded = load_runs([write_run(folder, records)])
    (section,) = sections(loaded)
    return section, loaded


def oracle(tree: str, asked: Any, speedup: float = 1.5, **changes: Any) -> Record:
    method = Method("tree", "factors", "oracle", tree)
    changes = {"fingerprint": f"{tree} {asked} {changes}", **changes}
    return decode_record(method, speedup, alpha_asked=asked, synthetic=True, **changes)


def rows_shown(plot: Plot | None) -> list[str]:
    """The labels beside a plot's first panel."""
    assert plot is not None
    return [label.get_text() for label in plot.figure.axes[0].get_yticklabels()]


def test_a_bar_that_is_alone_with_its_tree_has_its_alpha(tmp_path: Path) -> None:
    records = [ar_record(), oracle("chain-d16", 1.0, 6.0), oracle("chain-d3", 0.8), oracle("chain-d3", 0.6, 1.2)]
    section, _ = section_of(tmp_path, [*records, oracle("kary-b2-n8", ((0.8, 0.1),), 1.1)])
    plot = speedup_plot(section)
    bars = ["chain-d16", "tree, alpha 1", "chain-d3", "tree, alpha 0.8", "tree, alpha 0.6", "kary-b2-n8"]
    assert rows_shown(plot) == [*bars, "tree, alpha [[0.8,0.1]]"]
    assert plot is not None and "tree, alpha 1 on chain-d16, 6.00x AR" in plot.title
    assert rows_shown(split_plot(section))[2:] == rows_shown(plot)


def test_a_profile_is_named_beside_its_bar(tmp_path: Path) -> None:
    section, _ = section_of(tmp_path, [oracle("chain-d3", 0.8, profile="pair")])
    assert rows_shown(speedup_plot(section)) == ["chain-d3", "tree, pair"]
