"""The claims on single operations, and which strategy is fastest where."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specla.bench.record import KernelSample, Method, Record, Status
from specla.report.claims import Judged, judge_claims
from specla.report.load import Loaded, load_runs
from specla.report.operation_reading import operation_sentences
from specla.report.operations import winners
from specla.report.reading import claim_sentences
from specla.report.tables import claims_markdown, measured_text, sections
from tests.factory import kernel_record, write_run
from tests.kernel_factory import CPU, CPU_ENV, GPU, defer_run, recover_run, samples, tree_info, verify_run

PAPER: dict[str, Any] = {"device": "NVIDIA H100", "model": "gdn-1.3b", "dtype": "bfloat16"}
METHODS = {
    "VERIFY": ("verify", Method("hybrid", "factors"), "sequential_replay"),
    "RECOVER": ("recover", Method("tree", "factors"), "replay_tokens"),
    "DEFER": ("defer", Method("tree", "factors_deferred"), "factors"),
}


def cell(claim: str, ratio: float, **changes: Any) -> Record:
    """A cell that is exactly `ratio` times as fast as the claim's baseline, on a binary tree of 15 nodes."""
    kind, method, baseline = METHODS[claim]
    topology, info, _ = tree_info(changes.pop("shape", "b2"), changes.pop("nodes", 15))
    facts: dict[str, Any] = {"command": f"ablate {kind}", "group": kind, "nodes": info.nodes, "topology": info}
    facts |= {"method": replace(changes.pop("method", method), topology=topology), "accepted": 2, **PAPER, **changes}
    facts["overrides"] = (f"topology={topology}", f"workload.batch={facts.get('batch', 1)}")
    return kernel_record(50.0, {baseline: 50.0 * ratio}, **facts)


def failed(record: Record) -> Record:
    return replace(record, status=Status.FAILED, reason="wrong", samples=())


def loaded(folder: Path, records: Sequence[Record], **changes: Any) -> Loaded:
    return load_runs([write_run(folder, records, **changes)])


def judged(folder: Path, records: Sequence[Record], **changes: Any) -> Mapping[str, Judged]:
    return {one.claim.id: one for one in judge_claims(loaded(folder, records, **changes))}


@pytest.mark.parametrize(
    ("claim", "ratios", "expected"),
    [
        ("VERIFY", (1.0, 1.7), "short"),
        ("VERIFY", (1.0, 1.9), "reproduced"),
        ("VERIFY", (6.0, 30.0), "reproduced"),
        ("VERIFY", (7.2, 30.0), "exceeded"),
        ("RECOVER", (0.5, 2.7), "short"),
        ("RECOVER", (3.0, 3.5), "reproduced"),
        ("RECOVER", (4.3, 5.0), "exceeded"),
        ("DEFER", (0.9, 1.14), "short"),
        ("DEFER", (1.1, 1.2), "reproduced"),
        ("DEFER", (1.45, 1.6), "exceeded"),
    ],
)
def test_a_claim_is_judged_over_all_of_its_cells(
    tmp_path: Path, claim: str, ratios: tuple[float, ...], expected: str
) -> None:
    one = judged(tmp_path, [cell(claim, ratio, batch=1 + place) for place, ratio in enumerate(ratios)])[claim]
    assert one.verdict == expected and one.device == "NVIDIA H100" and one.differs == ("synthetic inputs",)
    assert one.measured is not None and one.cells == len(ratios)
    assert (one.measured.low, one.measured.high) == pytest.approx((min(ratios), max(ratios)))
    assert measured_text(one) == f"{min(ratios):.2f}x to {max(ratios):.2f}x over 2 cells"
    assert f"{min(ratios):.2f}x on kary-b2-n15, batch 1" in one.method and "batch 2" in one.method
    assert one.to_json()["cells"] == 2
    reach = sum(ratio >= one.claim.band.low for ratio in ratios)
    assert f"2 cells, {reach} of which reach {one.claim.band.low:.2f}x by their medians" in one.method


