"""One verification by a kernel, and the equations in float64 that it is held against."""

from typing import NamedTuple

import torch
from torch import Tensor

from specla.ops.reference import reference_verify
from specla.ops.types import Factors, HeadShape, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.topology import DraftTree, chain
from tests.ops.cases import known_factors, node_inputs, random_state, random_tree, same_bits
from tests.tolerances import assert_close

SMALL = HeadShape(1, 1, 64, 64)
GROUPED = HeadShape(2, 4, 32, 32)
PUBLISHED = HeadShape(8, 8, 256, 256)
"""A layer of gdn-1.3b."""
WIDE = HeadShape(1, 2, 96, 192)
HEAD_SIZES = [
    HeadShape(1, 1, 16, 16),
    HeadShape(1, 2, 64, 96),
    HeadShape(1, 1, 96, 64),
    WIDE,
    HeadShape(1, 2, 128, 128),
    HeadShape(1, 1, 192, 384),
    HeadShape(1, 1, 256, 512),
]
SIZES = [1, 2, 15, 16, 17, 63, 64, 65, 128]
VALID = torch.tensor(
    [
        [True, True, True, True, True],
        [False, True, False, True, False],
        [False, False, False, False, False],
        [False, False, False, False, True],
    ]
)
"""The places of a ring, a row each: full, with gaps, empty, and one place alone."""


