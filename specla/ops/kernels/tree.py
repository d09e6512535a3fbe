"""The tree mask on tensor cores: every node of up to 64 from one read of the state (paper, section 4.2).

With X = V - diag(exp G) K S^T - P U_r, what the committed state and known factors leave of the values,

    U = M X,   O = diag(exp G) Q S^T + P' U_r + N X,   M = (I + B)^-1 diag(b),   N = ((A + I) o exp(G_i - G_j) o Q K^T) M

M, N, P and P' depend on a head's keys alone: `tree_solve` makes them, a program a head, and `tree_read` reads the state,
a program for some rows of it. Small trees on few heads take one launch, in which every program solves for itself.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from specla.ops.kernels.launch import block_of, check_verify, overlapped, row_stride, strided
from specla.ops.kernels.tree_read import read_kernel, small_kernel
from specla.ops.kernels.tree_solve import solve_kernel
from specla.ops.types import Factors, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.walk import path_decay

BLOCK_NODES = 64
"""The nodes of one launch. A larger tree takes its first nodes as known factors of the others."""
SOLVE_WARPS = 4
TRIGGER = 1
FLAT_DEPTH, SOLVE_COLUMNS = 8, 64
SOLVE_BLOCK, SOLVE_STAGES, READ = 64, 3, {}
SMALL_NODES, SMALL_HEADS = 16, 64
"""Up to here a program that solves its head's triangle again costs less than a second launch."""


class Tiles(NamedTuple):
    """How the state is cut up."""

    values: int
    """BV, rows of the state a program reads."""
    keys: int
    """BK, columns of one load."""
    warps: int
    stages: int


