"""Chain, tree or hybrid, by what was measured on this device."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from specla.ops.types import Bank, Fold, HeadShape, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.ar import Autoregressive
from specla.ops.verify.base import VerifyStrategy
from specla.ops.verify.chain import FACTORS, Chain
from specla.ops.verify.hybrid import Hybrid
from specla.ops.verify.tree import TreeMask
from specla.topology import DraftTree, chain, kary

CHAIN_NODES = 2
CHAIN_BATCH = 8
"""Where nothing was measured, chains of up to two nodes walk from eight rows on, and everything else takes the mask."""
KEPT_CHOICES = 256
CANDIDATES = (Chain.name, TreeMask.name, Hybrid.name)
"""What it chooses from."""


class Case(NamedTuple):
    """What one measurement stands for."""

    is_chain: bool
    nodes: int
    batch: int


@dataclass(frozen=True)
class DispatchTable:
    """Times of the candidates on one device, for one shape."""

    device: str
    shape: HeadShape
    times_us: dict[Case, dict[str, float]]

    def nearest(self, tree: DraftTree, batch: int) -> Case | None:
        """The measured case of the tree's kind that is nearest in nodes and batch, by ratio; None without any."""

        def distance(case: Case) -> float:
            return abs(math.log(case.nodes / tree.nodes)) + abs(math.log(case.batch / batch))

        return min((case for case in self.times_us if case.is_chain == tree.is_chain), key=distance, default=None)


class Auto(VerifyStrategy):
    """Delegates. Give it the table of `measure_dispatch`, or it goes by a stated default."""

    name = "auto"
    per_row = True

    def __init__(self, needs: frozenset[str] | None = None, table: DispatchTable | None = None) -> None:
        super().__init__(needs)
        self._table = table
        self._chosen: dict[tuple[DraftTree, int, HeadShape], tuple[VerifyStrategy, str]] = {}
        self._root = Autoregressive()
        self._candidates: dict[str, VerifyStrategy] = {s.name: s(needs) for s in (Chain, TreeMask, Hybrid)}

    @property
    def table(self) -> DispatchTable | None:
        """What it chooses by."""
        return self._table

    @table.setter
    def table(self, table: DispatchTable | None) -> None:
        self._table = table
        self._chosen.clear()

    def choose(self, tree: DraftTree, batch: int, shape: HeadShape) -> tuple[VerifyStrategy, str]:
        """The strategy for this tree, batch and shape, and why it."""
        case = (tree, batch, shape)
        if case not in self._chosen:
            # A confidence tree may differ in every step: what was chosen must not pile up.
            if len(self._chosen) >= KEPT_CHOICES:
                self._chosen.clear()
            self._chosen[case] = self._choose(tree, batch, shape)
        return self._chosen[case]

    def _choose(self, tree: DraftTree, batch: int, shape: HeadShape) -> tuple[VerifyStrategy, str]:
        if tree.nodes == 1:
            return self._root, "auto: ar, because the tree is its root"
        table = self._table
        if table is None:
            return self._by_default(tree, batch, "nothing was measured")
        if table.shape != shape:
            return self._by_default(tree, batch, f"{table.shape} was measured, not {shape}")
        case = table.nearest(tree, batch)
        if case is None:
            return self._by_default(tree, batch, "no such topology was measured")
        times = table.times_us[case]
        name = min(times, key=times.__getitem__)
        others = ", ".join(f"{other} {_micro(us)}" for other, us in times.items() if other != name)
        kind = "a chain" if case.is_chain else "a tree"
        took = f"{_micro(times[name])} us" + (f" ({others})" if others else "")
        why = f"auto: {name}, because it took {took} on {kind} of {case.nodes} nodes"
        return self._candidates[name], f"{why}, batch {case.batch}, on {table.device}"

    def _by_default(self, tree: DraftTree, batch: int, lack: str) -> tuple[VerifyStrategy, str]:
        walks = tree.is_chain and tree.nodes <= CHAIN_NODES and batch >= CHAIN_BATCH
        name = "chain" if walks else "tree"
        rule = f"chains of up to {CHAIN_NODES} nodes walk from {CHAIN_BATCH} rows on, all else takes the mask"
        return self._candidates[name], f"auto: {name}, because {lack}; by default {rule}"

    def mixes(self, tree: TreeTensors, batch: int, shape: HeadShape) -> bool:
        """Where factors are all that is needed, and what it chooses does."""
        alone = self.needs == FACTORS and tree.shared
        return alone and self.choose(tree.tree, batch, shape)[0].mixes(tree, batch, shape)

    def verify(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        known: Known | None = None,
        fold: Fold = None,
        bank: Bank | None = None,
    ) -> VerifyOutput:
        if tree.shared:
            shape = HeadShape(inputs.k.shape[2], inputs.v.shape[2], inputs.k.shape[3], inputs.v.shape[3])
            strategy, _ = self.choose(tree.tree, state.shape[0], shape)
        else:
            strategy = self._candidates["tree"]
        strategy.reflects = self.reflects
        return strategy.verify(state, inputs, tree, known, fold, bank)