def test_what_was_not_run_is_not_measured(tmp_path: Path) -> None:
    found = judged(tmp_path, [cell("VERIFY", 3.0)])
    assert found["VERIFY"].verdict == "reproduced"
    assert {found[name].verdict for name in ("RECOVER", "DEFER", "ACCEPT", "PERFECT", "E2E")} == {"not_measured"}
    assert found["RECOVER"].differs == ("no cell measures it",)


def test_only_trees_speak_to_verification_and_only_the_claims_strategies(tmp_path: Path) -> None:
    chain = cell("VERIFY", 9.0, shape="chain", nodes=4)
    other = cell("VERIFY", 9.5, method=Method("parent_pointer", "snapshot"))
    assert judged(tmp_path / "a", [chain, other])["VERIFY"].verdict == "not_measured"
    lazy = cell("DEFER", 1.6, method=Method("tree", "factors_lazy"))
    found = judged(tmp_path / "b", [lazy, cell("DEFER", 1.2, batch=2), cell("DEFER", 1.2, batch=3)])["DEFER"]
    assert found.verdict == "reproduced" and found.cells == 2 and "our best, factors_lazy: 1.60x" in found.method
    ours = [cell("VERIFY", ratio, method=Method(name, "factors")) for name, ratio in (("tree", 5.0), ("auto", 4.0))]
    verify = judged(tmp_path / "c", [*ours, cell("VERIFY", 3.0)])["VERIFY"]
    assert verify.cells == 1 and verify.method == (
        "hybrid, kary-b2-n15, batch 1; our best, tree: 5.00x (5.00 to 5.00) "
        "(auto is left out: it runs one of the others)"
    )
    behind = [cell("VERIFY", 2.0, method=Method("tree", "factors")), cell("VERIFY", 3.0)]
    assert judged(tmp_path / "d", behind)["VERIFY"].method.endswith("; beside it, tree: 2.00x (2.00 to 2.00)")


def test_failed_cells_count_nowhere(tmp_path: Path) -> None:
    wrong = replace(cell("VERIFY", 40.0, batch=2), status=Status.FAILED, reason="wrong")
    one = judged(tmp_path / "a", [cell("VERIFY", 3.0), wrong])["VERIFY"]
    assert one.measured is not None and one.measured.high == pytest.approx(3.0)
    assert one.differs == ("synthetic inputs", "1 cell failed")
    assert judged(tmp_path / "b", [wrong])["VERIFY"].verdict == "not_measured"
    # Nor may anybody be measured against a baseline that was wrong.
    baseline = failed(cell("VERIFY", 1.0, method=Method("sequential_replay", "replay_tokens")))
    data = loaded(tmp_path / "c", [cell("VERIFY", 3.0), baseline])
    assert data.ratios.empty and judge_claims(data)[3].verdict == "not_measured"
    elsewhere = failed(cell("VERIFY", 1.0, method=Method("sequential_replay", "replay_tokens"), batch=4))
    assert len(loaded(tmp_path / "d", [cell("VERIFY", 3.0), elsewhere]).ratios) == 1


def spread_cell(claim: str, low: float, high: float, **changes: Any) -> Record:
    """Five repeats between two ratios, so that the interval is about as wide as they lie apart."""
    record = cell(claim, 1.0, **changes)
    (name,) = record.samples[0].baseline_us  # type: ignore[union-attr]
    ratios = (low, low, (low * high) ** 0.5, high, high)
    return replace(record, samples=tuple(KernelSample(i, 50.0, 0, {name: 50.0 * r}) for i, r in enumerate(ratios)))


