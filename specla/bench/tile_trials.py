"""The configurations that `specla.bench.tiles` times, and whether a device runs them and runs them right."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from specla.errors import told
from specla.ops.shape import HeadShape
from specla.topology import DraftTree, chain, kary

if TYPE_CHECKING:
    import torch

    from specla.ops.types import NodeInputs, TreeTensors, VerifyOutput

KERNELS = ("tree", "chain", "step", "hybrid", "parent_pointer")
"""What is swept. `step` is a decode step that keeps its state, which `sequential_replay` runs once per node."""
LARGEST_ERROR = 1e-5
"""Relative RMS that a verification on tensor cores may have."""

TileSizes = tuple[int | None, ...]
"""The fields of `Tiles` of `specla.ops.kernels.tree`, or of `walk`."""


class Trial(NamedTuple):
    """One configuration of one kernel."""

    kernel: str
    nodes: int
    tiles: TileSizes

    def __str__(self) -> str:
        return f"{self.kernel} of {self.nodes} nodes, tiles {self.told}"

    @property
    def told(self) -> str:
        """The tiles in few letters."""
        return ",".join("-" if part is None else str(part) for part in self.tiles)


def tree_tiles(nodes: int) -> list[TileSizes]:
    """Configurations of the tree's two kernels, swept one after the other: neither knows the other's tiles."""
    padded = max(16, 1 << (nodes - 1).bit_length())
    columns = [count for count in (16, 32, 64) if count <= padded]
    read = [
        (values, keys, warps, stages, registers)
        for values in (16, 32, 64)
        for keys in (32, 64, 128)
        for warps in (2, 4)
        for stages in (2, 3, 5)
        # A limit helps where a program holds much.
        for registers in ((None, 128, 168) if values == 64 else (None,))
    ]
    solve = [(warps, count) for warps in ((1, 2, 4) if padded == 16 else (4,)) for count in columns]
    return [*((*tiles, 4, 16) for tiles in read), *((16, 64, 4, 5, None, *tiles) for tiles in solve)]


def walk_tiles() -> list[TileSizes]:
    """Configurations of a walk: a warp takes no less than a row."""
    return [(values, warps) for values in (2, 4, 8, 16) for warps in (1, 2, 4) if warps <= values]


def in_use(kernel: str, nodes: int, batch: int, shape: HeadShape) -> TileSizes:
    """What the kernel takes by itself."""
    from specla.ops.kernels import parent_pointer, tree, walk

    states = batch * shape.value_heads
    if kernel == "tree":
        return tuple(tree.tiles_for(states, min(nodes, tree.BLOCK_NODES)))
    if kernel == "parent_pointer":
        return tuple(parent_pointer.TILES)
    # Waves of a hybrid have as many states as chains: those of the last level are half the nodes.
    chains = nodes // 2 if kernel == "hybrid" else 1
    return tuple(walk.tiles_for(states * chains, nodes, kernel != "chain"))


def trials(kernels: Sequence[str], nodes: Sequence[int], batches: Sequence[int], shape: HeadShape) -> list[Trial]:
    """Every configuration once, those in use first."""
    found: dict[Trial, None] = {}
    for kernel in kernels:
        for count in [1] if kernel == "step" else nodes:
            used = [in_use(kernel, count, batch, shape) for batch in batches]
            tiles = tree_tiles(count) if kernel == "tree" else walk_tiles()
            found.update(dict.fromkeys(Trial(kernel, count, each) for each in (*used, *tiles)))
    return list(found)


def topology(trial: Trial) -> DraftTree:
    """A chain for what walks chains, a binary tree for the others."""
    walks = trial.nodes == 1 or trial.kernel in ("chain", "step")
    return chain(trial.nodes - 1) if walks else kary(2, trial.nodes)


def layer(
    nodes: int, batch: int, shape: HeadShape, device: "torch.device", seed: int
) -> "tuple[torch.Tensor, NodeInputs]":
    """State and inputs of one layer, in bfloat16 on a GPU."""
    import torch

    from specla.ops.types import NodeInputs

    generator = torch.Generator(device).manual_seed(seed)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    draw = partial(torch.randn, generator=generator, device=device)
    keys, values = (batch, nodes, shape.heads, shape.key_size), (batch, nodes, shape.value_heads)
    q, k = (torch.nn.functional.normalize(draw(keys), dim=-1) for _ in "qk")
    v, g, beta = draw((*values, shape.value_size)), -0.2 * draw(values).abs(), draw(values).sigmoid()
    state = draw((batch, shape.value_heads, shape.value_size, shape.key_size))
    return state, NodeInputs((q * shape.key_size**-0.5).to(dtype), k.to(dtype), v.to(dtype), g, beta)


def run(trial: Trial, state: "torch.Tensor", inputs: "NodeInputs", tree: "TreeTensors") -> "VerifyOutput":
    """One verification with the trial's tiles."""
    from specla.ops.kernels import parent_pointer, walk
    from specla.ops.kernels import tree as mask

    sizes: Any = trial.tiles
    if trial.kernel == "tree":
        return mask.verify_tree(state, inputs, tree, tiles=mask.Tiles(*sizes))
    tiles = walk.Tiles(*sizes)
    if trial.kernel == "hybrid":
        return walk.verify_hybrid(state, inputs, tree, tiles=tiles)
    if trial.kernel == "parent_pointer":
        return parent_pointer.verify_by_parents(state, inputs, tree, tiles)
    return walk.verify_chain(state, inputs, tree, keeps=trial.kernel == "step", tiles=tiles)


def fault(trial: Trial, shape: HeadShape, device_name: str) -> str | None:
    """Compile and run a trial at batch 1: what is wrong with it, or None. Runs in a process of its own."""
    import torch

    from specla.ops.reference import reference_verify
    from specla.ops.types import TreeTensors

    device = torch.device(device_name)
    state, inputs = layer(trial.nodes, 1, shape, device, 0)
    tree = TreeTensors.from_tree(topology(trial), device)
    try:
        found = run(trial, state, inputs, tree).out.cpu().double()
    except Exception as error:  # a compiler's, a driver's: whatever it is, these tiles do not run
        return told(error)
    truth = reference_verify(state.double(), inputs, tree).out.cpu()
    wrong = float((found - truth).square().mean().sqrt() / truth.square().mean().sqrt())
    return None if wrong <= LARGEST_ERROR else f"relative error {wrong:.1e}, where {LARGEST_ERROR:.0e} is allowed"


def faults(found: Sequence[Trial], shape: HeadShape, jobs: int) -> dict[Trial, str]:
    """What is wrong with the trials that are wrong.

    An error may leave a device unusable to its process and whatever else runs in it, or end the process: those that
    fail get another chance, in a process each.
    """
    suspects = _checked(found, shape, jobs)
    return {trial: why for suspect in suspects for trial, why in _checked([suspect], shape, 1).items()}


def _checked(found: Sequence[Trial], shape: HeadShape, jobs: int) -> dict[Trial, str]:
    wrong: dict[Trial, str] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        asked = {trial: pool.submit(fault, trial, shape, "cuda") for trial in found}
        for trial, answer in asked.items():
            try:
                why = answer.result()
            except BrokenProcessPool:
                why = "its process died"
            if why is not None:
                wrong[trial] = why
    return wrong
