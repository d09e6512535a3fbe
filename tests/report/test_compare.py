"""Two runs compared: which cells meet, what is judged, what is only listed, and what is refused."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specla.bench.choice import Candidate, TreeChoice
from specla.bench.record import Bytes, KernelSample, Lossless, Method, Record, Sample, Status, TopologyInfo
from specla.bench.tally import Counts
from specla.cli.results import print_comparison
from specla.errors import SpeclaError
from specla.report.build import build_report
from specla.report.change import TIME, TIME_OVER_REFERENCE, Way
from specla.report.compare import Comparison, compare_runs
from specla.report.compare_text import (
    all_labels,
    compare_document,
    compare_markdown,
    labels,
    listings,
    ordered,
    rule_text,
    sentence,
)
from specla.report.style import Plot
from specla.report.verdict import Verdict
from tests.factory import ENV, MINI, ar_record, decode_record, kernel_record, unmeasured, write_run

TREE, HYBRID = Method("tree", "factors", "aligned", "chain-d3"), Method("hybrid", "factors", "aligned", "chain-d3")


def run(folder: Path, records: Iterable[Record], side: str = "base", **env: Any) -> Path:
    return write_run(folder, records, {**ENV, **env}, slug=side)


def both(folder: Path, base: Iterable[Record], new: Iterable[Record], **options: Any) -> Comparison:
    return compare_runs(run(folder, base), run(folder, new, "new"), **options)


def scaled(record: Record, factor: float, ar: float = 1.0) -> Record:
    """The same cell on a machine, or with code, that takes so many times as long."""
    samples = [
        Sample(**{**vars(s), "seconds": s.seconds * factor, "ar_seconds": (s.ar_seconds or 0.0) * ar})
        for s in record.samples
        if isinstance(s, Sample)
    ]
    return Record(**{**vars(record), "samples": tuple(samples)})


def changed(record: Record, **changes: Any) -> Record:
    return Record(**{**vars(record), **changes})


def bench(noise: float = 0.005, seed: int = 0) -> list[Record]:
    """AR, tree and hybrid."""
    words = {name: (f"engine.verify={name}",) for name in ("ar", "tree", "hybrid")}
    return [
        ar_record(noise=noise, seed=seed, overrides=words["ar"]),
        decode_record(TREE, 1.5, noise=noise, seed=seed + 1, overrides=words["tree"]),
        decode_record(HYBRID, 1.4, noise=noise, seed=seed + 2, overrides=words["hybrid"]),
    ]


def verdicts(found: Comparison) -> dict[str, Verdict]:
    return {cell.new.method.verify: cell.verdict for cell in found.cells}


def in_turns(passes: int = 1) -> dict[str, Any]:
    return {"side_by_side": {"session": "abc", "passes": passes}}


def test_a_run_is_the_same_as_itself(tmp_path: Path) -> None:
    path = run(tmp_path, bench())
    found = compare_runs(path, path)
    assert found.status == "passed" and found.count(Verdict.SAME) == 3
    assert "both were measured with the same code" not in found.notes


def test_a_fifth_slower_in_one_strategy_is_a_regression(tmp_path: Path) -> None:
    base, new = bench(), bench(seed=10)
    new[1] = scaled(new[1], 1.2)
    found = both(tmp_path, base, new)
    assert found.status == "regression"
    assert verdicts(found) == {"ar": Verdict.SAME, "tree": Verdict.SLOWER, "hybrid": Verdict.SAME}
    tree = found.cells[1]
    assert tree.figure == TIME_OVER_REFERENCE and tree.change.ratio.median == pytest.approx(1.2, rel=0.02)
    assert both(tmp_path / "back", new, base).status == "passed"


def test_a_slow_machine_is_no_regression(tmp_path: Path) -> None:
    found = both(tmp_path, bench(), [scaled(record, 1.7, 1.7) for record in bench(seed=10)])
    assert verdicts(found) == {"ar": Verdict.INCONCLUSIVE, "tree": Verdict.SAME, "hybrid": Verdict.SAME}
    assert found.status == "inconclusive" and "or the machine" in found.cells[0].reason
    assert found.cells[0].figure == TIME


def test_a_faster_ar_makes_no_method_slower(tmp_path: Path) -> None:
    new = bench(seed=10)
    found = both(tmp_path, bench(), [scaled(new[0], 0.8), scaled(new[1], 1.0, 0.8), scaled(new[2], 1.0, 0.8)])
    assert found.count(Verdict.SLOWER) == 0 and found.status == "inconclusive"
    assert "the reference's did" in found.cells[1].reason


def test_a_quiet_machine_is_judged_by_time_on_request(tmp_path: Path) -> None:
    found = both(tmp_path, bench(), [scaled(record, 1.2, 1.2) for record in bench(seed=10)], absolute=True)
    assert found.rule.way is Way.ABSOLUTE and set(verdicts(found).values()) == {Verdict.SLOWER}


def test_runs_in_turns_are_judged_by_time_pair_by_pair(tmp_path: Path) -> None:
    base, slow = bench(noise=0.0), [scaled(record, 1.2, 1.2) for record in bench(noise=0.0)]
    paths = [run(tmp_path, records, side, **in_turns()) for side, records in (("base", base), ("new", slow))]
    found = compare_runs(*paths)
    assert found.rule.way is Way.IN_TURNS and set(verdicts(found).values()) == {Verdict.SLOWER}
    assert found.cells[0].figure == TIME and found.cells[0].change.ratio.n == 5


def test_turns_meet_their_partners_whatever_the_machine_did(tmp_path: Path) -> None:
    """A machine that is five times slower in some repeats: apart that is noise, in turns it cancels."""
    load = [1.0, 5.0, 1.0, 3.0, 2.0, 1.0, 4.0]

    def loaded(factor: float) -> list[Record]:
        record = bench(noise=0.0)[1]
        plain = next(s for s in record.samples if isinstance(s, Sample))
        samples = [
            Sample(**{**vars(plain), "repeat": i, "seconds": plain.seconds * x * factor}) for i, x in enumerate(load)
        ]
        return [changed(record, samples=tuple(samples))]

    paths = [run(tmp_path, loaded(f), side, **in_turns()) for side, f in (("base", 1.0), ("new", 1.1))]
    assert verdicts(compare_runs(*paths)) == {"tree": Verdict.SLOWER}
    assert verdicts(compare_runs(paths[0], run(tmp_path / "apart", loaded(1.1)))) == {"tree": Verdict.INCONCLUSIVE}


def test_passes_of_a_round_are_one_repeat(tmp_path: Path) -> None:
    paths = [
        run(tmp_path, [decode_record(repeats=12, overrides=("x",))], side, **in_turns(3)) for side in ("base", "new")
    ]
    found = compare_runs(*paths)
    assert found.cells[0].change.ratio.n == 4 and "4 repeats" in found.cells[0].reason


def test_operations_are_judged_beside_their_baselines(tmp_path: Path) -> None:
    base = kernel_record(50.0, {"sequential_replay": 150.0, "naive_batched": 120.0})
    slower_machine = kernel_record(100.0, {"sequential_replay": 300.0, "naive_batched": 240.0})
    slower_code = kernel_record(120.0, {"sequential_replay": 300.0, "naive_batched": 240.0})
    assert both(tmp_path / "1", [base], [slower_machine]).cells[0].verdict is Verdict.SAME
    found = both(tmp_path / "2", [base], [slower_code]).cells[0]
    assert found.verdict is Verdict.SLOWER and found.change.ratio.median == pytest.approx(1.2)
    assert found.time.ratio.median == pytest.approx(2.4)


def test_an_operation_is_no_baseline_of_its_own(tmp_path: Path) -> None:
    method = Method("sequential_replay", "replay_tokens", "oracle", "kary-b2-n15")
    base, new = (kernel_record(t, {"sequential_replay": t}, method=method) for t in (150.0, 300.0))
    found = both(tmp_path, [base], [new]).cells[0]
    assert (found.figure, found.verdict) == (TIME, Verdict.INCONCLUSIVE)


def test_cells_on_one_side_are_listed(tmp_path: Path) -> None:
    base, new = bench(), bench(seed=10)
    added = decode_record(Method("chain", "factors", "aligned", "chain-d3"), overrides=("engine.verify=chain",))
    found = both(tmp_path, base, [*new[:2], added])
    assert [one.record.method.verify for one in found.vanished] == ["hybrid"]
    assert [one.record.method.verify for one in found.added] == ["chain"]
    assert found.status == "inconclusive" and sentence(found) == "inconclusive: of 2 cells 2 same, 1 vanished, 1 new"
    assert ("Measured in BASE, not in NEW", ["hybrid"]) in listings(found)
    assert both(tmp_path / "more", new, [*new, added]).status == "passed"


def test_what_passed_and_fails_now_is_a_regression(tmp_path: Path) -> None:
    base, new = bench(), bench(seed=10)
    new[1] = changed(new[1], **unmeasured(new[1], Status.FAILED, "not lossless: row 0, token 3"))
    found = both(tmp_path, base, new)
    assert found.status == "regression" and found.broken[0].reason.startswith("not lossless")
    assert ("Passed in BASE, fail in NEW", ["tree: not lossless: row 0, token 3"]) in listings(found)
    back = both(tmp_path / "back", new, base)
    assert back.status == "passed" and len(back.mended) == 1


@pytest.mark.parametrize("status", [Status.NOT_APPLICABLE, Status.INCONCLUSIVE])
def test_what_has_no_figure_any_more_has_vanished_with_its_reason(tmp_path: Path, status: Status) -> None:
    base, new = bench(), bench(seed=10)
    new[1] = changed(new[1], **unmeasured(new[1], status, "chains only"))
    found = both(tmp_path, base, new)
    assert [one.reason for one in found.vanished] == ["chains only"]
    assert found.status == "inconclusive" and ("Measured in BASE, not in NEW", ["tree: chains only"]) in listings(found)


@pytest.mark.parametrize("half", ["BASE", "NEW"])
def test_a_half_finished_run_says_what_is_missing(tmp_path: Path, half: str) -> None:
    whole, cut = bench(), bench(seed=10)
    cut[2] = changed(cut[2], **unmeasured(cut[2], Status.PENDING))
    found = both(tmp_path, cut, whole) if half == "BASE" else both(tmp_path, whole, cut)
    assert found.status == "inconclusive"
    assert [(one.record.method.verify, one.reason) for one in found.missing] == [("hybrid", f"not measured in {half}")]
    assert any(
        note.startswith(half) and "1 planned cell was not measured: engine.verify=hybrid" in note
        for note in found.notes
    )


def test_a_torn_last_line_makes_a_run_half_finished(tmp_path: Path) -> None:
    base, new = run(tmp_path, bench()), run(tmp_path, bench(seed=10), "new")
    with open(new / "records.jsonl", "a") as file:
        file.write('{"schema": 1, "comm')
    found = compare_runs(base, new)
    assert found.status == "inconclusive" and any("was cut short" in note for note in found.notes)


def test_exact_figures_are_compared_exactly(tmp_path: Path) -> None:
    base, new = bench(), bench(seed=10)
    counts = new[1].counts
    assert counts is not None
    new[1] = changed(new[1], counts=Counts(**{**vars(counts), "emitted": counts.emitted - 1}))
    new[2] = changed(new[2], bytes=Bytes(100, 200, 310))
    base[2] = changed(base[2], bytes=Bytes(100, 200, 300))
    found = both(tmp_path, base, new)
    assert found.status == "regression" and found.count(Verdict.SAME) == 3
    assert [(d.figure, d.worse) for d in found.cells[1].exact] == [("tau", True), ("emitted", False)]
    assert [(d.figure, d.base, d.new, d.worse) for d in found.cells[2].exact] == [
        ("bytes moved a step", 300, 310, True)
    ]
    assert both(tmp_path / "back", new, base).status == "passed"


def test_counts_of_other_prompts_are_not_compared(tmp_path: Path) -> None:
    base, new = bench(), bench(seed=10)
    counts = new[1].counts
    assert counts is not None
    new[1] = changed(new[1], counts=Counts(**{**vars(counts), "emitted": counts.emitted - 1}), gate_positions=77)
    assert both(tmp_path, base, new).status == "passed"


def test_another_chosen_tree_is_told_and_no_regression_by_itself(tmp_path: Path) -> None:
    """topology=auto goes by times, so that two runs may choose trees that accept differently."""
    base, new = bench(), bench(seed=10)
    for records, parents in ((base, (-1, 0, 1)), (new, (-1, 0, 0))):
        picked = Candidate(parents, 1, 2.0, 900.0)
        choice = TreeChoice(3, ((0.7, 0.1),), True, 2, (), 0.0, picked)
        records[1] = changed(records[1], choice=choice, topology=TopologyInfo("auto", parents=parents))
    counts = new[1].counts
    assert counts is not None
    new[1] = changed(new[1], counts=Counts(**{**vars(counts), "emitted": counts.emitted - 1}))
    found = both(tmp_path, base, new)
    assert found.status == "passed"
    assert [(d.figure, d.new, d.worse) for d in found.cells[1].exact] == [("tree chosen", (-1, 0, 0), False)]


@pytest.mark.parametrize(("dtype", "status"), [("float32", "regression"), ("bfloat16", "passed")])
def test_a_near_tie_is_worse_in_float32_alone(tmp_path: Path, dtype: str, status: str) -> None:
    base, new = (decode_record(TREE, overrides=("x",), dtype=dtype, noise=0.001, seed=i) for i in range(2))
    new = changed(new, lossless=Lossless.NEAR_TIE, near_ties=1)
    assert both(tmp_path, [base], [new]).status == status


def test_other_devices_are_refused_unless_asked(tmp_path: Path) -> None:
    base, new = bench(), [changed(scaled(record, 0.3, 0.3), device="B200") for record in bench(seed=10)]
    with pytest.raises(SpeclaError, match=r"BASE was measured on NVIDIA H200, NEW on B200.*--across-devices"):
        both(tmp_path, base, new)
    found = both(tmp_path / "asked", base, new, across_devices=True)
    assert found.rule.way is Way.ACROSS_DEVICES
    assert verdicts(found) == {"tree": Verdict.SAME, "hybrid": Verdict.SAME}
    slower = [new[0], scaled(new[1], 1.3), new[2]]
    assert both(tmp_path / "slower", base, slower, across_devices=True).status == "regression"


def test_other_versions_are_noted(tmp_path: Path) -> None:
    base = run(tmp_path, bench())
    new = run(tmp_path, bench(seed=10), "new", versions={**ENV["versions"], "torch": "3.0"}, torch_threads=2)
    assert set(compare_runs(base, new).notes) == {
        "torch: 2.9.0 in BASE, 3.0 in NEW",
        "torch threads: 16 in BASE, 2 in NEW",
    }


def test_reports_are_compared_as_their_runs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plot, "png", lambda *_: None)
    report = build_report([run(tmp_path, bench())], tmp_path / "report").path
    assert compare_runs(report, run(tmp_path, bench(seed=10), "new")).status == "passed"


def test_few_repeats_are_inconclusive(tmp_path: Path) -> None:
    few = [changed(decode_record(TREE, repeats=3, overrides=("x",)), status=Status.INCONCLUSIVE, reason="3 repeats")]
    found = both(tmp_path, few, few)
    assert found.status == "inconclusive" and found.cells[0].reason == "3 repeats where an interval takes 5"


class TestBadInput:
    """One clear line each."""

    def test_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(SpeclaError, match="neither a run nor a report"):
            compare_runs(tmp_path, tmp_path)

    def test_nothing_measured_yet(self, tmp_path: Path) -> None:
        pending = [changed(record, **unmeasured(record, Status.PENDING)) for record in bench()]
        with pytest.raises(SpeclaError, match=r"NEW .*holds no measured cell yet \(3 planned\)"):
            both(tmp_path, bench(), pending)

    def test_another_schema(self, tmp_path: Path) -> None:
        path = run(tmp_path, bench())
        file = path / "records.jsonl"
        file.write_text(file.read_text().replace('"schema":1', '"schema":2'))
        with pytest.raises(SpeclaError, match=r"records.jsonl:1: record has schema 2; this version reads 1"):
            compare_runs(path, path)

    def test_damaged_records(self, tmp_path: Path) -> None:
        path = run(tmp_path, bench())
        file = path / "records.jsonl"
        file.write_text(file.read_text().replace('"batch":1', '"batch":"one"', 1))
        with pytest.raises(SpeclaError, match=r"records.jsonl:1: record.batch: expected a whole number, found 'one'"):
            compare_runs(path, path)

    def test_nothing_in_common(self, tmp_path: Path) -> None:
        other = decode_record(TREE, overrides=("workload.batch=8",), batch=8)
        with pytest.raises(SpeclaError, match="no cell was measured in both; BASE has 3 of bench e2e"):
            both(tmp_path, bench(), [other])


class TestText:
    """Labels, sentences, Markdown, JSON."""

    def test_labels_say_what_differs(self) -> None:
        records = [
            ar_record(overrides=("a",)),
            decode_record(TREE, overrides=("b",)),
            decode_record(TREE, overrides=("c",), batch=8),
            kernel_record(),
        ]
        assert list(labels(records[:2]).values()) == ["ar", "tree"]
        assert list(labels(records[1:3]).values()) == ["tree batch=1", "tree batch=8"]
        assert list(labels([records[1], changed(records[1], overrides=("seed=1",))]).values()) == [
            "tree (b)",
            "tree (seed=1)",
        ]

    def test_what_must_not_be_missed_comes_first(self, tmp_path: Path) -> None:
        new = bench(seed=10)
        found = both(tmp_path, bench(), [scaled(new[0], 1.5), new[1], scaled(new[2], 1.3)])
        assert [cell.new.method.verify for cell in ordered(found)] == ["hybrid", "ar", "tree"]
        assert sentence(found) == "regression: of 3 cells 1 slower, 1 inconclusive, 1 same"

    def test_markdown_has_every_cell_and_escapes(self, tmp_path: Path) -> None:
        new = bench(seed=10)
        found = both(tmp_path, bench(), [new[0], scaled(new[1], 1.3), new[2]])
        text = compare_markdown(found)
        assert text.startswith("## base-0123456789ab → new-0123456789ab\n\n**regression: of 3 cells")
        assert "| tree | 1.3" in text and "**slower**" in text and text.count("\n| ") == 4
        assert rule_text(found) in text

    def test_the_document_is_json_and_says_all(self, tmp_path: Path) -> None:
        new = bench(seed=10)
        found = both(tmp_path, bench(), [new[0], scaled(new[1], 1.3)])
        document = json.loads(json.dumps(compare_document(found), allow_nan=False))
        assert (document["schema"], document["command"], document["status"]) == (1, "compare", "regression")
        assert document["device"] == "NVIDIA H200" and document["way"] == "apart"
        tree = document["cells"][1]
        assert tree["verdict"] == "slower" and tree["method"]["verify"] == "tree" and tree["threshold"] == 0.1
        assert tree["change"]["all_cells"]["low"] <= tree["change"]["median"] <= tree["change"]["high"]
        assert [one["method"]["verify"] for one in document["vanished"]] == ["hybrid"]

    def test_every_listed_cell_has_a_name(self, tmp_path: Path) -> None:
        found = both(tmp_path, bench(), bench(seed=10)[:2])
        assert {all_labels(found)[id(one.record)] for one in found.vanished} == {"hybrid"}


def test_operation_records_of_turns_stay_apart_from_decodes(tmp_path: Path) -> None:
    decode = decode_record(TREE, noise=0.0, overrides=("x",))
    times = tuple(KernelSample(repeat, 100.0, order) for repeat in range(5) for order in range(2))
    operation = changed(decode, command="regress", group="verify", samples=times, counts=None)
    slow = changed(operation, samples=tuple(KernelSample(s.repeat, s.time_us * 1.2, s.order) for s in times))
    paths = [run(tmp_path, [decode, one], side, **in_turns()) for side, one in (("base", operation), ("new", slow))]
    found = compare_runs(*paths)
    assert [cell.verdict for cell in found.cells] == [Verdict.SAME, Verdict.SLOWER]
    assert sorted(all_labels(found).values()) == ["tree (decode)", "tree (verification)"]


def with_model(records: list[Record], weights: str) -> list[Record]:
    return [replace(record, model_info=replace(MINI, weights=weights)) for record in records]


def test_other_weights_under_the_same_words_are_told(tmp_path: Path) -> None:
    found = both(tmp_path, with_model(bench(), "0" * 12), with_model(bench(seed=10), "f" * 12))
    (note,) = [note for note in found.notes if "another model" in note]
    assert note.startswith("another model under the same words, in 3 cells: gdn-mini (9.5 M), 000000000000 in BASE")
    assert note.endswith("gdn-mini (9.5 M), ffffffffffff in NEW")
    for place, (one, other) in enumerate(((bench(), with_model(bench(seed=10), "f" * 12)), (bench(), bench(seed=10)))):
        assert not any("another model" in note for note in both(tmp_path / str(place), one, other).notes), "not known"


def of_model(records: list[Record], name: str) -> list[Record]:
    info = replace(MINI, name=name, weights=name)
    return [replace(one, model=name, model_info=info, overrides=(*one.overrides, f"model={name}")) for one in records]


def test_runs_of_two_models_say_so(tmp_path: Path) -> None:
    """Whether cells are matched or not, and where the records do not tell more than an option's name."""
    one, other = of_model(bench(), "first"), of_model(bench(seed=10), "second")
    told = r"the models differ: first \(9.5 M\) in BASE, {}second \(9.5 M\) in NEW$"
    with pytest.raises(SpeclaError, match=rf"no cell was measured in both; BASE has .*; {told.format('')}"):
        both(tmp_path, one, other)
    (note,) = [note for note in both(tmp_path / "more", one, [*one, *other]).notes if "model" in note]
    assert re.fullmatch(told.format(r"first \(9.5 M\), "), note)
    one, other = ([replace(record, model_info=None) for record in records] for records in (one, other))
    with pytest.raises(SpeclaError, match=r"; the models differ: first in BASE, second in NEW$"):
        both(tmp_path / "old", one, other)
    assert not any("model" in note for note in both(tmp_path / "same", one, one).notes)


def test_reports_of_several_models_under_the_same_words_are_compared_model_by_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plot, "png", lambda *_: None)
    models = ("0" * 12, "f" * 12)
    halves = []
    for name, seed in (("base", 0), ("new", 10)):
        runs = [run(tmp_path / name, with_model(bench(seed=seed), weights), f"run{weights[:1]}") for weights in models]
        halves.append(build_report(runs, tmp_path / name / "report").path)
    found = compare_runs(*halves)
    assert len(found.cells) == 6 and not (found.vanished or found.added)
    assert len(set(all_labels(found).values())) == 6, "told apart by their weights"


def test_damage_stands_above_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = run(tmp_path, bench()), run(tmp_path, bench(seed=10), "new")
    with open(new / "records.jsonl", "a") as file:
        file.write('{"schema": 1, "comm')
    found = compare_runs(base, new)
    assert len(found.damage) == 1 and found.damage[0] in found.notes and "was cut short" in found.damage[0]
    text = compare_markdown(found)
    assert text.index("Read with care") < text.index("was cut short") < text.index("| cell |")
    assert text.count("was cut short") == 1
    print_comparison(found)
    told = capsys.readouterr().out
    assert told.startswith("Read with care") and told.index("cut short") < told.index("verdict")