def test_noise_earns_no_verdict(tmp_path: Path) -> None:
    noise = spread_cell("DEFER", 0.5, 3.0)
    alone = judged(tmp_path / "a", [noise])["DEFER"]
    assert (alone.verdict, alone.measured) == ("not_measured", None)
    assert alone.differs[-1].startswith("1 cell too noisy (an interval that overlaps the claim's band and is wider: ")
    assert alone.differs[-1].endswith("its high end over 1.25x its low)")
    assert "| not_measured: 1 cell too noisy |" in claims_markdown([alone])
    most = judged(tmp_path / "b", [noise, spread_cell("DEFER", 0.5, 3.0, batch=2), cell("DEFER", 1.2, batch=4)])
    assert most["DEFER"].verdict == "not_measured"
    few = judged(tmp_path / "c", [noise, cell("DEFER", 1.0, batch=2), cell("DEFER", 1.1, batch=4)])["DEFER"]
    assert few.verdict == "short" and few.cells == 2 and few.differs[-1].startswith("1 cell too noisy")


@pytest.mark.parametrize(("low", "high", "expected"), [(0.3, 1.1, "short"), (1.5, 6.0, "exceeded")])
def test_an_interval_wholly_outside_of_the_band_counts_however_wide(
    tmp_path: Path, low: float, high: float, expected: str
) -> None:
    one = judged(tmp_path, [spread_cell("DEFER", low, high)])["DEFER"]
    assert one.verdict == expected and one.cells == 1 and not any("noisy" in part for part in one.differs)


def test_inconclusive_cells_and_few_repeats_give_no_verdict(tmp_path: Path) -> None:
    unsure = cell("RECOVER", 3.0, status=Status.INCONCLUSIVE, reason="throttled")
    assert judged(tmp_path / "a", [unsure])["RECOVER"].verdict == "not_measured"
    few = judged(tmp_path / "b", [cell("RECOVER", 3.0, repeats=4)])["RECOVER"]
    assert few.verdict == "not_measured" and "4 repeats give no interval" in few.differs
    # One that has an interval speaks for itself.
    both = judged(tmp_path / "c", [cell("RECOVER", 9.0, repeats=4), cell("RECOVER", 3.0, batch=2)])["RECOVER"]
    assert both.verdict == "reproduced" and both.cells == 1


def test_a_cpu_says_so_and_the_nearest_setting_is_judged(tmp_path: Path) -> None:
    small = [*verify_run(CPU, chains=(), trees=(8,)), *recover_run(CPU, accepted=(2,)), *defer_run(CPU, (1,))]
    found = judged(tmp_path / "cpu", small, env=CPU_ENV)
    for name in ("VERIFY", "RECOVER", "DEFER"):
        assert found[name].verdict != "not_measured"
        assert found[name].differs[:3] == ("device AMD EPYC (a CPU)", "model gdn-mini", "dtype float32")
        assert "synthetic inputs" in found[name].differs
    runs = [write_run(tmp_path, [cell("VERIFY", 1.0)], slug="paper"), write_run(tmp_path, verify_run(GPU), slug="gpu")]
    near = next(one for one in judge_claims(load_runs(runs)) if one.claim.id == "VERIFY")
    assert near.device == "NVIDIA H100" and near.verdict == "short"


def race(times: Mapping[str, float], **changes: Any) -> list[Record]:
    """Strategies on one tree, each with its own time and sequential replay's beside it."""
    over = {"sequential_replay": times["sequential_replay"]}
    records = []
    for place, (name, time_us) in enumerate(times.items()):
        taken = samples(time_us, over if name != "sequential_replay" else {}, 0.01, 5, place)
        records.append(cell("VERIFY", 1.0, method=Method(name, "factors"), samples=taken, **changes))
    return records


def fastest(folder: Path, records: Sequence[Record]) -> Any:
    (section,) = sections(loaded(folder, records))
    (row,) = winners(section.kernels, section.ratios).itertuples()
    return row


def test_the_fastest_is_told_with_its_lead(tmp_path: Path) -> None:
    row = fastest(tmp_path, race({"sequential_replay": 100.0, "hybrid": 30.0, "tree": 20.0, "auto": 19.0}))
    assert (row.winner, row.next, row.sure) == ("tree", "hybrid", True)
    assert row.ahead == pytest.approx(1.5, rel=0.03) and row.gain == pytest.approx(5.0, rel=0.03)
    close = fastest(tmp_path / "b", race({"sequential_replay": 100.0, "hybrid": 20.02, "tree": 20.0}))
    assert not close.sure


