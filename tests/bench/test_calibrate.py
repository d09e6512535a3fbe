"""topology=auto: from counts and step times to the tree, and cells whose tree is chosen before they are measured."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.bench.cases.calibrate import (
    Calibration,
    cost_table,
    level_cost,
    rising,
    smoothed,
    timed_trees,
    wide_tree,
)
from specla.bench.choice import Cost
from specla.bench.measure import Method, Timed
from specla.bench.plan import plan
from specla.bench.record import Record, Status
from specla.bench.run import prepare
from specla.bench.subject import Item
from specla.bench.tally import Tally
from specla.best_tree import alpha_levels, best_picks, expected_tokens, fastest, most_tokens
from specla.errors import SpeclaError
from specla.topology import DraftTree, chain, kary
from tests.bench.ablations import QUICK, ablate

FEW = "workload.prompts=2 workload.max_new_tokens=16 measure.calibration=2"
ORACLE = "drafter=oracle drafter.alpha=[[0.6,0.3]] topology=auto topology.nodes=6"


def tally(offered: list[tuple[int, ...]], right: list[tuple[int, ...]]) -> Tally:
    return Tally(offered[0][0], offered[0][0], 0, 0, (), (), tuple(offered), tuple(right))


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=9))
def test_rising_never_falls_and_keeps_the_sum(values: list[float]) -> None:
    found = rising(values)
    assert len(found) == len(values) and sum(found) == pytest.approx(sum(values))
    assert all(one <= other + 1e-9 for one, other in pairwise(found))
    assert rising(sorted(values)) == sorted(values)


def test_what_few_steps_reached_leans_on_the_depth_above() -> None:
    table = smoothed(tally([(100, 100), (60, 20), (1,)], [(60, 20), (30, 4), (1,)]))
    assert table[0] == [0.6, 0.2]
    assert table[1] == pytest.approx([(30 + 4 * 0.6) / 64, (4 + 4 * 0.2) / 24])
    assert table[2][0] == pytest.approx((1 + 4 * table[1][0]) / 5) and table[2][1] == table[1][1]
    # A rank that nobody was asked for at the first depth is never right; shares of other steps never sum to over 1.
    assert smoothed(tally([(10, 0)], [(5, 0)])) == [[0.5, 0.0]]
    assert sum(smoothed(tally([(10, 1)], [(9, 1)]))[0]) == pytest.approx(1.0)


def test_the_trees_that_are_timed() -> None:
    trees = timed_trees(alpha_levels([[0.6, 0.2]], 9), 10)
    assert {tree.nodes for tree in trees} == {1, 2, 3, 5, 8, 10}
    assert {tree.nodes for tree in trees if tree.is_chain} == {1, 2, 3, 5, 8, 10}
    assert [tree.parents for tree in timed_trees(alpha_levels([[0.6]], 3), 4)] == [chain(n).parents for n in range(4)]
    wide = wide_tree(16)
    assert wide.nodes == 64 and wide.depth <= 15 and max(map(len, wide.children)) == 4
    assert wide_tree(16, chains_only=True).is_chain and wide_tree(128).nodes == 128
    assert wide_tree(2).parents == (-1, 0, 0, 0, 0)


def costs(level: float = 0.0) -> list[Cost]:
    """Steps of 1,000 us and 10 a node, of which drafting takes 5 and `level` a level; chains take 3 less."""
    shapes = [*(chain(n - 1) for n in (1, 2, 3, 5, 8)), kary(2, 5), kary(2, 8), kary(4, 8)]
    return [
        Cost(t.nodes, t.depth, 1000 + 10 * t.nodes + level * t.depth - 3 * t.is_chain, 5 + level * t.depth, t.is_chain)
        for t in shapes
    ]


def test_costs_between_what_was_timed() -> None:
    assert level_cost(costs(7.0)) == pytest.approx(7.0) and level_cost(costs()) == pytest.approx(0.0, abs=1e-9)
    assert level_cost([cost for cost in costs(7.0) if cost.chain]) == 0.0
    table = cost_table(costs(7.0)[:-1], 7.0, 8, 7)
    assert table[1, 0] == pytest.approx(1007e-6) and table[4, 3] == pytest.approx((1000 + 40 + 21 - 3) * 1e-6)
    assert table[8, 3] == pytest.approx((1000 + 80 + 21) * 1e-6)
    assert table[8, 5] == pytest.approx((1000 + 80 + 35) * 1e-6)
    assert np.isinf(table[0]).all() and np.isinf([table[1, 1], table[2, 0], table[3, 3], table[5, 5]]).all()
    assert np.isfinite([table[3, 1], table[5, 3], table[8, 7]]).all()
    # Where nothing that branches was timed, chains alone are weighed.
    alone = cost_table([cost for cost in costs() if cost.chain], 0.0, 8, 7)
    assert np.isfinite(alone).sum() == 8


def test_a_level_that_costs_makes_the_tree_flatter() -> None:
    alpha = alpha_levels([[0.7, 0.2]], 7)
    flat, deep = (fastest(best_picks(alpha, cost_table(costs(us), us, 8, 7))) for us in (0.0, 200.0))
    assert deep.depth < flat.depth
    assert expected_tokens(DraftTree(flat.parents), alpha) == pytest.approx(flat.tau)
    assert flat.parents == most_tokens(alpha, 8)[flat.nodes - 1]


def chosen(records: list[Record]) -> Record:
    found = [record for record in records if record.choice is not None]
    assert len(found) == 1
    return found[0]


def test_an_oracles_cell_end_to_end(tmp_path: Path) -> None:
    """Chosen from the alpha given, lossless, recorded whole, and kept when the run is taken up again."""
    ran = ablate(tmp_path, "bench e2e", f"{ORACLE} {FEW} engine.verify=tree")
    assert ran.document["status"] == "passed" and ran.ticks == ran.units
    record = chosen(ran.records)
    choice = record.choice
    assert choice is not None and choice.known and choice.most == 6 and choice.prompts == 2
    assert choice.alpha == ((0.6, 0.3),) and choice.offered == ()
    assert {cost.nodes for cost in choice.costs} == {1, 2, 3, 5, 6}
    assert record.topology.parents == choice.picked.parents and record.topology.name == "auto"
    assert record.nodes == len(choice.picked.parents) <= 6 and record.method.topology == "auto-n6"
    tree = DraftTree(choice.picked.parents)
    assert choice.picked.tau == pytest.approx(expected_tokens(tree, alpha_levels([[0.6, 0.3]], 5)))
    assert [other.tok_s for other in choice.others] == sorted((other.tok_s for other in choice.others), reverse=True)
    assert all(other.tok_s <= choice.picked.tok_s * (1 + 1e-9) for other in choice.others)
    assert record.why.startswith("topology=auto: ") and ran.cell("tree")["why"] == record.why
    assert record.synthetic and record.alpha_asked == ((0.6, 0.3),)
    again = ablate(tmp_path, "bench e2e", f"{ORACLE} {FEW} engine.verify=tree")
    assert again.ticks == 0 and chosen(again.records) == record


@pytest.mark.parametrize(
    "words",
    ["engine.verify=auto workload.batch=2", "engine.verify=chain engine.adaptive=true sampling.temperature=0.8"],
)
def test_a_drafters_acceptance_is_measured(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By prompt lookup, on two rows at once, on the whole set; steps are timed on its first prompts. A strategy for
    chains gets a chain."""
    timed, first_steps = list[tuple[int, int]](), Method.first_steps

    def noted(self: Method, item: Item, most: int) -> Timed:
        timed.append((item.index, most))
        return first_steps(self, item, most)

    monkeypatch.setattr(Method, "first_steps", noted)
    monkeypatch.setattr("specla.bench.cases.calibrate.COSTED", 4)
    few = "workload.prompts=2 workload.max_new_tokens=32 measure.calibration=8"
    ran = ablate(tmp_path, "bench e2e", f"drafter=ngram topology=auto topology.nodes=5 {few} {words}")
    assert ran.document["status"] == "passed" and ran.ticks == ran.units
    choice = chosen(ran.records).choice
    assert choice is not None and not choice.known and choice.prompts == 8
    assert len(choice.alpha) <= 4 and choice.offered[0][0] > 40
    assert all(0 <= share <= 1 for line in choice.alpha for share in line)
    assert {place for place, _ in timed} == set(range(2 if "batch=2" in words else 4))
    if "chain" in words:
        assert {len(line) for line in choice.alpha} == {1} and all(cost.chain for cost in choice.costs)


