"""State-resident walks: a program holds some rows of one state on chip and takes a chain of nodes through them.

One kernel serves all that walk (paper, sections 4.1 and 4.3): `chain` is one chain from the committed state; `hybrid`
runs the chains of a wave in one launch, from boundary states that earlier waves stored; a decode step is a chain of one
node. The inputs of the next node are on their way while a node is computed. Outputs come out of the parent's state,

    o = exp(g) S_p q + (k . q) u,

so that one pass over the state serves k and q.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from specla.ops.kernels.launch import check_verify, overlapped, strided
from specla.ops.kernels.waves import Wave, hybrid_waves
from specla.ops.types import Factors, NodeInputs, TreeTensors, VerifyOutput


class Tiles(NamedTuple):
    """How a walk is laid out."""

    values: int
    """BV, rows of the state a program holds, with all of their columns."""
    warps: int


@triton.jit
def load_node(p_q, p_k, p_v, p_g, p_beta, o_k, o_v, K: tl.constexpr, V: tl.constexpr):
    """(q, k, v, g, b) of one node in float32, zero beyond K and V."""
    b_q = tl.load(p_q + o_k, mask=o_k < K, other=0.0).to(tl.float32)
    b_k = tl.load(p_k + o_k, mask=o_k < K, other=0.0).to(tl.float32)
    b_v = tl.load(p_v + o_v, mask=o_v < V, other=0.0).to(tl.float32)
    return b_q, b_k, b_v, tl.load(p_g), tl.load(p_beta)


@triton.jit
def delta_step(b_s, b_q, b_k, b_v, g, beta):
    """(state after the node [BV, BK], its output and its correction [BV]) from the state before it."""
    keep = tl.exp(g)
    read_k = tl.sum(b_s * b_k[None, :], axis=1)
    read_q = tl.sum(b_s * b_q[None, :], axis=1)
    b_u = beta * (b_v - keep * read_k)
    b_o = keep * read_q + tl.sum(b_k * b_q, axis=0) * b_u
    return keep * b_s + b_u[:, None] * b_k[None, :], b_o, b_u


@triton.jit(do_not_specialize=["first", "start"])
def _walk_kernel(
    p_state,
    p_stored,
    p_q,
    p_k,
    p_v,
    p_g,
    p_beta,
    p_nodes,
    p_keeps,
    p_lengths,
    p_starts,
    p_parents,
    p_out,
    p_u,
    p_decay,
    first,
    start,
    q_row,
    q_node,
    k_row,
    k_node,
    v_row,
    v_node,
    stored_slot,
    stored_row,
    T: tl.constexpr,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    L: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    TABLES: tl.constexpr,
    KEEPS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One chain of a wave.

    With TABLES, [chains, L], of its nodes and of the slots their states are kept in (-1: nowhere); without, L nodes
    from `first` on, each with a slot of its own number, from the state in slot `start`.
    """
    if OVERLAP:
        gdc_wait()
    i_v, i_c, i_bh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i_b, i_h = (i_bh // HV).to(tl.int64), i_bh % HV
    o_k, o_v = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    inside = (o_v[:, None] < V) & (o_k[None, :] < K)
    o_s = o_v[:, None] * K + o_k[None, :]
    p_q += i_b * q_row + (i_h // (HV // H)) * K
    p_k += i_b * k_row + (i_h // (HV // H)) * K
    p_v += i_b * v_row + i_h * V
    o_gate = i_b * T * HV + i_h
    p_nodes += i_c * L
    p_keeps += i_c * L
    p_stored += i_b * stored_row + i_h * (V * K)
    p_start = p_state + i_bh.to(tl.int64) * (V * K)
    if TABLES:
        slot, parent = tl.load(p_starts + i_c), tl.load(p_parents + i_c)
        length, node = tl.load(p_lengths + i_c), tl.load(p_nodes)
    else:
        slot, parent, length, node = start, start, L, first
    if slot >= 0:
        p_start = p_stored + slot.to(tl.int64) * stored_slot
    b_s = tl.load(p_start + o_s, mask=inside, other=0.0)
    o_node = o_gate + node * HV
    b_q, b_k, b_v, g, beta = load_node(
        p_q + node * q_node, p_k + node * k_node, p_v + node * v_node, p_g + o_node, p_beta + o_node, o_k, o_v, K, V
    )
    # Only the programs of the first rows keep account of the decay.
    decay = tl.load(p_decay + o_gate + parent * HV, mask=(i_v == 0) & (parent >= 0), other=0.0)
    for i in range(0, length):
        then = tl.minimum(i + 1, length - 1)
        if TABLES:
            then = tl.load(p_nodes + then)
        else:
            then += first
        o_then = o_gate + then * HV
        n_q, n_k, n_v, n_g, n_beta = load_node(
            p_q + then * q_node, p_k + then * k_node, p_v + then * v_node, p_g + o_then, p_beta + o_then, o_k, o_v, K, V
        )
        b_s, b_o, b_u = delta_step(b_s, b_q, b_k, b_v, g, beta)
        decay += g.to(tl.float64)
        tl.store(p_out + o_node * V + o_v, b_o, mask=o_v < V)
        tl.store(p_u + o_node * V + o_v, b_u, mask=o_v < V)
        if i_v == 0:
            tl.store(p_decay + o_node, decay)
        if KEEPS:
            keep = first + i
            if TABLES:
                keep = tl.load(p_keeps + i)
            if keep >= 0:
                tl.store(p_stored + keep.to(tl.int64) * stored_slot + o_s, b_s, mask=inside)
        o_node = o_then
        b_q, b_k, b_v, g, beta = n_q, n_k, n_v, n_g, n_beta


class Stored(NamedTuple):
    """Where states are kept, and the strides of a slot and of a row."""

    states: Tensor
    slot: int
    row: int


class Walker:
    """One verification by walks: the outputs that its waves fill.

    Args:
        state: [B, HV, V, K] float32, contiguous; it is read alone.
        inputs: of T nodes; q, k and v in one of float32, float16, bfloat16.
        tree: of them.
        stored: where boundary states go; None where none are kept.
        tiles: None for what was measured to be fast.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """

    def __init__(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        stored: Stored | None = None,
        tiles: Tiles | None = None,
    ) -> None:
        check_verify(state, inputs, tree)
        self.state, self.inputs = state, inputs
        self._stored = stored or Stored(state, 0, 0)
        self._qkv = [strided(x) for x in (inputs.q, inputs.k, inputs.v)]
        self._gates = inputs.g.contiguous(), inputs.beta.contiguous()
        self._out, self._u = (inputs.v.new_empty(inputs.v.shape, dtype=torch.float32) for _ in range(2))
        self._decay = inputs.g.new_empty(inputs.g.shape, dtype=torch.float64)
        self._keeps, self._tiles = stored is not None, tiles

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
        # What the kernel has no use for without tables may be any tensor.
        tables = (
            [self._decay] * 5 if wave is None else [wave.nodes, wave.keeps, wave.lengths, wave.starts, wave.parents]
        )
        _walk_kernel[(triton.cdiv(value_size, values), chains, batch * value_heads)](
            self.state, self._stored.states, q.data, k.data, v.data, *self._gates,
            *tables, self._out, self._u, self._decay, first, start,
            q.row, q.node, k.row, k.node, v.row, v.node, self._stored.slot, self._stored.row,
            T=self.inputs.g.shape[1], H=self.inputs.k.shape[2], HV=value_heads, K=key_size, V=value_size, L=longest,
            BK=triton.next_power_of_2(key_size), BV=values, TABLES=wave is not None, KEEPS=self._keeps,
            num_warps=warps, **overlapped(self.state),
        )  # fmt: skip

    def finish(self, states: Tensor | None = None) -> VerifyOutput:
        """What the waves left."""
        return VerifyOutput(self._out, Factors(self.inputs.k, self._u, self._decay), states)


def tiles_for(states: int, nodes: int, keeps: bool) -> Tiles:
    """What `specla.bench.tiles` found to be fast on an H200 for so many states in a launch (K = V = 256)."""
    if nodes == 1 and keeps:
        return Tiles(2 if states <= 32 else 8, 1)
    return Tiles(8 if states >= 1024 and nodes > 1 else 4, 1)


def verify_chain(
    state: Tensor, inputs: NodeInputs, tree: TreeTensors, keeps: bool = False, tiles: Tiles | None = None
) -> VerifyOutput:
    """One walk down a chain; with `keeps` the state after every node is stored as well, [B, T, HV, V, K]."""
    states, stored = None, None
    if keeps:
        states = state.new_empty(state.shape[0], tree.nodes, *state.shape[1:])
        stored = Stored(states, states.stride(1), states.stride(0))
    walker = Walker(state, inputs, tree, stored, tiles)
    walker.run_nodes(0, tree.nodes, -1)
    return walker.finish(states)


def verify_hybrid(state: Tensor, inputs: NodeInputs, tree: TreeTensors, tiles: Tiles | None = None) -> VerifyOutput:
    """Heavy-light chains, a launch a wave; boundary states alone are stored."""
    waves, slots = hybrid_waves(tree.tree, state.device)
    stored = None
    if slots:
        states = state.new_empty(slots, *state.shape)
        stored = Stored(states, states.stride(0), states.stride(1))
    walker = Walker(state, inputs, tree, stored, tiles)
    for wave in waves:
        walker.run(wave)
    return walker.finish()


def verify_sequentially(
    state: Tensor, inputs: NodeInputs, tree: TreeTensors, tiles: Tiles | None = None
) -> VerifyOutput:
    """The decode step once per node, a launch each, its parent's state from memory and its own to memory."""
    states = state.new_empty(state.shape[0], tree.nodes, *state.shape[1:])
    walker = Walker(state, inputs, tree, Stored(states, states.stride(1), states.stride(0)), tiles)
    for node, parent in enumerate(tree.tree.parents):
        walker.run_nodes(node, 1, parent)
    return walker.finish(states)
