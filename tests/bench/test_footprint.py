"""What a decode holds is counted before it is taken: held against what processes took, and against arithmetic."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from specla.bench.cells import Cell
from specla.bench.estimate import does_not_fit, estimate, longest_prompt
from specla.bench.footprint import BANDWIDTH_BYTES, SLACK_BYTES
from specla.bench.plan import plan

GIB = 1 << 30
# No bandwidth is measured, whose tensors would hide what is asked for here. The peak is the memory map's own: that of
# `getrusage` begins with what the process held which started this one.
MEASURE = """
import re, sys, tempfile
from pathlib import Path
import torch
from specla.bench import run as bench
from specla.bench.plan import plan
from specla.bench import bandwidth
bandwidth._BYTES["cpu"] = 1 << 20
silent = bench.Observer(lambda line: None, lambda count: None, lambda what: None)
def measured(words):
    prepared = bench.prepare(plan("bench e2e", words))
    return bench.run(prepared, Path(tempfile.mkdtemp()), "run", False, silent).document["status"]
def kept(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
measured(sys.argv[2].split())
before = kept("VmRSS")
status = measured(sys.argv[1].split())
print(status, kept("VmHWM") - before)
"""
SMALL = "model=gdn-tiny workload.prompts=1 workload.max_new_tokens=2 measure.repeats=1 threads=1 drafter=oracle"


SHAPE = "topology=kary topology.branching=2 drafter=oracle workload=dataset workload.dataset=some/prompts"


def cell(*words: str, batch: int = 1, nodes: int = 8) -> Cell:
    """The drafting cell of a batch and a tree; words come before the shape's own."""
    shape = f"{SHAPE} topology.nodes={nodes} workload.batch={batch} workload.prompts={batch} workload.prompt_tokens=8"
    given = dict(word.split("=", 1) for word in (*shape.split(), *words))
    return plan("bench e2e", [f"{key}={value}" for key, value in given.items()]).cells[-1]


def held(one: Cell, device: str = "cpu", dtype: str = "float32") -> int:
    return estimate(one, device, dtype).memory_bytes


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak as Linux counts it")
@pytest.mark.parametrize("verify", ["tree", "parent_pointer"])
def test_what_is_counted_is_what_is_taken(verify: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a tenth too little, and at most twice as much, where neither slack nor bandwidth's tensors hide it."""
    monkeypatch.setitem(BANDWIDTH_BYTES, "cpu", 0)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"text {i}"}) + "\n" for i in range(384)))
    words = (
        f"model=gdn-tiny workload=dataset workload.path={prompts} workload.batch=384 workload.prompts=384 threads=1 "
        "topology=kary topology.branching=2 topology.nodes=48 drafter=oracle measure.repeats=1 measure.warmup=0 "
        f"workload.max_new_tokens=2 measure=quick engine.verify={verify}"
    )
    ran = subprocess.run([sys.executable, "-c", MEASURE, words, SMALL], capture_output=True, text=True, check=True)
    status, taken = ran.stdout.split()[-2:]
    cells = plan("bench e2e", words.split()).cells
    counted = max(held(one) for one in cells) - SLACK_BYTES
    assert status != "failed" and 0.9 * int(taken) <= counted <= 2 * int(taken)


def test_many_rows_and_nodes_take_their_activations_and_logits() -> None:
    """Of batch 1024 with 64 nodes 1.2 GiB were told, and many times that was taken: the logits alone are 2 GiB."""
    logits = 1024 * 64 * 8192 * 4
    assert logits + 6 * GIB < held(cell("model=gdn-mini", batch=1024, nodes=64)) < 24 * GIB


STATE = 8 * 256 * 64 * 4


