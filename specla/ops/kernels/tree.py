"""The tree mask on tensor cores: every node of up to 64 from one read of the state (paper, section 4.2).

With X = V - diag(exp G) K S^T - P U_r, what the committed state and known factors leave of the values,

    U = M X,  O = diag(exp G) Q S^T + P' U_r + N X,  M = (I + B)^-1 diag(b),  N = ((A + I) o exp(G_i - G_j) o Q K^T) M

M, N, P and P' depend on keys, queries and gates, not on the state or the values: `tree_solve` makes them, a few
programs a head, and `tree_read` reads the state, a program for some rows of it, which begin to arrive while the
triangle is still being solved.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.kernels.checks import check_verify
from specla.ops.kernels.held import Held, Pendency
from specla.ops.kernels.launch import Strided, block_of, factor_memory, overlapped, row_stride, side_by_side, strided
from specla.ops.kernels.tree_read import read_kernel
from specla.ops.kernels.tree_solve import solve_kernel
from specla.ops.known import Pending, absorb
from specla.ops.lost import marks, path_decay_apart
from specla.ops.types import Bank, Factors, Fold, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.topology import MAX_NODES

BLOCK_NODES = 64
"""The nodes of one launch. A larger tree takes its first nodes as known factors of the others."""
MOST_PLACES = 256
"""Known factors of a row that fit on chip, the first nodes of a larger tree included."""
FLAT_DEPTH = 8
"""Up to here a triangle is solved level by level."""


class Tiles(NamedTuple):
    """How the work is cut up."""

    values: int
    """BV, rows of the state a program reads."""
    keys: int
    """BK, columns of one load; no more than 256."""
    warps: int
    stages: int
    registers: int | None
    """Where a limit lets one more program onto a multiprocessor."""
    solve_warps: int
    solve_columns: int
    """BC, columns of M and N a program makes; all in deep trees and with known factors."""


def tiles_for(heads: int, nodes: int, pending: Pendency = "none") -> Tiles:
    """What was found to be fast on an H200 (K = V = 256).

    Args:
        heads: value heads in a batch.
        nodes: of a block.
        pending: whether there are known factors, and where they go.
    """
    padded = padded_nodes(nodes)
    if heads <= 32:
        if pending == "folded":
            return Tiles(16, 256, 4, 1, None, 4, 16) if padded == 16 else Tiles(16, 128, 4, 2, None, 4, 16)
        if padded == 64:
            return Tiles(32, 128, 4, 2, None, 4, 16) if pending == "none" else Tiles(16, 128, 4, 2, None, 4, 16)
        return Tiles(16, 128, 2, 2, None, 1 if padded == 16 else 4, 16)
    if pending == "folded":
        if heads > 128:
            return Tiles(64, 64, 4, 3, None, 4, padded)
        return Tiles(32, 64, 2, 3, None, 4, padded) if padded < 64 else Tiles(64, 32, 4, 2, 168, 4, 64)
    if pending == "beside":
        return Tiles(64, 32 if padded < 64 else 64, 4, 3, None, 4, padded)
    if padded < 64:
        return Tiles(64, 32, 4, 3, 128, 1 if padded == 16 and heads > 512 else 4, padded)
    return Tiles(64, 64, 4, 3, None, 4, 64) if 128 < heads <= 512 else Tiles(64, 32, 4, 3, 168, 4, 64)


def padded_nodes(nodes: int) -> int:
    """BT: what products on tensor cores take."""
    return max(16, int(triton.next_power_of_2(nodes)))


def columns_of(tiles: Tiles, padded: int, key_size: int) -> int:
    """BC of a flat tree: all where one load holds the keys.

    Split there, 64 nodes get a program of ptxas 12.8 that reads an address from a register that nothing wrote. The
    tests look for such reads in all machine code.
    """
    return min(tiles.solve_columns, padded) if key_size > block_of(key_size) else padded


class _Block(NamedTuple):
    """What one launch verifies: some nodes of a tree, on known factors."""

    inputs: NodeInputs
    ancestors: Tensor
    """[1 or B, T, T] bool, among these nodes."""
    depths: Tensor
    """[1 or B, T] int64, from any level on."""
    deepest: int
    """A bound of the differences in depth."""
    decay: Tensor
    """[B, T, HV] float64, contiguous: G."""
    summed: bool
    """Whether it is there already; if not, the kernel sums it."""
    reflects: bool
    """Whether write strengths may exceed 1."""
    known: Known | None = None
    fold: Fold = None
    mask: Tensor | None = None
    """[B, T, R] bool, strided: the places of `known` that are ancestors of a node; None where all valid ones are."""


def verify_tree(
    state: Tensor,
    inputs: NodeInputs,
    tree: TreeTensors,
    known: Known | None = None,
    fold: Fold = None,
    tiles: Tiles | None = None,
    bank: Bank | None = None,
    *,
    reflects: bool = False,
) -> VerifyOutput:
    """Every node's output and factors, by the tree mask.

    Args:
        state: [B, HV, V, K] float32, contiguous. Rows that fold take their known factors in on the way, in place
            (paper, section 5.2); nothing else is written.
        inputs: of T nodes, up to 128, `specla.ops.lost.marked`; q, k and v in one of float32, float16, bfloat16.
        tree: shared, or one a row.
        known: committed factors that the state does not hold. Nothing here may write them: other programs still read.
        fold: which rows fold.
        tiles: None for what was measured to be fast.
        bank: where factors go; None for new memory.
        reflects: whether write strengths may exceed 1 (`VerifyStrategy.reflects`).

    Raises:
        SpeclaError: naming the limit, for tensors that the kernels cannot take.
    """
    check_verify(state, inputs, tree, known, fold)
    batch, nodes, value_heads = inputs.g.shape
    if nodes > MAX_NODES:
        raise SpeclaError(f"{nodes} nodes: the tree's kernels take up to {MAX_NODES}")
    out = torch.empty(batch, nodes, value_heads, state.shape[2], dtype=torch.float32, device=state.device)
    u, decay = factor_memory(inputs, bank)
    deepest = tree.deepest
    if nodes <= BLOCK_NODES:
        block = _Block(inputs, tree.ancestors, tree.depths, deepest, decay, False, reflects, known, fold)
        _launch(state, block, out, u, tiles)
        return VerifyOutput(out, Factors(inputs.k, u, decay), None)
    held = absorb(state, known, fold)
    since = None if held is None else held.total
    decay.copy_(path_decay_apart(marks(inputs), tree.path_sums, since).transpose(1, 2))
    factors = Factors(inputs.k, u, decay)
    for start in range(0, nodes, BLOCK_NODES):
        rows = slice(start, min(start + BLOCK_NODES, nodes))
        block = _part(inputs, tree, held, factors, rows)._replace(deepest=deepest, reflects=reflects)
        _launch(state, block, out[:, rows], u[:, rows], tiles)
    return VerifyOutput(out, factors, None)


def _part(inputs: NodeInputs, tree: TreeTensors, held: Pending | None, factors: Factors, rows: slice) -> _Block:
    """Some nodes of a larger tree: the nodes before them are known factors, under the ancestor mask."""
    batch, before = inputs.g.shape[0], rows.start
    own = NodeInputs(*(x[:, rows] for x in inputs))
    mask = tree.ancestors[:, rows, :before].expand(batch, -1, -1)
    valid = torch.ones(batch, before, dtype=torch.bool, device=mask.device)
    parts = [Factors(*(x[:, :before] for x in factors))] if before else []
    if held is not None:
        parts = [held.factors, *parts]
        mask = torch.cat((held.valid[:, None].expand(-1, mask.shape[1], -1), mask), dim=2)
        valid = torch.cat((held.valid, valid), dim=1)
    known = Known(Factors(*(torch.cat(x, dim=1) for x in zip(*parts, strict=True))), valid) if parts else None
    decay = factors.decay[:, rows].contiguous()
    ancestors, depths = tree.ancestors[:, rows, rows], tree.depths[:, rows].contiguous()
    return _Block(own, ancestors, depths, 0, decay, True, False, known, None, mask)


class _Solved(NamedTuple):
    """What the first kernel leaves for the second."""

    decay: Tensor
    """[B, T, HV] float64."""
    mixing: Tensor
    """[B HV, high or low, BT, -M or -N, BT] bfloat16, or float16 where it reflects: their rows in turn."""
    pending: Tensor
    """[B HV, high or low, BT, P or P', BR] of the same."""


def _launch(state: Tensor, block: _Block, out: Tensor, u: Tensor, tiles: Tiles | None) -> None:
    """Run both kernels on a block of nodes, into views of `out` and `u`."""
    batch, nodes, value_heads = block.inputs.g.shape
    key_size, value_size = state.shape[3], state.shape[2]
    held = Held.of(block.known, block.fold, block.inputs.g)
    if held.places > MOST_PLACES:
        raise SpeclaError(f"{held.places} known factors of a row: the tree's kernels take up to {MOST_PLACES} at once")
    tiles = tiles or tiles_for(batch * value_heads, nodes, held.pendency)
    sizes = {"H": block.inputs.k.shape[2], "HV": value_heads, "K": key_size, "BT": padded_nodes(nodes)}
    sizes |= {"BR": padded_nodes(held.places)}
    q, k, v = (strided(x) for x in block.inputs[:3])
    # What every row folds is known to the state alone.
    flags = {name: flag and not held.flags["ALL_FOLD"] for name, flag in held.flags.items() if name != "ALL_FOLD"}
    solved = _solve(q, k, block, held, sizes | flags, tiles)
    values = block_of(value_size, tiles.values)
    limit = {} if tiles.registers is None or not state.is_cuda else {"maxnreg": tiles.registers}
    read_kernel[(value_size // values, batch * value_heads)](
        state, q.data, k.data, v.data, *held.tensors, *solved, out, u, nodes, held.places,
        q.row, q.node, k.row, k.node, v.row, v.node, out.stride(0),
        *held.strides,
        V=value_size, BK=block_of(key_size, tiles.keys), BV=values, EXACT=k.data.dtype == torch.bfloat16,
        REFLECTS=block.reflects, num_warps=tiles.warps, num_stages=tiles.stages,
        **sizes, **held.flags, **limit, **overlapped(state),
    )  # fmt: skip


def _solve(q: Strided, k: Strided, block: _Block, held: Held, sizes: dict[str, int], tiles: Tiles) -> _Solved:
    """Solve every head's triangle."""
    g, beta = block.inputs.g.contiguous(), block.inputs.beta.contiguous()
    heads, padded = g.shape[0] * g.shape[2], sizes["BT"]
    half = torch.float16 if block.reflects else torch.bfloat16
    mixing = torch.empty(heads, 2, padded, 2, padded, dtype=half, device=g.device)
    pending = mixing.new_empty(heads, 2, padded, 2, sizes["BR"]) if sizes["KNOWN"] else mixing
    mask, mask_row, mask_node = held.valid, 0 if held.valid.dim() == 1 else held.valid.stride(0), 0
    if block.mask is not None:
        mask = side_by_side(block.mask).view(torch.uint8)
        mask_row, mask_node = mask.stride(0), mask.stride(1)
    flat = block.deepest <= FLAT_DEPTH
    # A deep triangle is halved, whatever the depth between two powers of two: one kernel serves them.
    depth = block.deepest if flat else (1 << block.deepest.bit_length()) - 1
    columns = columns_of(tiles, padded, sizes["K"]) if flat and not sizes["KNOWN"] else padded
    ancestors, depths = side_by_side(block.ancestors).view(torch.uint8), side_by_side(block.depths)
    solve_kernel[(heads, padded // columns)](
        q.data, k.data, g, beta, ancestors, depths, held.k.data, held.decay, held.nodes, mask, held.fold,
        block.decay, mixing, pending, g.shape[1], held.places,
        q.row, q.node, k.row, k.node, row_stride(ancestors), ancestors.stride(1), row_stride(depths),
        mask_row, mask_node, held.decay.shape[1], held.k.row, held.k.node,
        BC=columns, BK=block_of(sizes["K"]), FLAT=flat, DEPTH=depth, SUMMED=block.summed, REFLECTS=block.reflects,
        num_warps=tiles.solve_warps, **sizes, **overlapped(g),
    )  # fmt: skip
    return _Solved(block.decay, mixing, pending)
