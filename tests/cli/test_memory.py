"""Cells that the memory does not hold, before they run and while they do."""

import importlib
import json
from collections.abc import Callable

import numpy as np
import pytest

from specla.engine.decode import Decoding, Step
from specla.errors import NO_THREADS, MeasurementError
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
