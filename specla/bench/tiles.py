"""`python -m specla.bench.tiles`: which tiles are fast, kernel by kernel, on the GPU of this machine.

For those who change a kernel: what it finds goes into the `tiles_for` of `specla.ops.kernels.tree` and `walk` by hand.
Every configuration is compiled and held against the equations first, in processes of their own; a wrong one is named
and left out. The others are timed as CUDA graphs over the states of 24 layers in turn.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from specla.bench.tile_trials import KERNELS, TileSizes, Trial, faults, in_use, layer, run, topology, trials
from specla.errors import SpeclaError, told
from specla.ops.shape import HeadShape
from specla.topology import MAX_NODES

if TYPE_CHECKING:
    from specla.engine.graph import CudaGraphs

LAYERS = 24
REPLAYS = 5
SHOWN = 5


@dataclass(frozen=True)
class Timing:
    """What one configuration took for one layer."""

    kernel: str
    nodes: int
    batch: int
    tiles: TileSizes
    time_us: float
    in_use: bool
    """Whether `tiles_for` gives these."""


def head_shape(model: str) -> HeadShape:
    """The heads of a model of conf/model/."""
    import yaml

    from specla.bench.confdir import conf_dir
    from specla.models.config import GatedDeltaNetConfig

    folder = conf_dir() / "model"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if model not in known:
        raise SpeclaError(f"--model={model}: give one of {', '.join(known)}")
    raw = yaml.safe_load((folder / f"{model}.yaml").read_text(encoding="utf-8"))
    sizes = {key: value for key, value in raw.items() if key in GatedDeltaNetConfig.__dataclass_fields__}
    return GatedDeltaNetConfig(**sizes).head_shape


def time_us(graphs: "CudaGraphs", works: Sequence[Callable[[], object]]) -> float:
    """Microseconds of one of the works, which run in turn: the median of a few replays of them all in one graph."""

    def all_of_them() -> None:
        for work in works:
            work()

    graphs.aside(all_of_them, 1)
    replay = graphs.capture(all_of_them)
    samples = []
    for _ in range(REPLAYS):
        # One before hides the launch.
        replay()
        samples.append(graphs.elapsed(replay, 1))
    graphs.release()
    return median(samples) / len(works) * 1e6


def timings(
    found: Sequence[Trial], batches: Sequence[int], shape: HeadShape, graphs: "CudaGraphs"
) -> Iterator[Timing | str]:
    """Every trial at every batch; a line in place of one that cannot be timed, for want of memory most likely."""
    for batch in batches:
        for nodes in sorted({trial.nodes for trial in found}):
            yield from _timings_of([trial for trial in found if trial.nodes == nodes], batch, shape, graphs)


def _timings_of(found: Sequence[Trial], batch: int, shape: HeadShape, graphs: "CudaGraphs") -> Iterator[Timing | str]:
    """Of trials on as many nodes, which share their layers."""
    from specla.ops.types import TreeTensors

    nodes = found[0].nodes
    try:
        layers = [layer(nodes, batch, shape, graphs.device, seed) for seed in range(LAYERS)]
    except RuntimeError as error:
        yield f"{nodes} nodes at batch {batch}: {told(error)}"
        return
    for trial in found:
        tree = TreeTensors.from_tree(topology(trial), graphs.device)
        works = [partial(run, trial, *each, tree) for each in layers]
        used = in_use(trial.kernel, nodes, batch, shape) == trial.tiles
        try:
            yield Timing(trial.kernel, nodes, batch, trial.tiles, time_us(graphs, works), used)
        except RuntimeError as error:
            graphs.release()
            yield f"{trial} at batch {batch}: {told(error)}"


def table(measured: Sequence[Timing]) -> Iterator[str]:
    """The best of every case, fastest first, and after them what is in use, where it is slower."""
    cases = {(timing.kernel, timing.nodes, timing.batch): None for timing in measured}
    for case in cases:
        ranked = sorted((t for t in measured if (t.kernel, t.nodes, t.batch) == case), key=lambda t: t.time_us)
        shown = ranked[:SHOWN] + [timing for timing in ranked[SHOWN:] if timing.in_use]
        kernel, nodes, batch = case
        told_tiles = "  ".join(
            f"{t.time_us:.2f} {Trial(kernel, nodes, t.tiles).told}{' (in use)' if t.in_use else ''}" for t in shown
        )
        yield f"{kernel}, {nodes} nodes, batch {batch} (us):  {told_tiles}"


def tune(options: argparse.Namespace) -> None:
    """The whole sweep, to stdout. Raises SpeclaError without a GPU."""
    import torch

    shape = head_shape(options.model)
    if options.json is not None and not options.json.absolute().parent.is_dir():
        raise SpeclaError(f"--json={options.json}: no such folder, {options.json.absolute().parent}")
    found = trials(options.kernels, options.nodes, options.batches, shape)
    if options.dry_run:
        _say(f"{len(found)} configurations, {len(found) * len(options.batches)} timings")
        return
    if not torch.cuda.is_available():
        raise SpeclaError(
            "no CUDA device: tiles are tuned on the GPU that they are for; --dry-run counts them anywhere"
        )
    from specla.engine.graph import CudaGraphs

    wrong = faults(found, shape, options.jobs)
    for trial, why in wrong.items():
        _say(f"left out: {trial}: {why}")
    measured: list[Timing] = []
    able = [trial for trial in found if trial not in wrong]
    with torch.inference_mode():
        for timing in timings(able, options.batches, shape, CudaGraphs(torch.device("cuda", 0))):
            if isinstance(timing, Timing):
                measured.append(timing)
            else:
                _say(f"not timed: {timing}")
    for line in table(measured):
        _say(line)
    if options.json is not None:
        left_out = [{**trial._asdict(), "reason": why} for trial, why in wrong.items()]
        document = {"device": torch.cuda.get_device_name(0), "model": options.model, "shape": shape._asdict()}
        document |= {"timings": [asdict(timing) for timing in measured], "left_out": left_out}
        options.json.write_text(json.dumps(document) + "\n", encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 2 for bad input and without a GPU."""
    try:
        tune(parsed(words))
    except SpeclaError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """The options. Bad ones exit with code 2."""
    parser = argparse.ArgumentParser(prog="python -m specla.bench.tiles", description=__doc__)
    parser.add_argument("operation", nargs="?", choices=["verify"], default="verify", help="whose kernels")
    parser.add_argument("--model", default="gdn-1.3b", help="a model of conf/model/, for its heads")
    parser.add_argument("--kernels", type=_kernels, default=KERNELS, help=f"some of {','.join(KERNELS)}")
    parser.add_argument("--batches", type=partial(_counts, 1 << 16), default=(1, 8, 32, 128), help="1,8,...")
    parser.add_argument("--nodes", type=partial(_counts, MAX_NODES), default=(8, 16, 32, 64), help="8,16,...")
    parser.add_argument("--jobs", type=_jobs, default=max(1, (os.cpu_count() or 1) - 2), help="processes that compile")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every time, and what was left out")
    parser.add_argument("--dry-run", action="store_true", help="say how many configurations there are")
    return parser.parse_args(words)


def _counts(largest: int, text: str) -> tuple[int, ...]:
    counts = tuple(int(part) for part in text.split(","))
    if not all(1 <= count <= largest for count in counts):
        raise argparse.ArgumentTypeError(f"{text}: give whole numbers from 1 to {largest}")
    return counts


def _jobs(text: str) -> int:
    return _counts(1024, text)[0]


def _kernels(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(KERNELS):
        raise argparse.ArgumentTypeError(f"{text}: give some of {', '.join(KERNELS)}")
    return names


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