def _micro(time_us: float) -> str:
    return f"{time_us:.{1 if time_us >= 10 else 2}f}"


Run = Callable[[], object]
Stopwatch = Callable[[Run], Callable[[], float]]
"""From work to what runs it once and returns the seconds that it took."""


@dataclass(frozen=True)
class Timing:
    """How candidates are timed."""

    stopwatch: Stopwatch
    cache_bytes: int = 0
    """Of the cache that a state must not be found in; 0 times one state again and again."""

    def layers(self, state_bytes: int) -> int:
        """How many states are verified in turn."""
        return max(1, -(-2 * self.cache_bytes // state_bytes))


def measure_dispatch(
    shape: HeadShape,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    nodes: Sequence[int] = (2, 4, 8, 16, 32),
    batches: Sequence[int] = (1,),
    repeats: int = 15,
    timing: Timing | None = None,
) -> DispatchTable:
    """Time chain, tree and hybrid on chains and binary trees, on this device.

    Args:
        shape: the heads of the model.
        device: where.
        dtype: of q, k and v.
        nodes: T of the trees, from 2 up.
        batches: B.
        repeats: of which the median counts, interleaved over the candidates.
        timing: None for the time from call to return.
    """
    candidates: tuple[VerifyStrategy, ...] = (Chain(), TreeMask(), Hybrid())
    timing = timing or Timing(_from_call_to_return)
    times: dict[Case, dict[str, float]] = {}
    for batch in batches:
        layers = timing.layers(4 * batch * shape.value_heads * shape.key_size * shape.value_size)
        for count in nodes:
            for tree in (chain(count - 1), kary(2, count)):
                work = _works(tree, batch, shape, device, dtype, layers)
                able = [strategy for strategy in candidates if strategy.supports(tree) is None]
                watches = {strategy.name: timing.stopwatch(work(strategy)) for strategy in able}
                taken = _interleaved(watches, repeats)
                times[Case(tree.is_chain, tree.nodes, batch)] = {
                    name: seconds / layers * 1e6 for name, seconds in taken.items()
                }
    return DispatchTable(str(device), shape, times)


def _works(
    tree: DraftTree, batch: int, shape: HeadShape, device: torch.device | str, dtype: torch.dtype, layers: int
) -> Callable[[VerifyStrategy], Run]:
    """From a strategy to its work: one verification in each of some layers."""
    generator = torch.Generator().manual_seed(0)

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator).to(device)

    heads, value_heads, key_size, value_size = shape
    q, k = (torch.nn.functional.normalize(draw(batch, tree.nodes, heads, key_size), dim=-1).to(dtype) for _ in "qk")
    v = draw(batch, tree.nodes, value_heads, value_size).to(dtype)
    g, beta = -draw(batch, tree.nodes, value_heads).abs(), draw(batch, tree.nodes, value_heads).sigmoid()
    inputs = NodeInputs(q, k, v, g, beta)
    states = [state.clone() for state in draw(batch, value_heads, value_size, key_size).expand(layers, -1, -1, -1, -1)]
    tensors = TreeTensors.from_tree(tree, device)

    def work(strategy: VerifyStrategy) -> Run:
        def run() -> None:
            for state in states:
                strategy.verify(state, inputs, tensors)

        return run

    return work


def _from_call_to_return(work: Run) -> Callable[[], float]:
    def seconds() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return seconds


@torch.inference_mode()
def _interleaved(watches: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    for _ in range(3):
        for watch in watches.values():
            watch()
    samples = [{name: watch() for name, watch in watches.items()} for _ in range(repeats)]
    return {name: median(sample[name] for sample in samples) for name in watches}