@pytest.mark.parametrize("status", [Status.FAILED, Status.INCONCLUSIVE])
def test_a_cell_that_did_not_pass_never_wins(tmp_path: Path, status: Status) -> None:
    records = race({"sequential_replay": 100.0, "hybrid": 30.0, "tree": 1.0})
    records[2] = replace(records[2], status=status, reason="wrong")
    row = fastest(tmp_path, records)
    assert (row.winner, row.next) == ("hybrid", "sequential_replay")


def test_paired_times_tell_apart_what_drifts_together(tmp_path: Path) -> None:
    """Times vary by half from repeat to repeat, for both alike: the pair is sure where the two intervals overlap."""
    hybrid = samples(22.0, {"sequential_replay": 90.0}, 0.5, 9, 1)
    tree = tuple(
        replace(s, time_us=s.time_us / 1.2, baseline_us={**s.baseline_us, "hybrid": s.time_us}) for s in hybrid
    )
    records = [
        cell("VERIFY", 1.0, method=Method(name, "factors"), samples=taken)
        for name, taken in (("hybrid", hybrid), ("tree", tree))
    ]
    row = fastest(tmp_path / "paired", records)
    assert row.sure and row.winner == "tree"
    level = tuple(replace(s, baseline_us={"hybrid": s.time_us * r}) for s, r in zip(tree, (0.9, 1.1) * 5, strict=False))
    assert not fastest(tmp_path / "level", [records[0], replace(records[1], samples=level)]).sure
    alone = tuple(replace(s, baseline_us={}) for s in tree)
    assert not fastest(tmp_path / "alone", [records[0], replace(records[1], samples=alone)]).sure


def told(folder: Path, records: Sequence[Record]) -> str:
    (section,) = sections(loaded(folder, records))
    return "\n".join(operation_sentences(section))


def test_the_reading_says_what_is_faster_and_where_not(tmp_path: Path) -> None:
    records = [
        *race({"sequential_replay": 40.0, "tree": 50.0, "hybrid": 30.0}, nodes=4, shape="chain"),
        *race({"sequential_replay": 80.0, "tree": 50.0, "hybrid": 60.0}, nodes=8, shape="chain"),
        *race({"sequential_replay": 160.0, "tree": 52.0, "hybrid": 90.0}, nodes=16, shape="chain"),
    ]
    text = told(tmp_path, records)
    assert "Verifying chains" in text and "4 to 16 nodes, batch 1" in text and "Verifying trees" not in text
    assert "(ahead from 8 nodes up)" in text
    assert "Fastest verification: tree in 2 of 3 cases, hybrid in 1" in text and "hybrid on chain-l3, batch 1" in text
    assert "slower than sequential replay in 1 of 6 cells: tree 0.8" in text
    assert "times the floor" in text and "auto" not in text


def test_what_the_intervals_do_not_tell_apart_is_neither_ahead_nor_slower(tmp_path: Path) -> None:
    records = [
        replace(spread_cell("VERIFY", low, high, nodes=nodes), overrides=(f"nodes={nodes}",))
        for nodes, low, high in ((8, 1.2, 1.4), (15, 0.8, 1.3), (31, 0.7, 0.99), (63, 1.5, 1.6))
    ]
    text = told(tmp_path, records)
    assert "(ahead from 63 nodes up)" in text
    assert "slower than sequential replay in 1 of 4 cells: hybrid 0.83x on kary-b2-n31" in text


def test_claims_are_read_beside_the_papers_bands_and_say_that_it_is_a_cpu(tmp_path: Path) -> None:
    small = [cell("VERIFY", 2.5, **CPU), cell("DEFER", 0.9, **CPU)]
    assert claim_sentences(list(judged(tmp_path / "cpu", small, env=CPU_ENV).values())) == [
        "VERIFY: on a CPU, hybrid against sequential replay gives 2.50x (2.50 to 2.50); "
        "the paper has 1.80x to 7.11x on an H100 (reproduced).",
        "DEFER: on a CPU, factors_deferred against committing at once gives 0.90x (0.90 to 0.90); "
        "the paper has 1.15x to 1.44x on an H100 (short).",
    ]
    (large,) = claim_sentences(list(judged(tmp_path / "gpu", [cell("VERIFY", 2.5)]).values()))
    assert large.startswith("VERIFY: on NVIDIA H100, hybrid")