@pytest.mark.parametrize(
    ("word", "states"),
    [
        ("engine.verify=parent_pointer", 8),
        ("sampling.temperature=1", 0.3),
        ("drafter=aligned", 0.05),
        ("workload.prompt_tokens=2048", 10),
        ("workload.prompts=4096", 15),
    ],
)
def test_what_takes_more_is_counted(word: str, states: float) -> None:
    """In states of all rows: one for every node, or for every batch of prompts, noise, weights, long prompts."""
    more, less = (held(cell("model=gdn-mini", *words, batch=256)) for words in ((word,), ("engine.verify=tree",)))
    assert more - less > 0.9 * states * STATE * 256


def test_prompts_are_as_long_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": "x" * 100}) + "\n" + json.dumps({"prompt": "y"}) + "\n")
    words = ("workload.dataset=null", f"workload.path={path}", "workload.prompts=1", "model=gdn-tiny")
    assert longest_prompt(cell(*words, "workload.prompt_tokens=500").settings) == 100
    assert longest_prompt(cell(*words, "workload.prompt_tokens=10").settings) == 10
    assert longest_prompt(cell("workload.prompt_tokens=77").settings) == 77


def test_all_prompts_are_counted_where_none_are_named(tmp_path: Path) -> None:
    """Their states are kept, and every pass decodes them all."""
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"text {number}"}) + "\n" for number in range(40)))
    words = ("workload.dataset=null", f"workload.path={path}", "model=gdn-mini", "workload.prompts=")
    every, named, few = (cell(*words[:-1], f"{words[-1]}{count}", batch=4) for count in ("null", "40", "4"))
    estimates = [estimate(one, "cpu", "float32") for one in (every, named, few)]
    assert estimates[0] == estimates[1] and estimates[0].seconds == pytest.approx(10 * estimates[2].seconds, rel=1e-3)
    assert held(every) - held(few) > 0.9 * 9 * 4 * STATE
    unseen = cell(
        "workload.path=null", "workload.dataset=someone/texts", *words[2:-1], "workload.prompts=null", batch=4
    )
    assert estimate(unseen, "cpu", "float32").seconds == pytest.approx(estimates[2].seconds, rel=0.1)


def test_long_prompts_take_their_time(tmp_path: Path) -> None:
    """Two million tokens of one prompt were a second, for 40 that they took."""
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": "word " * 400_000}) + "\n")
    words = ("workload.dataset=null", f"workload.path={path}", "model=gdn-tiny", "workload.prompt_tokens=null")
    assert 20 < estimate(cell(*words), "cpu", "float32").seconds < 120


def test_what_does_not_fit_says_what_would() -> None:
    one = cell("model=gdn-mini", batch=512)
    told = does_not_fit(one, "cpu", "float32", 2 * GIB)
    assert told.startswith("does not fit: takes about ") and "2.0 GiB are free on cpu: workload.batch=" in told
    fits = int(told.split("workload.batch=")[1].split()[0])
    assert 1 < fits < 512 and held(cell("model=gdn-mini", batch=fits)) <= 2 * GIB
    assert does_not_fit(one, "cpu", "float32", 64 * GIB) == ""
    assert does_not_fit(one, "cpu", "float32", 1).endswith("use a smaller batch, tree or model")


def test_a_gpu_holds_graphs_and_the_weights_once() -> None:
    one = cell("model=gdn-1.3b", "model.weights=random", batch=8)
    assert 10 * GIB < held(one, "cuda", "bfloat16") < 40 * GIB


def test_one_row_that_does_not_fit_gets_a_shorter_chain() -> None:
    words = (
        "model=gdn-1.3b",
        "model.weights=random",
        "engine.verify=parent_pointer",
        "engine.recover=snapshot",
        "topology.nodes=64",
    )
    one = cell(*words)
    told = does_not_fit(one, "cpu", "float32", held(one) - 1)
    assert told.endswith(": topology=chain topology.length=31 would fit")
    assert does_not_fit(one, "cpu", "float32", 1).endswith(
        ": use shorter prompts (workload.prompt_tokens), a smaller tree or model"
    )
