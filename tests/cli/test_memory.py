"""Cells that the memory does not hold, before they run and while they do."""

import importlib
import json
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from specla.bench.cases import blocks
from specla.bench.cells import Cell
from specla.bench.measure import Method
from specla.bench.methods import fastest_ar
from specla.bench.subject import Item, Subject
from specla.bench.workloads.prompt import Prompt
from specla.engine.decode import Decoding, Step
from specla.errors import NO_THREADS, SMALLER, MeasurementError
from tests.cli.conftest import Run

RANDOM = "model=gdn-tiny model.weights=random workload.max_new_tokens=4 measure.repeats=1 threads=1"
NO_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4294967296 bytes. Error code 12 (Cannot allocate memory)"
)


def test_cells_beyond_the_memory_fail_before_anything_is_loaded(run: Run) -> None:
    words = "experiment=null model=gdn-tiny measure=quick threads=1 workload.batch=1,10000000 --json"
    code, out, err = run(f"specla ablate verify {words}")
    cells = {cell["batch"]: cell for cell in json.loads(out.splitlines()[-1])["cells"]}
    assert code == 4 and cells[1]["status"] == "passed"
    assert cells[10000000]["status"] == "failed" and "does not fit: takes about" in cells[10000000]["reason"]
    assert sum(line.startswith("failed: ") for line in err.splitlines()) == 1


def test_a_dry_run_says_what_does_not_fit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specla.bench.unseen.available_bytes", lambda: 2 << 30)
    words = f"bench e2e {RANDOM} workload.batch=1,64 workload.prompts=64 workload.prompt_tokens=64"
    assert run(f"specla {words} --dry-run")[0] == 0
    monkeypatch.setattr("specla.bench.unseen.available_bytes", lambda: 1 << 20)
    code, out, _ = run(f"specla {words} --dry-run --json")
    told = "does not fit: takes about 0.8 GiB, and 0.0 GiB are free on cpu: use a smaller batch, tree or model"
    assert code == 4 and out.count("does not fit  ") == 4 and told in out
    cells = json.loads(out.splitlines()[-1])["cells"]
    assert {cell["status"] for cell in cells} == {"failed"} and cells[0]["reason"].startswith("does not fit")


def test_a_cell_that_the_memory_does_not_hold_fails_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch raises on a CPU is no bug of specla."""

    def step(decoding: Decoding) -> Step:
        if decoding.tree.nodes == 3:
            raise RuntimeError(NO_MEMORY)
        return taken(decoding)

    taken = Decoding.step
    monkeypatch.setattr(Decoding, "step", step)
    code, out, err = run(f"specla bench e2e {RANDOM} topology.length=1,2 workload.batch=2 workload.prompts=2 --json")
    cells = {cell["nodes"]: cell for cell in json.loads(out.splitlines()[-1])["cells"]}
    assert code == 4 and [cells[nodes]["status"] for nodes in (1, 2, 3)] == ["inconclusive"] * 2 + ["failed"]
    told = "out of memory (4.0 GiB more were asked for): workload.batch=1 would fit"
    assert cells[3]["reason"] == told and told in err and "bug" not in err


@pytest.mark.parametrize("place", ["require_sound", "_item", "fastest_ar"])
def test_a_batch_whose_prompts_or_ar_do_not_fit_fails_alone(
    place: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is measured, at its prefill, or at AR: the other batch is measured, whichever comes first."""
    ran = fastest_ar

    def full(subject: Subject) -> None:
        if subject.settings.workload.batch == 2:
            raise RuntimeError(NO_MEMORY)

    def chosen(cell: Cell, subject: Subject) -> Method:
        full(subject)
        return ran(cell, subject)

    def prefilled(subject: Subject, index: int, prompts: Sequence[Prompt]) -> Item:
        full(subject)
        return item(subject, index, prompts)

    item = Subject._item
    patched = {"require_sound": (Subject, full), "_item": (Subject, prefilled), "fastest_ar": (blocks, chosen)}
    monkeypatch.setattr(patched[place][0], place, patched[place][1])
    for batches in ("1,2", "2,1"):
        code, out, err = run(
            f"specla bench e2e {RANDOM} drafter=ngram topology.length=1 workload.batch={batches} workload.prompts=2 "
            f"--json --out {batches[0]}"
        )
        cells = json.loads(out.splitlines()[-1])["cells"]
        found = {(cell["batch"], cell["status"]) for cell in cells}
        assert code == 4 and found == {(1, "inconclusive"), (2, "failed")} and len(cells) == 4
        told = "out of memory (4.0 GiB more were asked for): workload.batch=1 would fit"
        assert {cell["reason"] for cell in cells if cell["batch"] == 2} == {told} and "bug" not in err


def test_ar_that_finds_no_room_for_a_ring_commits_in_place(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(method: Method, item: Item) -> object:
        if method.recover.name == "factors_lazy":
            raise RuntimeError(NO_MEMORY)
        return decoded(method, item)

    decoded = Method.decode
    monkeypatch.setattr(Method, "decode", decode)
    code, out, _ = run(f"specla bench e2e {RANDOM} drafter=ngram topology.length=1 workload.prompts=1 --json")
    why = next(cell["why"] for cell in json.loads(out.splitlines()[-1])["cells"] if cell["nodes"] == 1)
    assert (
        code == 3
        and why == f"AR: in_place; factors_lazy failed: out of memory (4.0 GiB more were asked for): {SMALLER}"
    )


@pytest.mark.parametrize("error", [RuntimeError(NO_MEMORY), MemoryError(), np.empty])
def test_a_model_that_the_memory_does_not_hold_is_no_bug(
    error: Exception | Callable[..., object], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        if isinstance(error, Exception):
            raise error
        error(1 << 58)

    monkeypatch.setattr("specla.bench.cases.e2e.load_target", load)
    code, _, err = run(f"specla bench e2e {RANDOM}")
    assert code == 4 and err.splitlines()[-1].startswith("specla: out of memory") and "Traceback" not in err
    assert err.endswith(": use a smaller batch, tree or model\n")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MeasurementError("out of memory: ulimit -v leaves 3 MiB"), "out of memory: ulimit -v leaves 3 MiB"),
        (RuntimeError("can't start new thread"), f"{NO_THREADS}: raise the limit, or give threads=1"),
    ],
)
def test_a_library_that_has_no_room_ends_the_command_in_a_line(
    error: Exception, told: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a thread that cannot be started is no bug either."""

    def plan(*_: object) -> None:
        importlib.import_module("this")

    def refuse(name: str) -> None:
        raise error

    monkeypatch.setattr("specla.bench.available._LOADED", {"this": {}})
    monkeypatch.setattr("specla.bench.available.require_room", refuse)
    monkeypatch.setattr("specla.bench.plan.plan", plan)
    assert run("specla bench e2e --dry-run") == (4, "", f"specla: {told}\n")
