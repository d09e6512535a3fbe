"""The tuning tool as far as it goes without a GPU. That its trials are right: tests/ops/kernels/test_tile_trials.py."""

import json
from pathlib import Path

import pytest
import torch

from specla.bench import tile_trials, tiles
from specla.bench.tile_trials import KERNELS, Trial, tree_tiles, trials, walk_tiles
from specla.bench.tiles import Timing, head_shape, main, table, time_us
from specla.ops.types import HeadShape
from tests.bench.fake_graphs import FakeGraphs


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["verify"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "error: no CUDA device: tiles are tuned on the GPU that they are for; --dry-run counts them anywhere\n"
    )


def test_a_dry_run_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run", "--kernels", "step,parent_pointer", "--nodes", "8,16", "--batches", "1,8"]) == 0
    # The step has one node; what is in use is among the eleven that are swept.
    assert len(walk_tiles()) == 11
    assert capsys.readouterr().out == "33 configurations, 66 timings\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model=gdn-2b"], "--model=gdn-2b: give one of gdn-1.3b, "),
        (["--nodes=8,129"], "argument --nodes: 8,129: give whole numbers from 1 to 128"),
        (["--batches=0"], "argument --batches: 0: give whole numbers from 1 to 65536"),
        (["--kernels=tree,mask"], "argument --kernels: tree,mask: give some of tree, chain, step, "),
        (["--jobs=0"], "argument --jobs: 0: give whole numbers from 1 to 1024"),
        (["--json=/nowhere/at/all.json"], "--json=/nowhere/at/all.json: no such folder, /nowhere/at"),
        (["commit"], "argument operation: invalid choice: 'commit'"),
    ],
)
def test_bad_options(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main([*words, "--dry-run"])
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code == 2 and message in capsys.readouterr().err.splitlines()[-1]


def test_what_is_swept_holds_what_is_in_use() -> None:
    shape = head_shape("gdn-1.3b")
    assert shape == HeadShape(8, 8, 256, 256)
    found = trials(KERNELS, (8, 16, 32, 64), (1, 8, 32, 128), shape)
    assert len(set(found)) == len(found)
    for kernel in KERNELS:
        for nodes in [1] if kernel == "step" else [8, 16, 32, 64]:
            for batch in (1, 8, 32, 128):
                assert Trial(kernel, nodes, tile_trials.in_use(kernel, nodes, batch, shape)) in found


@pytest.mark.parametrize("nodes", [8, 16, 17, 64])
def test_tree_tiles_are_what_a_kernel_can_be_cut_into(nodes: int) -> None:
    padded = max(16, 1 << (nodes - 1).bit_length())
    swept = tree_tiles(nodes)
    assert len(swept) > 50 and len(set(swept)) >= len(swept) - 1
    assert all(columns is not None and 16 <= columns <= padded for *_, columns in swept)


def test_times_are_of_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph holds every layer once, a replay goes before each that is timed, and the median counts."""
    graphs, ran = FakeGraphs(torch.device("cuda")), list[int]()
    seconds = iter([5e-3, 1e-3, 2e-3, 9e-3, 3e-3])
    monkeypatch.setattr(graphs, "elapsed", lambda work, times: next(seconds))
    assert time_us(graphs, [lambda: ran.append(0), lambda: ran.append(1)]) == pytest.approx(1500)
    assert ran == [0, 1] * (1 + tiles.REPLAYS) and graphs.replayed == tiles.REPLAYS
    assert graphs.asked == ["aside 1", "capture", "release"]


def test_the_table_shows_the_best_and_what_is_in_use() -> None:
    times = [7.0, 3.0, 5.0, 4.0, 6.0, 9.0, 8.0]
    measured = [Timing("chain", 8, 32, (place, 1), time, time == 9.0) for place, time in enumerate(times)]
    lines = list(table([*measured, Timing("tree", 8, 32, (16, 64, 4, 5, None, 4, 16), 2.0, True)]))
    assert lines == [
        "chain, 8 nodes, batch 32 (us):  3.00 1,1  4.00 3,1  5.00 2,1  6.00 4,1  7.00 0,1  9.00 5,1 (in use)",
        "tree, 8 nodes, batch 32 (us):  2.00 16,64,4,5,-,4,16 (in use)",
    ]


def test_the_whole_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong configuration is named and left out, one that cannot be timed is named, the others are in the file."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(tiles, "LAYERS", 2)
    wrong, large = Trial("chain", 8, (4, 1)), Trial("chain", 8, (16, 2))
    monkeypatch.setattr(tiles, "faults", lambda found, shape, jobs: {wrong: "relative error 3.0e-01"})

    class Graphs(FakeGraphs):
        def __init__(self, device: torch.device) -> None:
            super().__init__(torch.device("cpu"))

    monkeypatch.setattr("specla.engine.graph.CudaGraphs", Graphs)

    def run(trial: Trial, *_: object) -> None:
        if trial == large:
            raise RuntimeError("CUDA out of memory\nand more")

    monkeypatch.setattr(tiles, "run", run)
    file = tmp_path / "tiles.json"
    words = ["--model=gdn-tiny", "--kernels=chain", "--nodes=8", "--batches=1,2", f"--json={file}"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "left out: chain of 8 nodes, tiles 4,1: relative error 3.0e-01",
        "not timed: chain of 8 nodes, tiles 16,2 at batch 1: out of memory: use a smaller batch, tree or model",
        "not timed: chain of 8 nodes, tiles 16,2 at batch 2: out of memory: use a smaller batch, tree or model",
    ]
    assert [line.partition(" (us)")[0] for line in lines[3:]] == ["chain, 8 nodes, batch 1", "chain, 8 nodes, batch 2"]
    document = json.loads(file.read_text())
    assert document["shape"] == {"heads": 2, "value_heads": 4, "key_size": 16, "value_size": 16}
    assert document["left_out"] == [{**wrong._asdict(), "tiles": [4, 1], "reason": "relative error 3.0e-01"}]
    assert len(document["timings"]) == 2 * (len(walk_tiles()) - 2)
    assert all(timing["time_us"] > 0 for timing in document["timings"])