class _Block(NamedTuple):
    """What one launch verifies: some nodes of a tree, on known factors."""

    inputs: NodeInputs
    ancestors: Tensor
    """[1 or B, T, T] bool, among these nodes."""
    depths: Tensor
    """[1 or B, T] int64, from any level on."""
    deepest: int
    """A bound of the differences in depth."""
    known: Factors | None
    valid: Tensor | None
    """[B, R] bool: the places of `known` that hold something."""
    mask: Tensor | None
    """[B, T, R] bool, strided: those which are ancestors of a node."""
    decay: Tensor | None
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
        tiles: how the state is cut up; None for what was measured to be fast.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernels cannot take.
    """
    check_verify(state, inputs)
    batch, nodes, value_heads = inputs.g.shape
    shape = (batch, nodes, value_heads, state.shape[2])
    out, u = (torch.empty(shape, dtype=torch.float32, device=state.device) for _ in range(2))
    if nodes <= BLOCK_NODES:
        valid = None if known is None else known.valid
        mask = None if valid is None else valid[:, None].expand(-1, nodes, -1)
        factors = None if known is None else known.factors
        block = _Block(inputs, tree.ancestors, tree.depths, _deepest(tree), factors, valid, mask, None)
        return VerifyOutput(out, Factors(inputs.k, u, _launch(state, block, out, u, tiles)), None)
    since = None if known is None else known.factors.decay.double().masked_fill(~known.valid[..., None], 0.0).amin(1)
    decay = path_decay(inputs.g, tree.path_sums, since).transpose(1, 2).contiguous()
    for start in range(0, nodes, BLOCK_NODES):
        rows = slice(start, min(start + BLOCK_NODES, nodes))
        block = _part(inputs, tree, known, Factors(inputs.k, u, decay), rows)
        _launch(state, block, out[:, rows], u[:, rows], tiles)
    return VerifyOutput(out, Factors(inputs.k, u, decay), None)


def _part(inputs: NodeInputs, tree: TreeTensors, known: Known | None, factors: Factors, rows: slice) -> _Block:
    """Some nodes of a larger tree: the nodes before them are known factors, under the ancestor mask."""
    batch, before = inputs.g.shape[0], rows.start
    own = NodeInputs(*(x[:, rows] for x in inputs))
    own = own._replace(g=own.g.contiguous(), beta=own.beta.contiguous())
    parts = [Factors(*(x[:, :before] for x in factors))] if before else []
    mask = tree.ancestors[:, rows, :before].expand(batch, -1, -1)
    valid = torch.ones(batch, before, dtype=torch.bool, device=mask.device)
    if known is not None:
        parts = [known.factors, *parts]
        mask = torch.cat((known.valid[:, None].expand(-1, mask.shape[1], -1), mask), dim=2)
        valid = torch.cat((known.valid, valid), dim=1)
    held = Factors(*(torch.cat(x, dim=1) for x in zip(*parts, strict=True))) if parts else None
    decay = factors.decay[:, rows].contiguous()
    depths = tree.depths[:, rows].contiguous()
    return _Block(own, tree.ancestors[:, rows, rows], depths, _deepest(tree), held, valid, mask, decay)


def _deepest(tree: TreeTensors) -> int:
    """A bound of the depth that needs no look at the device."""
    return max(shape.depth for shape in tree.trees) if tree.trees else tree.nodes - 1


def _launch(state: Tensor, block: _Block, out: Tensor, u: Tensor, tiles: Tiles | None) -> Tensor:
    """Run the kernels on a block of nodes, into views of `out` and `u`; returns G, [B, T, HV] float64."""
    (q, k, v, g, beta), known = block.inputs, block.known
    batch, nodes, value_heads = g.shape
    programs, key_size, value_size = batch * value_heads, k.shape[3], v.shape[3]
    small = nodes <= SMALL_NODES and known is None and block.decay is None and programs <= SMALL_HEADS
    tiles = tiles or _tiles(programs, nodes, key_size, value_size, small)
    q, k, v, g, beta = strided(q), strided(k), strided(v), g.contiguous(), beta.contiguous()
    ancestors = block.ancestors.view(torch.uint8)
    decay = torch.empty(g.shape, dtype=torch.float64, device=g.device) if block.decay is None else block.decay
    padded = max(16, triton.next_power_of_2(nodes))
    sizes = {"H": k.data.shape[2], "HV": value_heads, "K": key_size, "T": nodes, "BT": padded}
    wide, exact = k.data.dtype != torch.float32, k.data.dtype == torch.bfloat16
    grid = value_size // tiles.values, programs
    if small:
        small_kernel[grid](
            state, q.data, k.data, v.data, g, beta, ancestors, block.depths, decay, out, u,
            q.row, q.node, k.row, k.node, v.row, v.node, row_stride(ancestors), row_stride(block.depths),
            V=value_size, BK=tiles.keys, BV=tiles.values, FLAT=block.deepest <= FLAT_DEPTH, DEPTH=block.deepest,
            EXACT=exact, KEYS_EXACT=wide, num_warps=tiles.warps, num_stages=tiles.stages, **sizes, **(overlapped(state) | {'OVERLAP': TRIGGER if state.is_cuda else 0}),
        )  # fmt: skip
        return decay
    places = 0 if known is None else known.k.shape[1]
    padded_places = max(16, triton.next_power_of_2(places))
    sizes |= {"R": places, "BR": padded_places}
    # What the kernels have no use for without known factors may be any tensor.
    known_k = known_u = known_decay = valid = mask = decay
    if known is not None:
        known_k, known_u, known_decay = (x.contiguous() for x in (known.k, known.u, known.decay.double()))
        valid, mask = block.valid.contiguous().view(torch.uint8), block.mask.view(torch.uint8)
    mixing, pending = (
        torch.empty(programs, 2, 2, padded, size, dtype=torch.bfloat16, device=state.device)
        for size in (padded, padded_places if places else 0)
    )
    columns = SOLVE_COLUMNS if known is None and block.deepest <= FLAT_DEPTH else padded
    solve_kernel[(programs, triton.cdiv(padded, columns))](
        q.data, k.data, g, beta, ancestors, block.depths, known_k, known_decay, mask, decay, mixing, pending,
        q.row, q.node, k.row, k.node, row_stride(ancestors), ancestors.stride(1), row_stride(block.depths),
        row_stride(mask), mask.stride(1),
        BC=min(columns, padded), BK=block_of(key_size, SOLVE_BLOCK), FLAT=block.deepest <= FLAT_DEPTH, DEPTH=block.deepest, SUMMED=block.decay is not None, EXACT=wide,
        num_warps=SOLVE_WARPS, num_stages=SOLVE_STAGES, **sizes, **overlapped(state),
    )  # fmt: skip
    read_kernel[grid](
        state, q.data, k.data, v.data, known_u, valid, decay, mixing, pending, out, u,
        q.row, q.node, k.row, k.node, v.row, v.node, out.stride(0),
        V=value_size, BK=tiles.keys, BV=tiles.values, EXACT=exact,
        num_warps=tiles.warps, num_stages=tiles.stages, **sizes, **(overlapped(state) | {'OVERLAP': TRIGGER if state.is_cuda else 0}), **READ,
    )  # fmt: skip
    return decay


def _tiles(programs: int, nodes: int, key_size: int, value_size: int, small: bool) -> Tiles:
    """Small blocks where there are few heads, so that all of the device's processors have some."""
    if small:
        return Tiles(block_of(value_size, 32), block_of(key_size), 2, 3)
    largest = 64 if programs >= 64 else 16
    return Tiles(block_of(value_size, largest), block_of(key_size), 4, 2)
