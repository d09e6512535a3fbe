"""The tree mask on tensor cores: every node of up to 64 from one read of the state (paper, section 4.2).

With X = V - diag(exp G) K S^T - P U_r, what the committed state and known factors leave of the values,

    U = M X,  O = diag(exp G) Q S^T + P' U_r + N X,  M = (I + B)^-1 diag(b),  N = ((A + I) o exp(G_i - G_j) o Q K^T) M

M, N, P and P' depend on a head's keys alone: `tree_solve` makes them, a few programs a head, and `tree_read` reads the
state, a program for some rows of it, which begin to arrive while the triangle is still being solved.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.kernels.launch import Strided, block_of, check_verify, overlapped, row_stride, side_by_side, strided
from specla.ops.kernels.tree_read import read_kernel
from specla.ops.kernels.tree_solve import solve_kernel
from specla.ops.paths import path_decay
from specla.ops.types import Factors, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.topology import MAX_NODES

BLOCK_NODES = 64
"""The nodes of one launch. A larger tree takes its first nodes as known factors of the others."""
FLAT_DEPTH = 8
"""Up to here a triangle is solved level by level."""


class Tiles(NamedTuple):
    """How the work is cut up."""

    values: int
    """BV, rows of the state a program reads."""
    keys: int
    """BK, columns of one load."""
    warps: int
    stages: int
    registers: int | None
    """Where a limit lets one more program onto a multiprocessor."""
    solve_warps: int
    solve_columns: int
    """BC, columns of M and N a program makes; all in deep trees and with known factors."""


def tiles_for(heads: int, nodes: int) -> Tiles:
    """What `specla.bench.tiles` found to be fast on an H200 for so many value heads in a batch (K = V = 256)."""
    padded = padded_nodes(nodes)
    if heads <= 32:
        return Tiles(16, 64, 2 if padded == 16 else 4, 5, None, 4, 16)
    if padded == 16:
        if heads <= 128:
            return Tiles(32, 64, 2, 3, None, 1, 16)
        return Tiles(64, 32, 4, 3, 128, 4, 16) if heads <= 512 else Tiles(64, 32, 4, 3, None, 1, 16)
    return Tiles(64, 32, 4, 3, 168 if padded == 64 else None, 4, padded)


def padded_nodes(nodes: int) -> int:
    """BT: what products on tensor cores take."""
    return max(16, int(triton.next_power_of_2(nodes)))


class _Block(NamedTuple):
    """What one launch verifies: some nodes of a tree, on known factors."""

    inputs: NodeInputs
    ancestors: Tensor
    """[1 or B, T, T] bool, among these nodes."""
    depths: Tensor
    """[1 or B, T] int64, from any level on."""
    deepest: int
    """A bound of the differences in depth."""
    known: Factors | None = None
    valid: Tensor | None = None
    """[B, R] bool: the places of `known` that hold something."""
    mask: Tensor | None = None
    """[B, T, R] bool, strided: those which are ancestors of a node."""
    decay: Tensor | None = None
    """[B, T, HV] float64 where G is summed already; None sums it in the kernel."""


def verify_tree(
    state: Tensor, inputs: NodeInputs, tree: TreeTensors, known: Known | None = None, tiles: Tiles | None = None
) -> VerifyOutput:
    """Every node's output and factors, by the tree mask; the state is read alone.

    Args:
        state: [B, HV, V, K] float32, contiguous.
        inputs: of T nodes, up to 128; q, k and v in one of float32, float16, bfloat16.
        tree: shared, or one a row.
        known: committed factors that the state does not hold.
        tiles: None for what was measured to be fast.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernels cannot take.
    """
    check_verify(state, inputs, tree, known)
    batch, nodes, value_heads = inputs.g.shape
    if nodes > MAX_NODES:
        raise SpeclaError(f"{nodes} nodes: the tree's kernels take up to {MAX_NODES}")
    shape = (batch, nodes, value_heads, state.shape[2])
    out, u = (torch.empty(shape, dtype=torch.float32, device=state.device) for _ in range(2))
    # A bound that needs no look at the device.
    deepest = max(shape.depth for shape in tree.trees) if tree.trees else nodes - 1
    if nodes <= BLOCK_NODES:
        block = _Block(inputs, tree.ancestors, tree.depths, deepest)
        if known is not None:
            mask = known.valid[:, None].expand(-1, nodes, -1)
            block = block._replace(known=known.factors, valid=known.valid, mask=mask)
        return VerifyOutput(out, Factors(inputs.k, u, _launch(state, block, out, u, tiles)), None)
    since = None if known is None else known.factors.decay.double().masked_fill(~known.valid[..., None], 0.0).amin(1)
    decay = path_decay(inputs.g, tree.path_sums, since).transpose(1, 2).contiguous()
    factors = Factors(inputs.k, u, decay)
    for start in range(0, nodes, BLOCK_NODES):
        rows = slice(start, min(start + BLOCK_NODES, nodes))
        block = _part(inputs, tree, known, factors, rows)._replace(deepest=deepest)
        _launch(state, block, out[:, rows], u[:, rows], tiles)
    return VerifyOutput(out, factors, None)


def _part(inputs: NodeInputs, tree: TreeTensors, known: Known | None, factors: Factors, rows: slice) -> _Block:
    """Some nodes of a larger tree: the nodes before them are known factors, under the ancestor mask."""
    batch, before = inputs.g.shape[0], rows.start
    own = NodeInputs(*(x[:, rows] for x in inputs))
    mask = tree.ancestors[:, rows, :before].expand(batch, -1, -1)
    valid = torch.ones(batch, before, dtype=torch.bool, device=mask.device)
    parts = [Factors(*(x[:, :before] for x in factors))] if before else []
    if known is not None:
        parts = [known.factors, *parts]
        mask = torch.cat((known.valid[:, None].expand(-1, mask.shape[1], -1), mask), dim=2)
        valid = torch.cat((known.valid, valid), dim=1)
    held = Factors(*(torch.cat(x, dim=1) for x in zip(*parts, strict=True))) if parts else None
    decay = factors.decay[:, rows].contiguous()
    ancestors, depths = tree.ancestors[:, rows, rows], tree.depths[:, rows].contiguous()
    return _Block(own, ancestors, depths, 0, held, valid, mask, decay)


class _Solved(NamedTuple):
    """What the first kernel leaves for the second."""

    decay: Tensor
    """[B, T, HV] float64."""
    mixing: Tensor
    """[B HV, M or N, high or low, BT, BT] bfloat16."""
    pending: Tensor
    """[B HV, P or P', high or low, BT, BR] bfloat16."""


def _launch(state: Tensor, block: _Block, out: Tensor, u: Tensor, tiles: Tiles | None) -> Tensor:
    """Run both kernels on a block of nodes, into views of `out` and `u`; returns G, [B, T, HV] float64."""
    batch, nodes, value_heads = block.inputs.g.shape
    key_size, value_size = state.shape[3], state.shape[2]
    tiles = tiles or tiles_for(batch * value_heads, nodes)
    places = 0 if block.known is None else block.known.k.shape[1]
    sizes = {"H": block.inputs.k.shape[2], "HV": value_heads, "K": key_size, "T": nodes, "BT": padded_nodes(nodes)}
    sizes |= {"R": places, "BR": padded_nodes(places)}
    q, k, v = (strided(x) for x in block.inputs[:3])
    solved = _solve(q, k, block, sizes, tiles)
    # What the kernel has no use for without known factors may be any tensor.
    known_u, valid = solved.decay, solved.decay
    if block.known is not None and block.valid is not None:
        known_u, valid = block.known.u.contiguous(), block.valid.contiguous().view(torch.uint8)
    values = block_of(value_size, tiles.values)
    limit = {} if tiles.registers is None or not state.is_cuda else {"maxnreg": tiles.registers}
    read_kernel[(value_size // values, batch * value_heads)](
        state, q.data, k.data, v.data, known_u, valid, *solved, out, u,
        q.row, q.node, k.row, k.node, v.row, v.node, out.stride(0),
        V=value_size, BK=block_of(key_size, tiles.keys), BV=values, EXACT=k.data.dtype == torch.bfloat16,
        num_warps=tiles.warps, num_stages=tiles.stages, **sizes, **limit, **overlapped(state),
    )  # fmt: skip
    return solved.decay


def _solve(q: Strided, k: Strided, block: _Block, sizes: dict[str, int], tiles: Tiles) -> _Solved:
    """Solve every head's triangle."""
    g, beta, known = block.inputs.g.contiguous(), block.inputs.beta.contiguous(), block.known
    heads, padded = g.shape[0] * g.shape[2], sizes["BT"]
    decay = torch.empty(g.shape, dtype=torch.float64, device=g.device) if block.decay is None else block.decay
    mixing = torch.empty(heads, 2, 2, padded, padded, dtype=torch.bfloat16, device=g.device)
    pending = mixing if known is None else mixing.new_empty(heads, 2, 2, padded, sizes["BR"])
    known_k = known_decay = mask = decay
    if known is not None and block.mask is not None:
        known_k, known_decay, mask = known.k.contiguous(), known.decay.double().contiguous(), block.mask
        mask = side_by_side(mask).view(torch.uint8)
    flat = block.deepest <= FLAT_DEPTH
    columns = min(tiles.solve_columns, padded) if flat and known is None else padded
    ancestors, depths = side_by_side(block.ancestors).view(torch.uint8), side_by_side(block.depths)
    solve_kernel[(heads, padded // columns)](
        q.data, k.data, g, beta, ancestors, depths, known_k, known_decay, mask, decay, mixing, pending,
        q.row, q.node, k.row, k.node, row_stride(ancestors), ancestors.stride(1), row_stride(depths),
        row_stride(mask), mask.stride(1),
        BC=columns, BK=block_of(sizes["K"]), FLAT=flat, DEPTH=block.deepest, SUMMED=block.decay is not None,
        EXACT=k.data.dtype != torch.float32,
        num_warps=tiles.solve_warps if padded == 16 else 4, **sizes, **overlapped(g),
    )  # fmt: skip
    return _Solved(decay, mixing, pending)