def test_drafts_that_do_not_pay_are_not_drafted(tmp_path: Path) -> None:
    words = f"drafter=oracle drafter.alpha=0.0 topology=auto topology.nodes=4 engine.adaptive=true {FEW}"
    ran = ablate(tmp_path, "bench e2e", words)
    record = chosen(ran.records)
    assert record.status is Status.PASSED and record.nodes == 1
    assert "the root alone" in record.why and ran.cell("auto")["tau"] == 1.0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("workload.prompts=119 drafter=oracle", "leave 1 of the 120 prompts of workload=heldout"),
        ("drafter=ngram workload.max_new_tokens=8", "the 16 tokens of 2 prompts are too few for topology=auto"),
        ("drafter=ngram measure.calibration=null", "measure.calibration=null: topology=auto needs prompts"),
        ("drafter=ngram measure.calibration=0", "measure.calibration=0: give 1 or more"),
        ("topology.nodes=1", "topology.nodes=1: a tree has its root"),
        ("topology.nodes=129", "topology.nodes=129: give at most 128"),
    ],
)
def test_too_small_a_calibration_set(words: str, told: str) -> None:
    given = {word.partition("=")[0]: word for word in ["topology=auto", *FEW.split(), *QUICK, *words.split()]}
    with pytest.raises(SpeclaError, match=told.replace("(", r"\(")):
        prepare(plan("bench e2e", list(given.values())))


