"""The walks: one chain, the heavy-light chains of a tree in waves, or a decode step for every node."""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.kernels.checks import check_verify
from specla.ops.kernels.held import Held
from specla.ops.kernels.launch import factor_memory, overlapped, strided
from specla.ops.kernels.walk_step import walk_kernel
from specla.ops.kernels.waves import Wave, hybrid_waves
from specla.ops.types import Bank, Factors, Fold, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.topology import DraftTree

HURRIED_STATES = 64
"""Up to here the kernel behind a walk begins before the walk has ended. On an H200 a node after another, and chains,
gain 6 to 14 % by it; the waves of a hybrid and steps of one node lose 6 to 18 %, and up to 25 % with more states, from
which the kernel behind takes memory. In a layer, where that one has weights to send for, it always does."""


class Tiles(NamedTuple):
    """How a walk is laid out."""

    values: int
    """BV, rows of the state a program holds, with all of their columns."""
    warps: int


class Stored(NamedTuple):
    """Where states are kept, and the strides of a slot and of a row."""

    states: Tensor
    slot: int
    row: int


class Pending(NamedTuple):
    """What the committed state does not hold yet, and which rows take it in now."""

    known: Known | None
    fold: Fold


NOTHING = Pending(None, None)


class Walker:
    """One verification by walks: the outputs that its waves fill.

    Args:
        state: [B, HV, V, K] float32, contiguous. Rows that fold take their known factors in, in place, where a
            chain starts from it (paper, section 5.2); nothing else is written.
        inputs: of T nodes; q, k and v in one of float32, float16, bfloat16.
        tree: of them.
        pending: committed factors that the state does not hold, and which rows fold them.
        stored: where boundary states go; None where none are kept.
        tiles: None for what was measured to be fast.
        bank: where factors go; None for new memory. With a bank state and known factors are read before the kernel in
            front has ended: whoever has one sees to it that nothing there writes them.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """

    def __init__(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        pending: Pending = NOTHING,
        stored: Stored | None = None,
        tiles: Tiles | None = None,
        bank: Bank | None = None,
    ) -> None:
        check_verify(state, inputs, tree, *pending)
        self.state, self.inputs = state, inputs
        self._stored = stored or Stored(state, 0, 0)
        self._qkv = [strided(x) for x in (inputs.q, inputs.k, inputs.v)]
        self._gates = inputs.g.contiguous(), inputs.beta.contiguous()
        self._out = inputs.v.new_empty(inputs.v.shape, dtype=torch.float32)
        self._u, self._decay = factor_memory(inputs, bank)
        self._keeps, self._tiles = stored is not None, tiles
        self._held = Held.of(*pending, inputs.g)
        self._early = bank is not None and not self._held.copied(pending.known)

    def run(self, wave: Wave) -> None:
        """Launch one wave."""
        chains, longest = wave.nodes.shape
        self._launch(wave, chains, longest, 0, 0)

    def run_nodes(self, first: int, count: int, start: int) -> None:
        """Launch one chain of nodes that follow each other, from the state in slot `start` (-1: the committed one).

        Every state is kept in a slot of its node's number, where anything is kept.
        """
        self._launch(None, 1, count, first, start)

    def _launch(self, wave: Wave | None, chains: int, longest: int, first: int, start: int) -> None:
        batch, value_heads, value_size, key_size = self.state.shape
        values, warps = self._tiles or tiles_for(batch * value_heads * chains, longest, self._keeps)
        q, k, v = self._qkv
        early = self._early and wave is None and start < 0
        hurries = wave is None and (start >= 0 or longest > 1) and batch * value_heads <= HURRIED_STATES
        # What the kernel has no use for without tables may be any tensor.
        tables = [self._decay] * 5
        if wave is not None:
            tables = [wave.nodes, wave.keeps, wave.lengths, wave.starts, wave.parents]
        walk_kernel[(triton.cdiv(value_size, values), chains, batch * value_heads)](
            self.state, self._stored.states, q.data, k.data, v.data, *self._gates,
            *tables, self._out, self._u, self._decay, *self._held.tensors,
            first, start, self.inputs.g.shape[1], longest, self._held.places,
            q.row, q.node, k.row, k.node, v.row, v.node, self._stored.slot, self._stored.row,
            *self._held.strides,
            H=self.inputs.k.shape[2], HV=value_heads, K=key_size, V=value_size,
            BK=triton.next_power_of_2(key_size), BV=values,
            BR=max(16, triton.next_power_of_2(self._held.places)), TABLES=wave is not None, KEEPS=self._keeps,
            EARLY=early, HURRIES=early or hurries,
            num_warps=warps, **self._held.flags, **overlapped(self.state),
        )  # fmt: skip

    def finish(self, states: Tensor | None = None) -> VerifyOutput:
        """What the waves left."""
        return VerifyOutput(self._out, Factors(self.inputs.k, self._u, self._decay), states)


def _shared(tree: TreeTensors) -> DraftTree:
    if not tree.shared:
        raise SpeclaError("a tree for every row: this kernel takes one that all rows share, and the host knows")
    return tree.tree


def tiles_for(states: int, nodes: int, keeps: bool) -> Tiles:
    """What `specla.bench.tiles` found to be fast on an H200 for so many states in a launch (K = V = 256)."""
    if nodes == 1 and keeps:
        return Tiles(2 if states <= 32 else 8, 1)
    return Tiles(8 if states >= 1024 and nodes > 1 else 4, 1)


def verify_chain(
    state: Tensor,
    inputs: NodeInputs,
    tree: TreeTensors,
    pending: Pending = NOTHING,
    keeps: bool = False,
    tiles: Tiles | None = None,
    bank: Bank | None = None,
) -> VerifyOutput:
    """One walk down a chain; with `keeps` the state after every node is stored as well, [B, T, HV, V, K]."""
    if any(not shape.is_chain for shape in tree.trees):
        raise SpeclaError("a tree that branches: this kernel walks chains")
    states, stored = None, None
    if keeps:
        states = state.new_empty(state.shape[0], tree.nodes, *state.shape[1:])
        stored = Stored(states, states.stride(1), states.stride(0))
    walker = Walker(state, inputs, tree, pending, stored, tiles, bank)
    walker.run_nodes(0, tree.nodes, -1)
    return walker.finish(states)


def verify_hybrid(
    state: Tensor,
    inputs: NodeInputs,
    tree: TreeTensors,
    pending: Pending = NOTHING,
    tiles: Tiles | None = None,
    bank: Bank | None = None,
) -> VerifyOutput:
    """Heavy-light chains, a launch a wave; boundary states alone are stored."""
    waves, slots = hybrid_waves(_shared(tree), state.device)
    stored = None
    if slots:
        states = state.new_empty(slots, *state.shape)
        stored = Stored(states, states.stride(0), states.stride(1))
    walker = Walker(state, inputs, tree, pending, stored, tiles, bank)
    for wave in waves:
        walker.run(wave)
    return walker.finish()


def verify_sequentially(
    state: Tensor, inputs: NodeInputs, tree: TreeTensors, tiles: Tiles | None = None
) -> VerifyOutput:
    """The decode step once per node, a launch each, its parent's state from memory and its own to memory."""
    states = state.new_empty(state.shape[0], tree.nodes, *state.shape[1:])
    walker = Walker(state, inputs, tree, NOTHING, Stored(states, states.stride(1), states.stride(0)), tiles)
    for node, parent in enumerate(_shared(tree).parents):
        walker.run_nodes(node, 1, parent)
    return walker.finish(states)
