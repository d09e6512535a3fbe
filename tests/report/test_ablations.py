"""Reports of ablations: tables, pictures and files, alone and beside decodes."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specla.bench.record import Method, Record, Status
from specla.report.acceptance import acceptance_plot
from specla.report.build import build_report, section_plots
from specla.report.kernel_tables import kernel_markdown
from specla.report.length import length_cells, length_plot, length_title
from specla.report.load import load_runs
from specla.report.style import Plot
from specla.report.tables import Section, sections
from specla.report.verify_plots import verify_time_plot, winner_plot
from tests.factory import alpha_sweep, bench_run, decode_record, write_run
from tests.kernel_factory import CPU, CPU_ENV, GPU, defer_run, length_sweep, recover_run, verify_run

OPERATIONS = ("verify-time", "verify-best", "recover-time", "defer-ratio")
HEADINGS = ("### End to end", "### Verification of one layer", "### One layer's commit", "### Commit and verification")


def small_run(**changes: Any) -> list[Record]:
    """All three ablations at one point each."""
    recovers = recover_run(CPU, accepted=(2,), **changes)
    return [*verify_run(CPU, chains=(), trees=(8,), **changes), *recovers, *defer_run(CPU, (1,), **changes)]


def section_of(folder: Path, records: list[Record], **changes: Any) -> Section:
    (section,) = sections(load_runs([write_run(folder, records, **changes)]))
    return section


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


def test_a_run_of_operations_alone_is_a_whole_report(tmp_path: Path) -> None:
    report = build_report([write_run(tmp_path, small_run(), CPU_ENV)], tmp_path / "out").path
    assert sorted(path.stem for path in report.glob("*.png")) == sorted(OPERATIONS)
    assert sorted(path.stem for path in report.glob("*.csv")) == sorted((*OPERATIONS, "cells", "claims"))
    text = (report / "report.md").read_text()
    places = [text.index(mark) for mark in ("## Claims", "## Reading", *HEADINGS[1:], "## Measured on")]
    assert places == sorted(places) and HEADINGS[0] not in text and "Speedup is the median" not in text
    assert "26 time one operation on random inputs" in text and "synthetic acceptance and say so" not in text
    assert all(f"({name}.png)" in text and f"({name}.csv)" in text for name in OPERATIONS)
    again = build_report([report], tmp_path / "again").path
    names = {path.relative_to(report) for path in report.rglob("*") if path.suffix != ".png" and path.is_file()}
    assert all((again / name).read_bytes() == (report / name).read_bytes() for name in names)


def test_several_runs_make_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plot, "png", lambda *_: None)
    here: dict[str, Any] = {"device": GPU["device"], "model": GPU["model"], "dtype": GPU["dtype"]}
    decodes = [replace(record, **here) for record in bench_run()[:8]]
    runs = [
        write_run(tmp_path, part, slug=slug, env=env)
        for slug, part, env in (
            ("a-cpu", verify_run(CPU, trees=(8,), chains=()), CPU_ENV),
            ("b-verify", verify_run(GPU, trees=(8,), chains=()), None),
            ("c-bench", decodes, None),
            ("d-defer", defer_run(GPU, (1,)), None),
            ("e-recover", recover_run(GPU, accepted=(0, 2)), None),
        )
    ]
    report = build_report(runs, tmp_path / "out").path
    text = (report / "report.md").read_text()
    gpu, cpu = text.index("\n## gdn-1.3b, bfloat16, NVIDIA H200"), text.index("\n## gdn-mini, float32, AMD EPYC")
    assert gpu < cpu, "the setting with decodes comes first"
    assert [text.index(mark, gpu) for mark in HEADINGS] == sorted(text.index(mark, gpu) for mark in HEADINGS)
    assert text.count(HEADINGS[1]) == 2 and text.count(HEADINGS[2]) == 1
    for name in (*OPERATIONS, "speedup"):
        assert (report / f"{name}-nvidia-h200-gdn-1-3b-bfloat16.csv").is_file()
    before = {path.name: path.read_bytes() for path in (*report.glob("*.csv"), report / "report.md")}
    again = build_report(list(reversed(runs)), tmp_path / "again").path
    assert {name: (again / name).read_bytes() for name in before} == before


def test_the_table_marks_the_fastest_that_passed(tmp_path: Path) -> None:
    records = verify_run(CPU, chains=(4,), trees=(8,), noise=0.001)
    records = [
        replace(r, status=Status.FAILED, reason="wrong", samples=())
        if r.method.verify == "tree" and r.method.topology == "kary-b2-n8"
        else r
        for r in records
    ]
    text = kernel_markdown(section_of(tmp_path, records, env=CPU_ENV), "verify")
    chain, tree = (
        next(line for line in text.splitlines() if line.startswith(f"| {name}")) for name in ("chain-l3", "kary-b2")
    )
    assert "| failed |" in tree and "**306" in tree.replace("**305", "**306"), "hybrid takes 120 + 62 x 3 us"
    assert chain.count("**") == 2 and "**181" in chain.replace("**180", "**181"), "chain takes 45 + 34 x 4 us"
    assert "| tree | 1 of 2 |" in text and "error_rms, worst" in text
    assert "The time of sequential replay over each strategy's" in text


def test_every_strategy_stands_beside_the_floor_and_says_how_it_was_timed(tmp_path: Path) -> None:
    eager = "eager: RuntimeError: called a synchronizing CUDA operation"
    records = [
        replace(r, timing=eager) if r.method.verify == "naive_batched" else r
        for r in verify_run(GPU, (1, 8, 32, 128), (2, 16), (8, 64))
    ]
    text = kernel_markdown(section_of(tmp_path / "gpu", records), "verify")
    table = text[text.index("as a multiple of each strategy's floor") : text.index("| strategy |")].splitlines()
    for kind, missing in (("chain-l", 0), ("kary-b2", 1)):
        found = [line.split(" | ")[2:] for line in table if line.startswith(f"| {kind}")]
        assert len(found) == 8 and all(len(line) == 7 and line.count("-") == missing for line in found)
    assert "88 of 104 times are of a captured CUDA graph" in text
    assert f"- naive batched (16 cells): {eager}" in text
    assert "CUDA graph" not in kernel_markdown(section_of(tmp_path / "cpu", verify_run(CPU), env=CPU_ENV), "verify")


def test_bold_is_never_for_auto(tmp_path: Path) -> None:
    records = [
        replace(r, samples=tuple(replace(s, time_us=1.0) for s in r.samples)) if r.method.verify == "auto" else r  # type: ignore[call-arg]
        for r in verify_run(CPU, chains=(), trees=(31,), noise=0.001)
    ]
    text = kernel_markdown(section_of(tmp_path, records, env=CPU_ENV), "verify")
    line = next(line for line in text.splitlines() if line.startswith("| kary-b2"))
    assert "| 1.00 |" in line and line.count("**") == 2 and "**1.00**" not in line
    assert "bold is the fastest that passed (auto is left out: it runs one of the others)." in text
    others = [record for record in records if record.method.verify != "auto"]
    assert "fastest that passed.\n" in kernel_markdown(section_of(tmp_path / "b", others, env=CPU_ENV), "verify")


def test_memory_is_tabulated_where_it_is_known(tmp_path: Path) -> None:
    known = kernel_markdown(section_of(tmp_path / "a", recover_run(CPU)), "recover")
    assert "bytes kept per draft token" in known and "| 2,097,152 |" in known
    unknown = kernel_markdown(section_of(tmp_path / "b", recover_run(CPU, memory={})), "recover")
    assert "bytes kept" not in unknown


def test_a_failed_strategy_is_not_drawn(tmp_path: Path) -> None:
    records = [
        replace(r, status=Status.FAILED, reason="wrong") if r.method.verify in ("tree", "auto") else r
        for r in verify_run(CPU, chains=(), trees=(8, 16))
    ]
    section = section_of(tmp_path, records)
    best, time = winner_plot(section), verify_time_plot(section)
    assert best is not None and time is not None
    assert set(best.data.winner) == {"hybrid"} and "tree" not in set(best.data.next)
    assert "tree" not in set(time.data.verify) and "by hybrid" in time.title
    assert best.title.startswith("Fastest verification: hybrid in all 2 cases; ")


def test_the_floor_is_drawn_and_labelled(tmp_path: Path) -> None:
    plot = verify_time_plot(section_of(tmp_path, verify_run(GPU, (1, 8), (2, 8), (8, 16))))
    assert plot is not None and "the floor is 0.69 us" in plot.title
    for axes in plot.figure.axes:
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert lines["floor"].get_ydata()[-1] > 0 and axes.get_yscale() == axes.get_xscale() == "log"
    assert {axes.get_title(loc="left") for axes in plot.figure.axes} == {
        f"{shape}, batch {batch}" for shape in ("chain", "kary, branching 2") for batch in (1, 8)
    }


@pytest.mark.parametrize(
    "records",
    [
        verify_run(CPU, chains=(), trees=(15,))[:1],
        recover_run(CPU, accepted=(2,))[:1],
        defer_run(CPU, (1,))[:1],
        [replace(r, floor_us=None) for r in small_run()],
        [replace(r, status=Status.FAILED, reason="wrong", samples=()) for r in small_run()],
        small_run(repeats=1),
        verify_run(GPU, (1, 2, 4, 8), (2,), (8,), repeats=4),
        [replace(r, method=replace(r.method, verify="my_own_" * 6)) for r in verify_run(CPU)[:2]],
    ],
    ids=["one verify", "one recover", "one defer", "no floor", "all failed", "one repeat", "batches", "odd name"],
)
def test_every_ablation_gives_a_report(tmp_path: Path, records: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plot, "png", lambda *_: None)
    result = build_report([write_run(tmp_path, records)], tmp_path / "out")
    assert len(result.document["cells"]) == len(records)
    assert "nan" not in (result.path / "report.md").read_text()


def test_a_ring_and_a_shape_are_told_apart(tmp_path: Path) -> None:
    lazy = [r for r in defer_run(CPU, (1,)) if r.method.recover == "factors_lazy" and r.method.topology == "kary-b2-n8"]
    rings = [replace(lazy[0], overrides=(*lazy[0].overrides, f"engine.ring={n}"), fingerprint=str(n)) for n in (8, 16)]
    section = section_of(tmp_path / "a", rings)
    assert sorted(section.kernels.label) == ["factors lazy, ring=16", "factors lazy, ring=8"]
    wide = [
        replace(r, overrides=(*r.overrides, f"model.head_dim={n}"), fingerprint=f"{r.fingerprint}{n}")
        for r in verify_run(CPU, chains=(), trees=(8,))
        for n in (64, 128)
    ]
    plot = winner_plot(section_of(tmp_path / "b", wide))
    assert plot is not None and list(plot.data.variant) == ["model.head_dim=128", "model.head_dim=64"]


def curve(speeds: dict[float, float], **changes: Any) -> list[Record]:
    return [
        decode_record(
            Method("tree", "factors", "oracle", "chain-d2"),
            speed,
            (alpha, alpha),
            alpha_asked=alpha,
            group="acceptance",
            synthetic=True,
            **changes,
        )
        for alpha, speed in speeds.items()
    ]


def test_break_even_is_marked_against_alpha_and_against_draft_efficiency(tmp_path: Path) -> None:
    """On a chain of two, alpha a accepts (a + a^2) / 2 of the drafts: 0.48 at 0.6."""
    loaded = load_runs([write_run(tmp_path, curve({0.4: 0.8, 0.6: 1.0, 0.8: 1.3}))])
    (section,) = sections(loaded)
    plot = acceptance_plot(section, loaded)
    assert plot is not None and plot.title == "tree on chain-d2 pays from alpha 0.60, 48 % of drafts accepted"
    row = plot.data.iloc[0]
    assert row.break_even_alpha == row.break_even_alpha_low == pytest.approx(0.6)
    assert row.break_even_draft_efficiency == pytest.approx(0.48)
    left, right = plot.figure.axes
    texts = [axes.get_legend().get_texts()[0].get_text() for axes in (left, right)]
    assert texts == ["tree: pays from 0.60 (0.60 to 0.60)", "tree: pays from 0.48 (0.48 to 0.48)"]


def test_the_caption_tells_of_a_diamond_only_where_one_is_drawn(tmp_path: Path) -> None:
    """Of five trees four are drawn; that of the fifth crosses 1."""
    trees = [f"chain-d{n}" for n in range(1, 6)]
    speeds = {tree: {0.4: 1.1, 0.6: 1.2, 0.8: 1.3} for tree in trees[:4]} | {trees[4]: {0.4: 0.8, 0.6: 1.0, 0.8: 1.3}}
    records = [
        replace(record, method=replace(record.method, topology=tree), fingerprint=f"{tree}{record.alpha_asked}")
        for tree, points in speeds.items()
        for record in curve(points)
    ]
    loaded = load_runs([write_run(tmp_path / "a", records)])
    plot = acceptance_plot(sections(loaded)[0], loaded)
    assert plot is not None and "diamond" not in plot.note and "1 more trees" in plot.note
    loaded = load_runs([write_run(tmp_path / "b", records[6:])])
    plot = acceptance_plot(sections(loaded)[0], loaded)
    assert plot is not None and "A diamond and its bar" in plot.note


def test_every_count_of_nodes_has_a_tick(tmp_path: Path) -> None:
    plot = verify_time_plot(section_of(tmp_path, verify_run(GPU, (1,), (), (8, 15, 16, 31))))
    assert plot is not None
    (axes,) = plot.figure.axes
    plot.figure.draw_without_rendering()
    assert sorted([*axes.get_xticks(), *axes.get_xticks(minor=True)]) == [8, 15, 16, 31]
    assert [text.get_text() for text in axes.get_xticklabels() if text.get_text()] == ["8", "15", "31"]


def test_break_even_of_noisy_sweeps_has_an_interval_around_the_truth(tmp_path: Path) -> None:
    loaded = load_runs([write_run(tmp_path, alpha_sweep(noise=0.02))])
    (section,) = sections(loaded)
    plot = acceptance_plot(section, loaded)
    assert plot is not None
    row = plot.data[(plot.data.method == "tree") & (plot.data.tree == "chain-d4")].iloc[0]
    # 1 + a + a^2 + a^3 + a^4 = 1.55 at a = 0.366
    assert row.break_even_alpha_low < 0.366 + 0.02 and row.break_even_alpha_high > 0.366 - 0.02
    assert row.break_even_alpha_low < row.break_even_alpha < row.break_even_alpha_high


def test_the_best_length_is_found(tmp_path: Path) -> None:
    """Where tau grows from D to D + 1 by less than the step does, drafting longer stops to pay."""
    loaded = load_runs([write_run(tmp_path, length_sweep(noise=0.0))])
    (section,) = sections(loaded)
    found = length_cells(section)
    best = {(row.place, row.line): int(row.levels) for row in found[found.best].itertuples()}
    assert best == {
        ("alpha 0.6", "auto"): 4,
        ("alpha 0.8", "auto"): 6,
        ("alpha 0.6", "sequential replay"): 1,
        ("alpha 0.8", "sequential replay"): 4,
    }
    assert "4 levels at alpha 0.6 (auto" in length_title(found)
    names = [plot.name for plot in section_plots(section, loaded)]
    assert names == ["speedup-length"], "a synthetic sweep's points are not methods of their own"
    plot = length_plot(section)
    assert plot is not None and len(plot.data) == 20 and plot.data.best.sum() == 4


def test_lengths_measured_with_a_real_drafter_stay_methods_too(tmp_path: Path) -> None:
    records = [
        decode_record(Method("chain", "factors", "ngram", f"chain-d{n}"), 1 + n / 10, (0.5,) * n) for n in (1, 2, 4)
    ]
    loaded = load_runs([write_run(tmp_path, records)])
    (section,) = sections(loaded)
    assert {"speedup", "speedup-length"} <= {plot.name for plot in section_plots(section, loaded)}
    assert list(length_cells(section).place.unique()) == ["ngram drafts"]


def test_the_csv_of_deferral_gives_the_ratios_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plot, "png", lambda *_: None)
    report = build_report([write_run(tmp_path, defer_run(GPU, (1, 8), noise=0.002))], tmp_path / "out").path
    found = rows(report / "defer-ratio.csv")
    assert {row["recover"] for row in found} == {"factors_deferred", "factors_lazy"} and len(found) == 16
    for row in found:
        truth = (
            1.24 + 0.02 * int(row["batch"])
            if row["recover"] == "factors_lazy"
            else 1.1 + 0.03 * int(row["batch"]) ** 0.7
        )
        assert float(row["ratio"]) == pytest.approx(truth, rel=0.01)
        assert float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])