def test_an_open_cell_before_it_is_measured() -> None:
    """Planned with what it may have at most; its fingerprint covers the prompts that it is chosen on."""
    words = ["topology=auto,chain", "drafter=oracle", *FEW.split(), *QUICK]
    planned = plan("bench e2e", words)
    auto = next(cell for cell in planned.cells if cell.is_open)
    assert (auto.tree.nodes, auto.method.topology, auto.status) == (16, "auto-n16", "pending")
    prints = {}
    for count in (2, 3):
        given = [word.replace("calibration=2", f"calibration={count}") for word in words]
        prepared = prepare(plan("bench e2e", given))
        records = [prepared.planned[cell.config_hash] for cell in prepared.plan.cells]
        assert all(record.choice is None for record in records)
        assert [record.topology.parents for record in records if record.method.topology == "auto-n16"] == [None]
        prints[count] = {record.method.topology: record.fingerprint for record in records}
    assert prints[2]["auto-n16"] != prints[3]["auto-n16"]
    assert prints[2]["chain-l4"] == prints[3]["chain-l4"] and prints[2]["root"] == prints[3]["root"]
    ablation = plan("ablate verify", ["experiment=null", "topology=auto"]).cells
    assert {cell.status for cell in ablation} == {"not_applicable"} and "drafts nothing" in ablation[0].reason


def test_a_calibration_that_fails_is_one_cells_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no clock")

    monkeypatch.setattr(Calibration, "settle", broken)
    both = ORACLE.replace("topology=auto", "topology=auto,chain topology.length=2")
    ran = ablate(tmp_path, "bench e2e", f"{both} {FEW} engine.verify=tree")
    assert ran.document["status"] == "failed"
    assert [cell["status"] for cell in ran.document["cells"]].count("failed") == 1
    assert ran.cell("tree", status="failed")["reason"] == "RuntimeError: no clock"
    assert ran.cell("tree", status="passed")["method"]["topology"] == "chain-l2"
