"""Windows on a device: as long as the gate's decode says, the same text every time, and depths chosen late."""

import time
from typing import Any

import pytest
import torch

from specla.bench.cases.e2e import EndToEnd
from specla.bench.measure import Decoded, Method
from specla.bench.on_device import LATE, DeviceMethod
from specla.bench.plan import plan
from specla.bench.run import prepare
from specla.bench.subject import Item
from specla.engine.decode import Step
from specla.engine.device import DeviceDecoding
from tests.engine.texts import off_from
from tests.ops.kernels.replays import replays

WORDS = "model=gdn-tiny model.weights=random workload.prompts=1 workload.prompt_tokens=8 workload.max_new_tokens=9 "
WORDS += "drafter=oracle topology=chain topology.length=2 engine.verify=tree engine.recover=factors_deferred"
CUDA = torch.cuda.is_available()


class HostEvent:
    """An event of a device that does everything at once."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: "HostEvent") -> float:
        return (other.at - self.at) * 1e3


class HostReport:
    """What a cycle did, at once."""

    def __init__(self, log: Any, texts: Any, cycle: int) -> None:
        self.done = HostEvent()
        self.done.record()
        self._parts = (log.accepted[cycle].tolist(), log.kept[cycle].tolist(), texts.finished.tolist())

    def read(self) -> Any:
        return self._parts


@pytest.fixture
def methods(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From words to the methods of their cells, AR's first."""
    if not CUDA:
        monkeypatch.setattr(torch.cuda, "Event", HostEvent)
        monkeypatch.setattr("specla.engine.device.CudaGraphs", replays)
        monkeypatch.setattr(DeviceDecoding, "report", lambda self, cycle: HostReport(self.log, self.texts, cycle))

    def make(words: str) -> list[DeviceMethod]:
        device = "device=cuda dtype=float32" if CUDA else "device=cpu"
        works = prepare(plan("bench e2e", f"{WORDS} {device} {words}".split())).works
        (work,) = (work for work in works if isinstance(work, EndToEnd))
        return [DeviceMethod(cell, work.subject) for cell in work.cells]

    return make


def after_the_gate(method: DeviceMethod) -> tuple[Item, Decoded, list[Step]]:
    """The one item of a method, decoded as the gate does, whose text every window is held against."""
    (item,) = method.subject.items
    decoded, steps = method.decode(item)
    method.texts[item.index] = decoded.emitted
    return item, decoded, steps


@torch.inference_mode()
def test_windows_emit_what_the_gate_saw(methods: Any) -> None:
    ar, oracle = methods("drafter.alpha=0.7")
    (item,) = ar.subject.items
    expected = Method(ar.cell, ar.subject).decode(item)[0].emitted if not CUDA else ar.subject.reference(item)
    for method in (ar, oracle):
        decoded, steps = method.decode(item)
        method.texts[item.index] = decoded.emitted
        assert decoded.emitted == expected
        for _ in range(2):
            timed = method.time(item)
            assert not method.departed and timed.steps == len(steps) and timed.seconds > 0
            assert timed.tokens == 8 and timed.split.verify > 0
        method.texts[item.index] = [[*expected[0][:4], expected[0][4] + 1, *expected[0][5:]]]
        method.time(item)
        assert "left the text that the gate saw" in method.departed
        method.release()
    assert oracle.first_steps(item, 2).steps == 2


@torch.inference_mode()
def test_depths_are_chosen_from_late_counters(methods: Any) -> None:
    ar, method = methods("drafter.alpha=0.7 engine.adaptive=true")
    item, decoded, _ = after_the_gate(method)
    timed = method.time(item)
    assert decoded.emitted == ar.subject.reference(item) and not method.departed
    assert 0 < timed.steps <= 8 and timed.tokens <= 8 and "adaptive: no drafts in" in method.why


@torch.inference_mode()
def test_the_host_runs_no_further_ahead_than_the_longest_text(methods: Any) -> None:
    _, method = methods("drafter.alpha=0.0 engine.adaptive=true")
    item, _, steps = after_the_gate(method)
    assert len(steps) == 8, "with nothing accepted a step emits one token"
    for _ in range(2):
        timed = method.time(item)
        assert (timed.steps, timed.tokens) == (8, 8) and not method.departed


@torch.inference_mode()
def test_a_window_drafts_what_the_gate_drafted_before_it_knew_better(methods: Any) -> None:
    _, method = methods("drafter.alpha=1.0")
    (item,), subject = method.subject.items, method.subject
    expected = subject.reference(item)
    subject.traces[0] = off_from(subject.traces[0], [2], subject.model.config.vocab_size)
    decoded, steps = method.decode(item)
    assert decoded.emitted == expected
    # The first draft to leave the text was wrong, and is so again, though the oracle has AR's text by then.
    taken = [step.accepted[0] for step in steps]
    assert min(taken[:2]) < 2 and max(taken[2:]) == 2
    method.texts[item.index] = decoded.emitted
    for _ in range(2):
        timed = method.time(item)
        assert (timed.steps, timed.tokens) == (len(steps), 8) and not method.departed


@torch.inference_mode()
def test_an_oracles_depths_are_timed_as_they_were_chosen(methods: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, method = methods("drafter.alpha=1.0 engine.adaptive=true")
    subject = method.subject
    subject.traces[0] = off_from(subject.traces[0], [2], subject.model.config.vocab_size)
    item, _, _ = after_the_gate(method)
    ran: list[int | None] = []
    advance = DeviceDecoding.advance

    def noted(self: DeviceDecoding, cycles: int = 1, depth: int | None = None) -> None:
        ran.append(depth)
        advance(self, cycles, depth)

    monkeypatch.setattr(DeviceDecoding, "advance", noted)
    for _ in range(3):
        ran.clear()
        timed = method.time(item)
        chosen, again = ran[: timed.steps], ran[timed.steps :]
        assert again[: timed.steps] == chosen and len(again) <= timed.steps + LATE
        # New traces came in between, and the second time nobody makes any: what is drafted is the same.
        assert timed.tokens == 8 and not method.departed and method.why.startswith("adaptive")
