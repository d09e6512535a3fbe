"""`ablate defer`: whole steps in their steady state, and a ring that comes round as often as it says."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specla.bench.cases.defer import DEFER, Steps, period
from specla.bench.cases.layers import RandomLayers, Truth
from specla.bench.cases.operation import Demand, Given, pair
from specla.bench.plan import plan
from specla.bench.settings import EngineSettings
from specla.models.cost import ModelCost
from specla.ops.recover.factors_deferred import DeferredFactors
from specla.ops.recover.factors_lazy import LazyFactors
from specla.topology import DraftTree, chain, kary
from tests.bench.ablations import ablate, tiny

COMMAND = "ablate defer"


def lazy(ring: int) -> EngineSettings:
    return EngineSettings(name="specla", verify="tree", recover="factors_lazy", ring=ring)


def given(tree: DraftTree, accepted: int) -> Given:
    config = tiny()
    layers = RandomLayers(config, 2, tree, torch.float32, "cpu", 0)
    return Given(layers, Truth(layers, accepted), accepted)


def test_at_once_deferred_and_lazily(tmp_path: Path) -> None:
    words = "topology=chain,kary topology.nodes=6 engine.verify=tree,hybrid,chain workload.batch=1,3 "
    ran = ablate(tmp_path, COMMAND, words + "engine.recover=factors,factors_deferred,factors_lazy engine.ring=7")
    measured = [cell for cell in ran.document["cells"] if cell["status"] != "not_applicable"]
    assert ran.document["status"] == "passed" and len(measured) == 2 * 3 * (3 + 2)
    for cell in measured:
        assert set(cell["ratio"]) == {"factors"} - {cell["method"]["recover"]}
        assert cell["error_rms"] < 2e-6 and cell["accepted"] == (4 if "chain" in cell["method"]["topology"] else 2)


def test_at_once_is_timed_where_nobody_asked_for_it(tmp_path: Path) -> None:
    ran = ablate(tmp_path, COMMAND, "engine.verify=tree engine.recover=factors_lazy,replay_tokens engine.ring=5,16")
    assert len(ran.document["cells"]) == 3
    for cell in ran.document["cells"]:
        assert list(cell["ratio"]) == ["factors"] and cell["status"] == "passed"


@pytest.mark.parametrize(("ring", "committed", "longest"), [(16, 5, 5), (16, 1, 5), (5, 5, 5), (7, 2, 4), (9, 3, 3)])
def test_the_period_is_what_the_ring_does(ring: int, committed: int, longest: int) -> None:
    steps = period(lazy(ring), committed, longest)
    with torch.inference_mode():
        case = given(chain(longest - 1), committed - 1)
        operation = Steps(case, lazy(ring))
        folds: list[bool] = []
        recovery = operation._places[0].recovery
        pending = recovery.pending

        def noted() -> Any:
            known, fold = pending()
            folds.append(fold is not None and bool(fold.all()))
            return known, fold

        recovery.pending = noted  # type: ignore[method-assign]
        operation.restore()
        folds.clear()
        for _ in range(3):
            operation.run()
    assert operation.calls == 2 * steps
    assert folds == ([True] + [False] * (steps - 1)) * 3
    assert period(pair("tree", "factors_deferred"), committed, longest) == 1


def test_the_floor_of_a_ring_is_a_mean_over_its_period() -> None:
    config = tiny()
    cost = ModelCost.of(config, "float32").one_layer
    at_once = DEFER.traffic(cost, Demand(3, chain(4), 4, pair("tree", "factors")))
    assert at_once == DEFER.traffic(cost, Demand(3, chain(4), 4, pair("tree", "factors_deferred")))
    assert at_once == cost.verify(3, 5, known=5, writes_state=True)
    ring = DEFER.traffic(cost, Demand(3, chain(4), 4, lazy(16)))
    assert at_once.written_bytes - ring.written_bytes == 3 * cost.state_bytes * 2 // 3
    assert ring.read_bytes - at_once.read_bytes == 3 * 5 * cost.factor_bytes


def test_a_fold_that_is_forgotten_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = DeferredFactors.pending

    def forgets(self: DeferredFactors) -> Any:
        known, _ = right(self)
        return known, None

    monkeypatch.setattr(DeferredFactors, "pending", forgets)
    ran = ablate(tmp_path, COMMAND, "engine.verify=tree engine.recover=factors,factors_deferred,factors_lazy")
    deferred = ran.cell("tree", "factors_deferred")
    assert deferred["status"] == "failed" and deferred["error_rms"] > 1e-3
    assert ran.cell("tree", "factors_lazy")["status"] == "passed"


def test_a_ring_that_goes_wrong_only_after_it_came_round_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = LazyFactors.pending

    def stale(self: LazyFactors) -> Any:
        known, fold = right(self)
        if fold is not None and bool(fold.all()):
            known = known._replace(valid=known.valid & (torch.arange(known.valid.shape[1]) > 0))  # type: ignore[union-attr]
        return known, fold

    monkeypatch.setattr(LazyFactors, "pending", stale)
    ran = ablate(tmp_path, COMMAND, "engine.verify=tree engine.recover=factors_lazy measure.accepted=1")
    assert ran.cell("tree")["status"] == "failed"


def test_a_ring_too_small_for_a_step_does_not_apply() -> None:
    words = [
        "experiment=null",
        "topology=chain,kary",
        "topology.length=9",
        "engine.recover=factors_lazy",
        "engine.ring=8",
    ]
    chained, tree = plan(COMMAND, words).cells
    assert chained.reason == "engine.ring=8: a step of chain-l9 commits up to 10 tokens; give 10 or more"
    assert tree.status == "pending"


def test_steps_leave_every_layer_as_the_equations_do() -> None:
    """All layers, not the checked one alone: whatever the recovery, the same states after a run and a flush."""
    with torch.inference_mode():
        case, states = given(kary(2, 6), 2), []
        for engine, runs in ((pair("tree", "factors"), 5), (pair("hybrid", "factors_deferred"), 5), (lazy(7), 2)):
            operation = Steps(case, engine)
            assert operation.calls * (runs + 1) == 2 * 6
            operation.restore()
            for _ in range(runs):
                operation.run()
            for place in operation._places:
                place.recovery.flush(place.state)
            states.append(case.layers.state.clone())
        assert not torch.allclose(states[0], case.layers.initial, atol=1e-2)
        assert all(torch.allclose(states[0], state, atol=1e-5) for state in states[1:])
