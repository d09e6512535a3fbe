"""The curves: acceptance by depth, and speedup by category."""

from dataclasses import replace
from pathlib import Path

from specla.bench.record import Method, Record
from specla.bench.tally import Counts
from specla.report.curves import category_plot, depth_plot
from specla.report.load import load_runs
from specla.report.style import Plot
from specla.report.tables import sections, speed_markdown
from tests.factory import decode_record, write_run

ALIGNED = Method("tree", "factors", "aligned", "chain-d3")
NGRAM = Method("tree", "factors", "ngram", "chain-d3")
ORACLE = Method("tree", "factors", "oracle", "chain-d3")


def depths(folder: Path, records: list[Record]) -> tuple[Plot, str]:
    """The plot, and the table beside it."""
    loaded = load_runs([write_run(folder, records)])
    (section,) = sections(loaded)
    plot = depth_plot(section, loaded)
    assert plot is not None
    return plot, speed_markdown(section)


def test_the_title_gives_the_tables_tau_where_the_limit_cut_steps(tmp_path: Path) -> None:
    record = decode_record(NGRAM)
    assert isinstance(record.counts, Counts)
    # The limit cut some of the 200 steps before their bonus.
    cut = replace(record, counts=replace(record.counts, emitted=480))
    plot, table = depths(tmp_path, [cut])
    assert "tau 2.40 tokens a step" in plot.title and "| 2.40 |" in table
    assert plot.data.tau.iloc[-1] != 2.4 and "The title's tau is the table's" in plot.note


def test_an_oracles_depths_are_said_to_be_synthetic(tmp_path: Path) -> None:
    made_up = decode_record(ORACLE, synthetic=True, alpha_asked=0.7)
    alone, _ = depths(tmp_path / "a", [made_up])
    assert alone.title.endswith(", synthetic") and "The oracle's acceptance is synthetic." in alone.note
    beside, _ = depths(tmp_path / "b", [made_up, decode_record(NGRAM, alpha=(0.4, 0.3, 0.2))])
    assert beside.title.startswith("Of real drafts") and "The oracle's acceptance is synthetic." in beside.note
    real, _ = depths(tmp_path / "c", [decode_record(NGRAM)])
    assert "synthetic" not in real.title + real.note


def test_of_an_oracles_settings_the_one_that_emits_most_is_drawn(tmp_path: Path) -> None:
    low, high = (
        decode_record(ORACLE, synthetic=True, alpha_asked=alpha, alpha=(alpha, alpha, alpha)) for alpha in (0.4, 0.9)
    )
    plot, _ = depths(tmp_path, [low, high])
    assert set(plot.data.drafter) == {"oracle 0.9"} and "chain-d3 with oracle 0.9 emits most" in plot.title


def test_drafters_that_draft_from_fewer_tokens_are_told_apart(tmp_path: Path) -> None:
    few = decode_record(ALIGNED, alpha=(0.5, 0.4, 0.3), overrides=("drafter.vocabulary=2048",))
    every = decode_record(ALIGNED, overrides=("drafter.vocabulary=null",))
    plot, table = depths(tmp_path, [every, few])
    assert set(plot.data.drafter) == {"aligned", "aligned of 2048 tokens"}
    assert "| aligned of 2048 tokens |" in table and "| aligned |" in table
    (section,) = sections(load_runs(list(tmp_path.iterdir())))
    assert set(section.cells.method) == {"tree", "tree, of 2048 tokens"}


def test_categories_say_how_many_prompts_they_are_of(tmp_path: Path) -> None:
    loaded = load_runs([write_run(tmp_path, [decode_record(NGRAM, categories=("code", "prose"))])])
    (section,) = sections(loaded)
    plot = category_plot(section, loaded)
    assert plot is not None and set(plot.data.prompt_count) == {1}
    labels = [text.get_text() for text in plot.figure.axes[0].get_yticklabels()]
    assert labels == ["code\n1 prompt", "prose\n1 prompt"]


def test_categories_are_not_compared_across_workloads(tmp_path: Path) -> None:
    apart = [decode_record(NGRAM, workload=name, categories=(name,)) for name in ("code", "prose")]
    loaded = load_runs([write_run(tmp_path, apart)])
    (section,) = sections(loaded)
    assert category_plot(section, loaded) is None


def test_one_category_gains_neither_most_nor_least(tmp_path: Path) -> None:
    slow = decode_record(NGRAM, 1.2, categories=("code", "prose"))
    fast = decode_record(replace(NGRAM, verify="hybrid"), 1.8, workload="dataset", categories=("code",))
    loaded = load_runs([write_run(tmp_path, [slow, fast])])
    (section,) = sections(loaded)
    plot = category_plot(section, loaded)
    assert plot is not None and plot.title == "Speedup by category of prompt"
