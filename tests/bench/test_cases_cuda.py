"""Ablations on a GPU: graph-timed, cold, by their own tolerances, `auto` by what it measured in the same case."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from specla.bench.bandwidth import measure_bandwidth
from specla.bench.cases import KINDS
from specla.bench.cases.dispatch import case_table
from specla.bench.cases.kernels import WARM
from specla.bench.cases.layers import COLD, MOST_LAYERS, RandomLayers, Truth, layer_count
from specla.bench.cases.operation import CUDA_TOLERANCES, TOLERANCES, Given, pair
from specla.bench.clock import GRAPH
from specla.bench.estimate import model_config
from specla.bench.instruments import Instruments
from specla.bench.plan import plan
from specla.bench.run import device_of, main_device, prepare
from specla.bench.settings import MeasureSettings
from specla.bench.subject import require_device, resolve_device, resolve_dtype
from specla.errors import SpeclaError
from specla.ops.types import VerifyOutput
from specla.ops.verify.auto import Auto
from specla.ops.verify.hybrid import Hybrid
from specla.ops.verify.naive_batched import NaiveBatched
from specla.ops.verify.tree import TreeMask
from specla.topology import DraftTree, chain, kary
from tests.bench.ablations import ablate, tiny
from tests.bench.fake_graphs import FakeGraphs, Run, fake_clock

COMMAND = "ablate verify"
QUICK = MeasureSettings(name="quick", repeats=5, warmup=0, sample_ms=0.2)


def given(tree: DraftTree, batch: int = 1) -> Given:
    layers = RandomLayers(tiny(), batch, tree, torch.float32, "cpu", 0)
    return Given(layers, Truth(layers), 0)


def is_of(work: Run, strategy: type) -> bool:
    """Whether work is the run of an operation by this strategy."""
    return isinstance(getattr(getattr(work, "__self__", None), "verify", None), strategy)


def test_auto_takes_a_gpu_for_operations_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, expected in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert [resolve_device("auto", command) for command in KINDS] == [expected] * 3
        assert resolve_device("auto", "bench e2e") == resolve_device("auto", "generate") == "cpu"
    assert resolve_device("cpu", COMMAND) == "cpu" and resolve_device("cuda", COMMAND) == "cuda"
    assert resolve_dtype("auto", "cuda") is torch.bfloat16 and resolve_dtype("auto", "cpu") is torch.float32
    mixed = plan("bench paper", ["experiment=paper-e2e,paper-verify", "workload.prompts=1"])
    assert {device_of(cell) for cell in mixed.cells} == {"cpu", "cuda"} and main_device(mixed) == "cuda"


def test_a_missing_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    require_device("cpu")
    with pytest.raises(SpeclaError, match=r"^device=cuda: torch .* finds no CUDA device here; measure with device=cpu"):
        prepare(plan(COMMAND, ["experiment=gpu-verify"]))


def test_layers_are_added_until_no_cache_holds_their_states() -> None:
    large = model_config(plan(COMMAND, ["experiment=null", "model=gdn-1.3b"]).cells[0].settings.model)
    cache = 50 << 20
    assert layer_count(large, 1, cache) == 50 and layer_count(large, 128, cache) == 24
    assert layer_count(large, 1, 0) == 24 and layer_count(tiny(), 1, cache) == MOST_LAYERS
    with torch.inference_mode():
        cold = RandomLayers(tiny(), 1, chain(2), torch.float32, "cpu", 0, cache_bytes=20_000)
        assert len(cold.layers) == 10 and cold.cold and cold.state.nbytes >= COLD * 20_000
        assert not RandomLayers(tiny(), 1, chain(2), torch.float32, "cpu", 0, cache_bytes=cache).cold


def test_kernels_have_tolerances_of_their_own() -> None:
    verify, recover, defer = (KINDS[f"ablate {name}"] for name in ("verify", "recover", "defer"))
    tree, again = pair("tree", "factors"), pair("tree", "replay_tokens")
    for dtype in ("float32", "bfloat16", "float16"):
        assert {kind.tolerance(tree, dtype, "cuda") for kind in (verify, recover, defer)} == {1e-5}
        assert verify.tolerance(tree, dtype) == verify.tolerance(tree, dtype, "cpu") == TOLERANCES["verify"][dtype]
        assert verify.tolerance(again, dtype, "cuda") == 1e-5
        assert defer.tolerance(again, dtype, "cuda") == CUDA_TOLERANCES["replay_tokens"][dtype]


@torch.inference_mode()
def test_auto_is_measured_on_its_own_case() -> None:
    clock, made = fake_clock()
    for tree, names in ((chain(4), {"chain", "tree", "hybrid"}), (kary(2, 7), {"tree", "hybrid"})):
        case = given(tree, batch=2)
        table = case_table(case, pair("auto", "factors"), QUICK, clock, pytest.fail)
        ((key, times),) = table.times_us.items()
        assert (key.is_chain, key.nodes, key.batch) == (tree.is_chain, tree.nodes, 2) and set(times) == names
        strategy, why = Auto(table=table).choose(tree, 2, tiny().head_shape)
        assert strategy.name == min(times, key=times.__getitem__) and f"of {tree.nodes} nodes, batch 2, on " in why
    assert sum(graphs.asked.count("capture") for graphs in made) == 3 + 2
    assert all(graphs.asked[-1] == "release" for graphs in made[1:])


@torch.inference_mode()
def test_auto_does_without_what_is_wrong_or_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    right, lines = TreeMask.verify, list[str]()

    def broken(self: Hybrid, *inputs: Any) -> VerifyOutput:
        raise RuntimeError("no such tile")

    monkeypatch.setattr(Hybrid, "verify", broken)
    monkeypatch.setattr(TreeMask, "verify", lambda self, *x: right(self, *x)._replace(out=x[1].v.float()))
    table = case_table(given(chain(4)), pair("auto", "factors"), QUICK, fake_clock()[0], lines.append)
    assert [set(times) for times in table.times_us.values()] == [{"chain"}]
    assert "auto does without tree: ArithmeticError: relative RMS error" in lines[0]
    assert lines[1].endswith("auto does without hybrid: RuntimeError: no such tile")
    none = case_table(given(kary(2, 7)), pair("auto", "factors"), QUICK, fake_clock()[0], lines.append)
    assert none.times_us == {}
    assert "because no such topology was measured" in Auto(table=none).choose(kary(2, 7), 1, tiny().head_shape)[1]


def test_records_say_how_they_were_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way of a case, with graphs that a CPU replays: one strategy waits, and the cache is too large."""

    class Graphs(FakeGraphs):
        cache_bytes = 1 << 30  # type: ignore[assignment]
        waits = staticmethod(lambda work: is_of(work, NaiveBatched))

    monkeypatch.setattr("specla.bench.cases.layers.MOST_LAYERS", 6)
    monkeypatch.setattr("specla.bench.instruments.clock_for", lambda device: fake_clock(Graphs)[0])
    ran = ablate(tmp_path, COMMAND, "topology=kary topology.nodes=6 engine.verify=naive_batched,tree")
    eager = f"eager: RuntimeError: called a synchronizing CUDA operation; {WARM}"
    assert ran.cell("tree")["timing"] == f"{GRAPH}; {WARM}" and ran.cell("naive_batched")["timing"] == eager
    assert any("naive_batched + replay_tokens is timed with its launches: eager: Run" in line for line in ran.lines)
    assert {cell["status"] for cell in ran.document["cells"]} == {"passed"}


