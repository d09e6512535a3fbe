"""The engines of flash-linear-attention: texts, stop rule and counts are our AR's; not applicable without a GPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from specla.bench.fla import Heard, Text
from specla.bench.fla_model import ENGINES, foreign_layers, foreign_model, obstacle
from specla.bench.measure import gate
from specla.bench.methods import make_method
from specla.bench.plan import plan
from specla.bench.record import Lossless
from specla.bench.subject import Subject, load_target
from specla.engine.decode import StopRule, prefill
from specla.errors import SpeclaError
from specla.ops.sampling import Sampling
from tests.bench.ablations import ablate
from tests.bench.fla_texts import CASES, LIMIT
from tests.models.cases import prompts, tiny_model

ROOT = Path(__file__).parents[2]
every_engine = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(scope="module")
def decoded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Everything that `fla_texts` found."""
    file = tmp_path_factory.mktemp("fla") / "texts.json"
    call = [sys.executable, "-m", "tests.bench.fla_texts", str(file)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-4000:]
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_its_engines_decode_the_texts_of_ours(case: str, decoded: Any) -> None:
    """Batches whose prompts differ in length; in `sampled` a row ends before the other, and a second batch follows."""
    for engine in ENGINES:
        found = decoded[case][engine]
        assert found["lossless"] == "exact" and found["texts"] == found["reference"] and not found["departed"]
        tokens = sum(len(row) - 1 for batch in found["texts"] for row in batch)
        assert found["counted"] == [tokens, tokens, 0]
        # A window ends with its first row.
        steps = [min(len(row) for row in batch) - 1 for batch in found["texts"]]
        assert [window[:2] for window in found["windows"]] == [[2 * n, n] for n in steps]
        assert (min(steps) < LIMIT - 1) == (case == "sampled")
        assert found["why"].startswith("flash-linear-attention 0")
    assert decoded[case]["fla-graph"]["why"].endswith("a step in a CUDA graph, in place")


@pytest.mark.gpu
@every_engine
def test_on_a_gpu_its_texts_pass_the_gate(engine: str) -> None:
    words = f"model=gdn-tiny engine={engine} device=cuda dtype=float32 workload.prompts=4 workload.batch=2"
    cell = plan("bench e2e", [*words.split(), "workload.max_new_tokens=24"]).cells[-1]
    subject = Subject(load_target(cell.settings.model, torch.float32, "cuda", 0), cell.settings, 0)
    method = make_method(cell, subject)
    result, _ = gate(method, subject.items)
    assert result.lossless is not Lossless.FAILED, result.reason
    windows = [method.time(item) for item in subject.items]
    assert [one.steps for one in windows] == [23, 23] and not method.departed
    assert engine != "fla-graph" or method.why.endswith("in place")
    method.release()


@every_engine
def test_without_a_gpu_its_engines_are_not_applicable(engine: str, tmp_path: Path) -> None:
    words = f"engine={engine} model=gdn-tiny workload.prompts=1 workload.max_new_tokens=2"
    ran = ablate(tmp_path, "bench e2e", words)
    cells = {cell["method"]["engine"]: cell for cell in ran.document["cells"]}
    assert cells["specla"]["status"] == "passed" and cells[engine]["status"] == "not_applicable"
    assert cells[engine]["reason"] == (
        f"{engine} runs flash-linear-attention's kernels, which need a GPU: give device=cuda"
    )


@every_engine
def test_a_package_that_is_missing_is_told(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fla.models", None)
    assert obstacle("specla", "cuda") == obstacle("specla", "cpu") == ""
    told = obstacle(engine, "cuda:1")
    assert told.startswith(f"{engine} needs flash-linear-attention, which cannot be imported (ModuleNotFoundError: ")


def test_generate_streams_our_own_texts_alone() -> None:
    cell = plan("generate", ["engine=fla-graph"]).cells[0]
    assert cell.status == "not_applicable" and "fla-graph is a baseline, to be measured by bench e2e" in cell.reason


def test_a_model_that_it_does_not_have() -> None:
    with pytest.raises(SpeclaError, match=r"conv_bias=true: flash-linear-attention's model has no bias"):
        foreign_model(tiny_model(conv_bias=True))


def test_its_cache_holds_our_state() -> None:
    """A copy; windows are oldest first, as ours, behind one place that is never read."""
    model = tiny_model(num_v_heads=4)
    state = prefill(model, prompts(5, 9), Sampling()).state
    layers = foreign_layers(state, model.config)
    assert len(layers) == model.config.num_hidden_layers
    for layer, recurrent, window in zip(layers, state.recurrent, state.window, strict=True):
        assert torch.equal(layer["recurrent_state"], recurrent)
        assert layer["recurrent_state"].data_ptr() != recurrent.data_ptr()
        assert torch.equal(torch.cat([part[..., 1:] for part in layer["conv_state"]], dim=1).mT, window)
        assert all(part.is_contiguous() for part in layer["conv_state"])


@pytest.mark.parametrize(("whole", "emitted"), [(True, [[1, 2, 9], [3, 4, 5, 6]]), (False, [[1, 2, 9], [3, 4, 5]])])
def test_a_text_ends_by_the_stop_rule(whole: bool, emitted: list[list[int]]) -> None:
    """At an end of text or the limit; nothing behind it counts, and after all rows nothing at all."""
    start = prefill(tiny_model(), prompts(3, 4), Sampling())
    start.roots[:] = [1, 3]
    text = Text(start, StopRule(4, frozenset({9})), whole)
    for tokens in ([2, 4], [9, 5], [7, 6], [8, 8]):
        text.take(tokens)
    assert text.emitted == emitted and text.over
    assert text.steps[:2] == [[[2], [4]], [[9], [5]]] and text.steps[2:] == ([[[], [6]]] if whole else [])


def test_a_root_that_ends_its_text_leaves_nothing_to_decode() -> None:
    start = prefill(tiny_model(), prompts(3), Sampling())
    assert Text(start, StopRule(1), whole=True).over


def test_a_window_whose_length_is_known_asks_for_no_more() -> None:
    start = prefill(tiny_model(), prompts(3), Sampling())
    assert Text(start, StopRule(9), whole=False).most == 8
    assert Text(start, StopRule(9), whole=False, most=3).most == 3


def test_tokens_are_heard_step_by_step() -> None:
    tokens = torch.tensor([[1], [2]])
    heard = Heard(tokens, 2)
    heard.listen(0)
    tokens += 10
    heard.listen(1)
    assert [heard.tokens(step) for step in range(2)] == [[1, 2], [11, 12]]