def test_the_reading_of_commits(tmp_path: Path) -> None:
    records = [cell("RECOVER", ratio, accepted=count) for count, ratio in ((0, 0.8), (2, 3.0), (4, 5.0))]
    records += [cell("DEFER", ratio, batch=batch) for batch, ratio in ((1, 0.9), (8, 1.3))]
    records = [replace(r, overrides=(*r.overrides, f"measure.accepted={r.accepted}")) for r in records]
    text = told(tmp_path, records)
    assert "factors 0.80x to 5.00x (ahead from 2 accepted on)" in text
    assert (
        "A commit is slower than replay tokens in 1 of 3 cells: factors 0.80x on kary-b2-n15, batch 1, 0 accepted"
        in text
    )
    assert "0.90x (0.90 to 0.90) at batch 1, 1.30x (1.30 to 1.30) at batch 8; ahead for certain in 1 of 2" in text
    assert "Putting the commit off is slower than factors in 1 of 2 cells" in text


def picked(folder: Path, times: Mapping[str, float], name: str, noise: float = 0.001) -> str:
    """The sentences about auto, which picked `name` and has a time of its own."""
    records = []
    for place, (verify, time_us) in enumerate(times.items()):
        taken = samples(time_us, {"sequential_replay": 100.0}, noise, 9, place)
        why = f"auto: {name}, because it took 9.9 us on a tree of 15 nodes" if verify == "auto" else ""
        records.append(cell("VERIFY", 1.0, method=Method(verify, "factors"), samples=taken, why=why))
    return "\n".join(line for line in told(folder, records).splitlines() if line.startswith("auto"))


def test_what_auto_picks_and_its_own_time_are_said_apart(tmp_path: Path) -> None:
    right = picked(tmp_path / "a", {"tree": 20.0, "hybrid": 30.0, "auto": 24.6}, "tree")
    assert "auto picked the fastest of chain, tree and hybrid in 1 of 1 case." in right
    assert (
        "within 3 % or 0.15 us of the fastest candidate's in 0 of 1 case, and behind it in 1; at worst 1.23x" in right
    )
    assert "against tree's 20.0 us (" in right and "on kary-b2-n15, batch 1." in right
    wrong = picked(tmp_path / "b", {"tree": 20.0, "hybrid": 30.0, "auto": 30.0}, "hybrid")
    assert "in 0 of 1 case (it picked hybrid where tree was fastest on kary-b2-n15, batch 1)." in wrong
    near = picked(tmp_path / "c", {"tree": 1.0, "hybrid": 3.0, "auto": 1.1}, "tree")
    assert near.endswith("candidate's in 1 of 1 case.")


def test_autos_time_within_the_noise_is_not_called_behind(tmp_path: Path) -> None:
    text = picked(tmp_path, {"tree": 20.0, "hybrid": 60.0, "auto": 24.6}, "tree", noise=0.5)
    assert "not told apart from it in 1 more (the intervals overlap)" in text and "behind" not in text
    few = [
        replace(cell("VERIFY", 1.0, method=Method(n, "factors")), samples=samples(t, {}, 0.01, 3, 0))
        for n, t in (("tree", 20.0), ("auto", 30.0))
    ]
    assert "without an interval in 1 more" in told(tmp_path / "few", few)


def test_the_fastest_says_that_auto_is_left_out(tmp_path: Path) -> None:
    records = race({"sequential_replay": 100.0, "hybrid": 30.0, "tree": 20.0, "auto": 19.0})
    line = next(part for part in told(tmp_path, records).splitlines() if part.startswith("Fastest verification"))
    assert line.startswith("Fastest verification: tree") and line.endswith(
        "auto is left out: it runs one of the others."
    )