@pytest.mark.parametrize("command", ["ablate recover", "ablate defer"])
def test_commits_can_be_captured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr("specla.bench.instruments.clock_for", lambda device: fake_clock()[0])
    ran = ablate(tmp_path, command, "engine.verify=tree engine.recover=factors,factors_deferred,factors_lazy")
    timed = [cell for cell in ran.document["cells"] if cell["status"] != "not_applicable"]
    assert {(cell["status"], cell["timing"]) for cell in timed} == {("passed", GRAPH)}


def test_what_auto_chose_by_stands_in_the_run(tmp_path: Path) -> None:
    ran = ablate(tmp_path, COMMAND, "engine.verify=auto dtype=bfloat16")
    rows = json.loads((ran.path / "dispatch.json").read_text())
    assert {row["tree"] for row in rows} >= {"chain-l1", "kary-b2-n8"} and {row["dtype"] for row in rows} == {
        "bfloat16"
    }
    assert all(time_us > 0 for row in rows for time_us in row["times_us"].values())
    instruments = Instruments("cpu", lambda line: None)
    case = given(kary(3, 7))
    with torch.inference_mode():
        instruments.keep(
            case_table(case, pair("auto", "factors"), QUICK, fake_clock()[0], pytest.fail), torch.float32, "x"
        )
    assert [(row["tree"], row["nodes"], row["heads"]["value_heads"]) for row in instruments.dispatch] == [("x", 7, 4)]


@pytest.mark.gpu
@pytest.mark.parametrize("command", list(KINDS))
def test_every_strategy_on_a_gpu(tmp_path: Path, command: str) -> None:
    recovers = "factors" if command == COMMAND else "factors,replay_tokens,replay_cached"
    words = "device=cuda dtype=bfloat16 topology=chain,kary topology.length=4 topology.nodes=9 workload.batch=1,3 "
    names = "sequential_replay,naive_batched,parent_pointer,tree,hybrid,auto,chain"
    words += f"engine.verify={names} engine.recover=auto" if command == COMMAND else "engine.verify=tree,auto,chain"
    ran = ablate(tmp_path, command, words if command == COMMAND else f"{words} engine.recover={recovers}")
    cells = [cell for cell in ran.document["cells"] if cell["status"] != "not_applicable"]
    assert {cell["status"] for cell in cells} == {"passed"}, [cell["reason"] for cell in cells if cell["reason"]]
    assert {cell["device"] for cell in cells} == {torch.cuda.get_device_name()}
    assert all(cell["timing"] for cell in cells)
    for cell in (cell for cell in cells if cell["method"]["verify"] == "auto"):
        assert f"nodes, batch {cell['batch']}, on {torch.cuda.get_device_name()}" in cell["why"]
    assert json.loads((ran.path / "dispatch.json").read_text())


@pytest.mark.gpu
@torch.inference_mode()
def test_the_truth_of_the_large_shape_takes_seconds() -> None:
    large = model_config(plan(COMMAND, ["experiment=null", "model=gdn-1.3b"]).cells[0].settings.model)
    layers = RandomLayers(large, 8, kary(2, 64), torch.bfloat16, "cuda", 0, 50 << 20)
    assert len(layers.layers) == 24 and layers.state.device.type == "cuda"
    assert Truth(layers).outputs(0).dtype == torch.float64


@pytest.mark.gpu
def test_bandwidth_of_a_gpu() -> None:
    found = measure_bandwidth("cuda")
    assert "torch.sum" in found.ways and "triton" in found.ways
    assert 1e11 < found.copy_bytes_s < 2 * found.read_bytes_s < 2e13
