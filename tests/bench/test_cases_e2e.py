"""End-to-end cells with a ring of factors: lossless, whatever its size, for AR too."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from specla.bench.measure import Method, Timed, time_block
from specla.bench.plan import plan
from specla.bench.record import Split
from specla.bench.run import Observer, prepare, run
from specla.bench.settings import MeasureSettings
from specla.bench.subject import Item, Subject, load_target
from specla.bench.workloads.base import Prompt
from specla.engine.accept import Acceptance
from specla.ops.recover.factors_lazy import LazyFactors
from specla.ops.types import TreeTensors
from specla.topology import chain
from tests.bench.ablations import ablate

LAZY = "engine.recover=factors_lazy"


class Paced:
    """In place of a method: every window takes as long."""

    def __init__(self, seconds: float, steps: int) -> None:
        self.timed = Timed(seconds, 2 * steps, steps, Split(0.0, 1.0, 1.0, 1.0))

    def time(self, item: Item) -> Timed:
        return self.timed


def test_ar_that_took_no_step_is_no_partner() -> None:
    item: Any = SimpleNamespace(index=0, category="", prompts=("a",))
    ended, drafting, ar = Paced(0.0, 0), Paced(1.0, 3), Paced(2.0, 6)
    pairs: list[Any] = [(ended, drafting), (ar, drafting)]
    found = [time_block(base, [own], [item], MeasureSettings(repeats=1), lambda: None) for base, own in pairs]
    assert found[0][0] == [] and [(s.seconds, s.ar_seconds, s.ar_tokens) for s in found[0][1]] == [(1.0, None, None)]
    assert [(s.seconds, s.ar_seconds, s.ar_tokens) for s in found[1][1]] == [(1.0, 2.0, 12)]


def test_a_ring_end_to_end_is_lossless(tmp_path: Path) -> None:
    """Rings that fold in every step and now and then, of a batch whose rows accept different lengths; AR beside AR."""
    words = f"drafter=oracle drafter.alpha=0.7 workload.prompts=2 workload.batch=2 workload.max_new_tokens=16 {LAZY}"
    ran = ablate(tmp_path, "bench e2e", f"{words} topology.length=2 engine.verify=ar,tree,chain engine.ring=3,7")
    assert ran.document["status"] == "passed"
    lazily = [cell for cell in ran.document["cells"] if cell["method"]["recover"] == "factors_lazy"]
    assert len(lazily) == 2 * 3 and {cell["lossless"] for cell in lazily} == {"exact"}
    assert all(cell["speedup"]["n"] == 5 for cell in lazily)
    assert ran.cell("ar", "in_place")["ratio"]["ar"]["median"] == 1.0
    assert ran.ticks == ran.units


@pytest.mark.parametrize("ring", [9, 23])
def test_the_ring_of_a_cell_reaches_the_engine(ring: int) -> None:
    words = ["model=gdn-tiny", "topology.length=2", "engine.verify=tree", LAZY, f"engine.ring={ring}"]
    cell = plan("bench e2e", [*words, "workload.prompts=1", "workload.max_new_tokens=4"]).cells[-1]
    target = load_target(cell.settings.model, torch.float32, "cpu", 0)
    subject = Subject(target, cell.settings, 2, [Prompt("one", "prose", "a text")])
    strategy = Method(cell, subject).start(subject.items[0]).recovery.strategy
    assert isinstance(strategy, LazyFactors)
    assert (strategy.ring, strategy.longest) == (ring, 3)


def test_a_root_alone_is_decoded_as_ar_is() -> None:
    words = ["model=gdn-tiny", "drafter=ngram", "topology=auto", "topology.nodes=4", "engine.verify=tree"]
    cell = plan("bench e2e", [*words, LAZY, "workload.max_new_tokens=32"]).cells[-1]
    target = load_target(cell.settings.model, torch.float32, "cpu", 0)
    subject = Subject(target, cell.settings, 2, [Prompt("one", "prose", "a text")])
    for tree, verify, recover in ((chain(0), "ar", "in_place"), (chain(2), "tree", "factors_lazy")):
        method = Method(replace(cell, tree=tree), subject)
        assert (method.verify.name, method.recover.name) == (verify, recover)
        assert method.start(subject.items[0]).verify is method.verify


def test_a_timed_window_must_emit_what_the_gate_saw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A method that is honest before the gate and greedy on the clock is failed, and shows no speedup."""
    honest = Method.time

    def cheat(self: Method, item: Item) -> Timed:
        if self.cell.method.verify != "ar":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("specla.engine.decode.accept", accept_everything)
                return honest(self, item)
        return honest(self, item)

    monkeypatch.setattr(Method, "time", cheat)
    words = ["experiment=smoke", "measure.repeats=5", "drafter.alpha=0.1", "engine.verify=tree", "topology=chain"]
    result = run(
        prepare(plan("bench e2e", words)),
        tmp_path,
        "cheat",
        True,
        Observer(lambda line: None, lambda count: None, lambda what: None),
    )
    drafted = [cell for cell in result.document["cells"] if cell["method"]["verify"] != "ar"]
    assert drafted and all(cell["status"] == "failed" and cell.get("speedup") is None for cell in drafted)
    assert "the gate saw" in drafted[0]["reason"]


def accept_everything(logits: Tensor, tokens: Tensor, tree: TreeTensors, *_: object) -> Acceptance:
    """Every draft of a chain, whatever the target says."""
    path = torch.arange(tree.nodes)[None]
    return Acceptance(path, torch.tensor([tree.nodes - 1]), torch.cat((tokens[:, 1:], logits[:, -1:].argmax(-1)), 1))
