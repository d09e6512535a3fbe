"""What tells cells apart in plots and tables: the acceptance that was asked for, and the length of the text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from specla.bench.record import Method, Record, Sample
from specla.report.batch_plot import batch_cells
from specla.report.curves import depth_plot
from specla.report.length import length_cells
from specla.report.load import Loaded, load_runs
from specla.report.plots import speedup_plot, split_plot
from specla.report.style import Plot
from specla.report.tables import Section, sections, speed_markdown
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


def of_length(record: Record, tokens: int, told: bool = True) -> Record:
    """The record of texts of so many tokens; one that is told is not the workload's own."""
    words = (f"workload.max_new_tokens={tokens}",) if told else ()
    samples = [s for s in record.samples if isinstance(s, Sample)]
    samples = [replace(s, tokens=tokens - 1, steps=tokens - 1, ar_tokens=tokens - 1) for s in samples]
    name = f"{record.fingerprint} {tokens}"
    return replace(record, samples=tuple(samples), overrides=(*record.overrides, *words), fingerprint=name)


def lengths() -> list[Record]:
    """AR and a chain with texts of 64 tokens, which are the workload's own, and of 24 and 128."""
    tokens = ((64, False), (24, True), (128, True))
    ars = [of_length(ar_record(), *one) for one in tokens]
    return ars + [of_length(oracle("chain-d3", 0.8, 1 + one[0] / 128), *one) for one in tokens]


def test_texts_of_several_lengths_have_groups_of_their_own(tmp_path: Path) -> None:
    section, loaded = section_of(tmp_path, lengths())
    heads = [f"chain-d3 ({tokens} tokens)" for tokens in (128, 64, 24)]
    assert rows_shown(speedup_plot(section)) == [word for head in heads for word in (head, "tree, alpha 0.8")]
    assert set(rows_shown(split_plot(section))) >= {*heads, *(head.replace("chain-d3", "no drafts") for head in heads)}
    plot = depth_plot(section, loaded)
    assert plot is not None and set(plot.data.tree) == set(heads)


def test_a_table_has_the_ar_of_every_length(tmp_path: Path) -> None:
    section, _ = section_of(tmp_path, lengths())
    rows = [line.split(" | ")[0] for line in speed_markdown(section).splitlines() if "| ar |" in line]
    assert sorted(rows) == [f"| heldout ({tokens} tokens)" for tokens in (128, 24, 64)]


def test_batches_of_other_lengths_are_no_line(tmp_path: Path) -> None:
    told = [of_length(oracle("chain-d3", 0.8, batch=batch), tokens) for batch, tokens in ((1, 24), (1, 64), (8, 64))]
    section, _ = section_of(tmp_path, told)
    assert set(batch_cells(section).line) == {"chain-d3 (64 tokens), oracle 0.8"}


def test_a_length_sweep_is_of_one_length_of_text(tmp_path: Path) -> None:
    swept = [
        of_length(oracle(f"chain-d{depth}", 0.8, 1 + depth / 10, nodes=depth + 1, alpha=[0.8] * depth), tokens)
        for tokens in (24, 64)
        for depth in (1, 2, 3)
    ]
    section, _ = section_of(tmp_path, swept)
    cells = length_cells(section)
    assert set(cells.place) == {"alpha 0.8 (24 tokens)", "alpha 0.8 (64 tokens)"}
    assert list(cells.groupby("place").best.sum()) == [1, 1] and set(cells.line) == {"tree"}


def test_one_length_is_not_named(tmp_path: Path) -> None:
    for folder, words in (("told", True), ("own", False)):
        records = [of_length(ar_record(), 24, words), of_length(oracle("chain-d3", 0.8), 24, words)]
        section, loaded = section_of(tmp_path / folder, records)
        assert rows_shown(speedup_plot(section)) == ["chain-d3", "tree, alpha 0.8"]
        assert "tokens)" not in speed_markdown(section) and set(loaded.cells.text_tokens) == {24}


def test_workloads_may_differ_in_length(tmp_path: Path) -> None:
    """Panels of their own keep them apart."""
    records = [of_length(oracle("chain-d3", 0.8), 24), of_length(oracle("chain-d3", 0.8, workload="gsm8k"), 64)]
    section, _ = section_of(tmp_path, records)
    assert rows_shown(speedup_plot(section)) == ["chain-d3", "tree, alpha 0.8"]


def test_a_text_that_ended_early_has_its_workloads_limit(tmp_path: Path) -> None:
    whole, early = of_length(ar_record(), 64, False), of_length(oracle("chain-d3", 0.8), 20, False)
    section, loaded = section_of(tmp_path, [whole, early, of_length(ar_record(batch=2), 24)])
    assert list(loaded.cells.text_tokens) == [64, 64, 24] and set(section.cells.text_told) == {""}


def test_cells_of_equal_names_have_what_differs(tmp_path: Path) -> None:
    method = Method("tree", "factors", "aligned", "chain-d3")
    alike = [decode_record(method, 1.1, group=group, fingerprint=group) for group in ("first", "second")]
    section, _ = section_of(tmp_path / "a", [ar_record(), *alike])
    assert rows_shown(speedup_plot(section)) == ["chain-d3", "tree, first", "tree, second"]
    ways = (("measure.repeats=9",), ("measure.repeats=5", "threads=1"))
    words = [replace(record, overrides=(*record.overrides, *way)) for record, way in zip(alike, ways, strict=True)]
    section, _ = section_of(tmp_path / "b", [ar_record(), *words])
    told = ["tree, measure.repeats=9", "tree, measure.repeats=5, threads=1"]
    assert sorted(rows_shown(speedup_plot(section))) == sorted(["chain-d3", *told])