class Case(NamedTuple):
    """What a kernel reads, all on one device."""

    state: Tensor
    inputs: NodeInputs
    tree: TreeTensors
    known: Known | None = None

    def to(self, device: torch.device) -> "Case":
        """The same on `device`, with every stride kept."""
        tree, known = self.tree, self.known
        tensors = (tree.parents, tree.depths, tree.ancestors, tree.taps)
        moved = TreeTensors(tree.trees, *(_moved(x, device) for x in tensors))
        if known is not None:
            known = Known(Factors(*(_moved(x, device) for x in known.factors)), _moved(known.valid, device))
        return Case(_moved(self.state, device), NodeInputs(*(_moved(x, device) for x in self.inputs)), moved, known)

    def truth(self) -> VerifyOutput:
        """By the equations."""
        return reference_verify(self.state.double(), self.inputs, self.tree, self.known)

    def check(self, found: VerifyOutput, before: Tensor, entry: str, committed: str | None = None) -> None:
        """Whatever was made is right, and the state has the bits that it had before.

        Args:
            found: by a kernel.
            before: a copy of the state.
            entry: of the table of tolerances.
            committed: its entry for the state that the factors make; None is the same.
        """
        truth = self.truth()
        assert truth.factors is not None and truth.states is not None
        assert same_bits(self.state, before), "the committed state was written"
        assert found.out.dtype == torch.float32
        assert_close(found.out, truth.out, entry)
        if found.factors is not None:
            assert found.factors.u.dtype == torch.float32 and found.factors.decay.dtype == torch.float64
            assert_close(found.factors.u, truth.factors.u, entry)
            assert_close(found.factors.decay, truth.factors.decay, "decay")
            assert torch.equal(found.factors.k, self.inputs.k)
            deepest = self.tree.depths.argmax(1).expand(self.state.shape[0])
            rows = torch.arange(self.state.shape[0], device=deepest.device)
            assert_close(self._committed(found.factors, deepest), truth.states[rows, deepest], committed or entry)
        if found.states is not None:
            assert found.states.dtype == torch.float32
            assert_close(found.states, truth.states, entry)

    def _committed(self, factors: Factors, node: Tensor) -> Tensor:
        """The state after node [B] of each row by its path's factors and the known ones, in float64."""
        rows = torch.arange(node.shape[0], device=node.device)
        places = torch.arange(self.tree.nodes, device=node.device)
        path = self.tree.ancestors.expand(len(rows), -1, -1)[rows, node] | (places == node[:, None])
        groups = [(factors, path)] if self.known is None else [(factors, path), self.known[:2]]
        newest = factors.decay[rows, node]
        state = newest.exp()[..., None, None] * self.state.double()
        for (k, u, decay), valid in groups:
            weight = (newest[:, None] - decay.double()).masked_fill(~valid[..., None], -torch.inf).exp()
            k = k.double().repeat_interleave(u.shape[2] // k.shape[2], dim=2)
            terms = torch.einsum("bth,bthv,bthk->bthvk", weight, u.double(), k)
            state = state + terms.masked_fill(~valid[..., None, None, None], 0.0).sum(1)
        return state


def _moved(x: Tensor, device: torch.device) -> Tensor:
    """`x` on `device` as it lies: with what stands beside it, since `to` would pack it."""
    base = x if x._base is None else x._base
    return base.to(device).as_strided(x.shape, x.stride(), x.storage_offset())


def draw(
    tree: DraftTree,
    shape: HeadShape = SMALL,
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
    ring: Tensor | None = None,
    seed: int = 0,
) -> Case:
    """Random inputs of a tree that all rows share; `ring` [B, R] says which places of known factors are valid."""
    generator = torch.Generator().manual_seed(seed + tree.nodes)
    inputs = node_inputs(batch, tree.nodes, shape, generator, dtype)
    known = None if ring is None else known_factors(ring, shape, generator, dtype)
    return Case(random_state(batch, shape, generator), inputs, TreeTensors.from_tree(tree), known)


def as_views(inputs: NodeInputs) -> NodeInputs:
    """The inputs as slices of one product, as a layer's torch form has v and its kernel may have all; NaN beside."""
    parts = [x.flatten(2) for x in inputs[:3]]
    wide = torch.full((*parts[0].shape[:2], sum(x.shape[2] for x in parts) + 8), torch.nan, dtype=inputs.q.dtype)
    views, place = [], 3
    for part, x in zip(parts, inputs, strict=False):
        wide[..., place : place + part.shape[2]] = part
        views.append(wide[..., place : place + part.shape[2]].unflatten(2, x.shape[2:]))
        place += part.shape[2]
    return NodeInputs(*views, *inputs[3:])


def tree_of(kind: str, nodes: int) -> DraftTree:
    """A chain, or a random tree."""
    if kind == "chain":
        return chain(nodes - 1)
    return random_tree(nodes, torch.Generator().manual_seed(nodes))


EXTREMES = ["repeated", "nearly", "decay", "strength", "zeros", "all"]


def extreme(case: Case, kind: str, seed: int = 0) -> Case:
    """A case made ill-conditioned.

    Args:
        case: on the CPU.
        kind: `repeated` is one key at every node with write strength 2 and no decay, a reflection a node; `nearly`
            the same with keys that differ by 1 %; `decay` has g of -30, -80 and 0 side by side; `strength` write
            strengths of 0, 1e-8, 1 and 2; `zeros` nodes whose query or key is zero; `all` of them together.
        seed: of what is drawn.
    """
    q, k, v, g, beta = case.inputs
    generator = torch.Generator().manual_seed(seed)

    def pick(values: list[float], like: Tensor) -> Tensor:
        return torch.tensor(values)[torch.randint(len(values), like.shape, generator=generator)]

    if kind in ("repeated", "nearly", "all"):
        apart = 0.0 if kind == "repeated" else 0.01
        noise = torch.nn.functional.normalize(torch.randn(k.shape, generator=generator), dim=-1)
        k = torch.nn.functional.normalize(k[:, :1].float() + apart * noise, dim=-1).to(k.dtype)
        beta, g = torch.full_like(beta, 2.0), torch.zeros_like(g)
    if kind in ("decay", "all"):
        g = torch.where(pick([0.0, 1.0], g) > 0, pick([-80.0, -30.0, 0.0], g), g)
    if kind in ("strength", "all"):
        beta = pick([0.0, 1e-8, 1.0, 2.0], beta)
    if kind in ("zeros", "all"):
        k = k * pick([0.0, 1.0, 1.0], k[..., :1]).to(k.dtype)
        q = q * pick([0.0, 1.0, 1.0], q[..., :1]).to(q.dtype)
    return case._replace(inputs=NodeInputs(q, k, v, g, beta))
