"""End-to-end cells with a ring of factors: lossless, whatever its size, for AR too."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specla.bench import measure
from specla.bench.gate import GateResult
from specla.bench.measure import Method, Timed
from specla.bench.plan import plan
from specla.bench.record import Lossless, Sample
from specla.bench.run import Observer, exit_status, prepare, run
from specla.bench.settings import ModelSettings
from specla.bench.subject import Item, Subject, Target, load_target
from specla.bench.workloads.prompt import Prompt
from specla.engine.accept import Acceptance
from specla.errors import SpeclaError
from specla.ops.recover.factors_lazy import LazyFactors
from specla.ops.types import TreeTensors
from specla.topology import chain
from tests.bench.ablations import ablate

LAZY = "engine.recover=factors_lazy"


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


def test_near_ties_reach_the_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """How many, and how far the worst was from the bound."""
    found = GateResult(Lossless.NEAR_TIE, 2, 9, worst_tie=0.25)
    monkeypatch.setattr(measure, "check_texts", lambda *_: found)
    ran = ablate(tmp_path, "bench e2e", "drafter=ngram topology.length=2 workload.prompts=1 workload.max_new_tokens=8")
    cell = ran.cell("auto", "factors")
    assert (cell["lossless"], cell["near_ties"], cell["worst_tie"]) == ("near_tie", 2, 0.25)


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


def test_ar_keeps_its_windows_after_a_resume(tmp_path: Path) -> None:
    """Ten cells are three blocks, so AR has fifteen windows; the session dies in the third."""
    words = "drafter=ngram topology.length=1,2,3,4,5 engine.verify=tree,chain workload.prompts=1"
    words += " workload.max_new_tokens=6 measure.repeats=5 measure.warmup=0"
    blocks: list[str] = []

    def killed(line: str) -> None:
        if line.startswith("timing: ") and line not in blocks:
            blocks.append(line)
            if len(blocks) == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ablate(tmp_path, "bench e2e", words, killed)
    ran = ablate(tmp_path, "bench e2e", words)
    assert ran.document["status"] == "passed" and any(line.startswith("9 of 11 cells were") for line in ran.lines)
    (ar,) = (record for record in ran.records if record.method.is_ar)
    windows = [(s.repeat, s.item, s.seconds, s.tokens) for s in ar.samples if isinstance(s, Sample)]
    assert len(windows) == len(set(windows)) == 3 * 5
    others = [s for record in ran.records for s in record.samples if isinstance(s, Sample)]
    assert {(s.repeat, s.item, s.ar_seconds, s.ar_tokens) for s in others} == set(windows)
    assert ran.cell("ar")["speedup"] == {"median": 1.0, "low": 1.0, "high": 1.0, "n": 5}


TWO = ["model=gdn-tiny", "model.weights=checkpoint", "drafter=ngram", "engine.verify=tree", "threads=1"]
TWO += ["workload.prompts=1", "workload.max_new_tokens=4", "measure=quick", "topology.length=1"]
QUIET = Observer(lambda line: None, lambda count: None, lambda what: None)


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints without files: the weights of /w/nan are no numbers, /w/cut cannot be read."""

    def load(settings: ModelSettings, dtype: torch.dtype, device: str, seed: int) -> Target:
        if settings.path == "/w/cut":
            raise SpeclaError("/w/cut/model.safetensors: cannot be read, perhaps cut short")
        target = load_target(replace(settings, weights="random"), dtype, device, seed)
        if settings.path == "/w/nan":
            target.model.model.norm.weight.data.fill_(torch.nan)
        return target

    monkeypatch.setattr("specla.bench.cases.e2e.load_target", load)


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize("late", [False, True])
def test_a_bad_model_beside_a_good_one_is_its_own_cells(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is found out while everything is loaded or on the way."""
    if late:
        monkeypatch.setattr(Subject, "require_sound", lambda self: None)
    planned = plan("bench e2e", [*TWO, "model.path=/w/nan,/w/cut,/w/good"])
    result = run(prepare(planned, partly=True), tmp_path, "two", True, QUIET)
    assert exit_status(result.document) == 4
    cells = {path: [c for c in result.document["cells"] if f"model.path={path}" in c["overrides"]] for path in PATHS}
    assert {path: {cell["status"] for cell in found} for path, found in cells.items()} == {
        "/w/nan": {"failed"},
        "/w/cut": {"failed"},
        "/w/good": {"passed"},
    }
    nan = "model.path=/w/nan: the model's logits are not finite after the prompt: its weights or config are broken"
    assert {cell["reason"] for cell in cells["/w/nan"]} == {nan}
    assert {cell["reason"] for cell in cells["/w/cut"]} == {
        "/w/cut/model.safetensors: cannot be read, perhaps cut short"
    }
    assert [len(found) for found in cells.values()] == [2, 2, 2]


PATHS = ("/w/nan", "/w/cut", "/w/good")


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(
    ("paths", "told"), [("/w/nan", "/w/nan: the model's logits are not finite"), ("/w/cut,/w/nan", "/w/cut/model")]
)
def test_bad_models_alone_are_bad_input(paths: str, told: str) -> None:
    with pytest.raises(SpeclaError, match=told):
        prepare(plan("bench e2e", [*TWO, f"model.path={paths}"]), partly=True)


def test_a_method_that_dies_on_the_clock_takes_nobody_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Method.time

    def dying(self: Method, item: Item) -> Timed:
        if self.cell.method.verify == "chain":
            raise RuntimeError("no such tile")
        return honest(self, item)

    monkeypatch.setattr(Method, "time", dying)
    words = "drafter=ngram topology.length=2 engine.verify=tree,chain,hybrid workload.prompts=1"
    ran = ablate(tmp_path, "bench e2e", f"{words} workload.max_new_tokens=4")
    found = {cell["method"]["verify"]: (cell["status"], cell["reason"]) for cell in ran.document["cells"]}
    whole = ("passed", "")
    died = ("failed", "RuntimeError: no such tile")
    assert found == {"ar": whole, "tree": whole, "hybrid": whole, "chain": died}
