"""What verification and recovery pass to each other. The letters are explained in `specla.ops`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specla.ops.shape import HeadShape
from specla.topology import DraftTree

__all__ = [
    "CONV_WIDTH",
    "Bank",
    "Factors",
    "Filled",
    "Fold",
    "HeadShape",
    "Known",
    "Moving",
    "NodeInputs",
    "TreeTensors",
    "VerifyOutput",
    "places_of",
]

CONV_WIDTH = 4
"""The width of the short convolution in every published gated delta net."""


class NodeInputs(NamedTuple):
    """What the delta rule reads, after the convolution, for the nodes of a tree or the tokens of a path.

    Those that kernels verify are marked where they are not finite, as `specla.ops.lost` says.
    """

    q: Tensor
    """[B, T, H, K], normalised and scaled."""
    k: Tensor
    """[B, T, H, K], normalised, rounded to the compute dtype once."""
    v: Tensor
    """[B, T, HV, V]."""
    g: Tensor
    """[B, T, HV] float32, log decay, <= 0."""
    beta: Tensor
    """[B, T, HV] float32, write strength."""


class Factors(NamedTuple):
    """A node's rank-one part of the state, S_i = exp(g_i) S_p(i) + u_i k_i^T (paper, section 5.1)."""

    k: Tensor
    """[B, T, H, K], in the compute dtype."""
    u: Tensor
    """[B, T, HV, V] float32."""
    decay: Tensor
    """[B, T, HV], G: the sum of g along the path since the last fold.

    Float64 from every strategy in torch: a difference of two large sums must keep the digits of the small one. Readers
    take float32 as well, at a relative error of |G| 2^-24 in a weight.
    """

    def rows(self, start: int, stop: int) -> "Factors":
        """Rows start..stop-1, as views."""
        return Factors(*(x[start:stop] for x in self))


class Bank(NamedTuple):
    """Memory that one layer's verification fills, a slice of that of all layers: one launch then commits them all."""

    k: Tensor
    """[B, T, H, K]"""
    u: Tensor
    """[B, T, HV, V] float32."""
    decay: Tensor
    """[B, T, HV] float64."""
    raw: Tensor
    """[B, T, C], the convolution's inputs."""

    @property
    def factors(self) -> Factors:
        """Without the convolution's inputs."""
        return Factors(self.k, self.u, self.decay)

    def keep(self, factors: Factors | None, raw: Tensor) -> None:
        """Copy what was not written here already: torch forms leave results in memory of their own."""
        pairs = [] if factors is None else list(zip(self.factors, factors, strict=True))
        for place, found in (*pairs, (self.raw, raw)):
            if found.data_ptr() != place.data_ptr():
                place.copy_(found)


class Known(NamedTuple):
    """Committed factors that the state does not hold yet, oldest first; R places instead of T."""

    factors: Factors
    valid: Tensor
    """[B, R] bool; false is padding, anywhere, and may hold anything. Or [B] int64: how many, from the first on."""
    nodes: Tensor | None = None
    """[B, R] int64: where the places stand among the T nodes that `factors` are then of; any node in a padded place."""

    def rows(self, start: int, stop: int) -> "Known":
        """Rows start..stop-1, as views: one layer's part where layers are stacked."""
        nodes = None if self.nodes is None else self.nodes[start:stop]
        return Known(self.factors.rows(start, stop), self.valid[start:stop], nodes)

    def in_order(self) -> "Known":
        """The same with a factor in every place and a mask over the places, as torch computes with them."""
        factors, valid = self.factors, self.valid
        if self.nodes is not None:
            row = torch.arange(self.nodes.shape[0], device=self.nodes.device)[:, None]
            factors = Factors(*(x[row, self.nodes] for x in factors))
        if valid.dim() == 1:
            valid = torch.arange(factors.k.shape[1], device=valid.device) < valid[:, None]
        return Known(factors, valid)


Fold = Tensor | bool | None
"""Which rows take their known factors into the state: [B] bool, True for all of them, None for none."""


class Moving(NamedTuple):
    """The convolution's window that a commit moves along, and the inputs that it takes in."""

    window: Tensor
    """[B, W-1, C], contiguous, written in place."""
    raw: Tensor
    """[B, T, C], the nodes' raw inputs, in the window's dtype."""


class Filled(NamedTuple):
    """How full a ring is: what is read before an append, and what is written by it."""

    used: Tensor
    """[B] int64, the places in use."""
    fold: Tensor
    """[B] bool: the rows that the next verification, or the one just run, folds, which empties their ring."""


class Newest(NamedTuple):
    """Tokens are counted from the newest `length` of a row's `total` on."""

    total: Tensor
    """[B] int64."""
    length: Tensor
    """[B] int64."""


class Sources(NamedTuple):
    """Where the inputs of m nodes come from that an aligned drafter runs."""

    hidden: Tensor
    """[B, P, D]; rows and nodes may lie apart."""
    hidden_at: Tensor
    """[1 or B, m] int64, among the P."""
    tokens: Tensor
    """[B, S] int64."""
    tokens_at: Tensor
    """[1 or B, m] int64, among the S, or from `newest` on; a place past the end is the last one."""
    newest: Newest | None = None


class VerifyOutput(NamedTuple):
    """What verification returns."""

    out: Tensor
    """[B, T, HV, V] float32, not yet rounded to the model's dtype."""
    factors: Factors | None
    """Of every node, where the strategy makes them."""
    states: Tensor | None
    """[B, T, HV, V, K] float32: the state after every node, where the strategy stores them."""


def places_of(taps: Tensor) -> Tensor:
    """Taps [1 or B, T, W-1] as places in (window, then nodes), each node's own last: [1 or B, T, W] int64."""
    # A tap of -1 is the newest committed input: with the window in front, every tap is a place from its start.
    own = torch.arange(taps.shape[1], device=taps.device)[:, None].expand(*taps.shape[:2], 1)
    return torch.cat((taps, own), dim=2) + taps.shape[2]


@dataclass(frozen=True)
class TreeTensors:
    """A draft tree on a device. The leading dimension is 1 for one tree shared by all rows, or B for a tree per row.

    Nothing writes into these tensors: a different tree is a different object, since derived masks are kept.
    """

    trees: tuple[DraftTree, ...]
    """The shared tree, or one tree a row; empty where the host does not know the trees (built on a device)."""
    parents: Tensor
    """[1 or B, T] int64; -1 is the committed state."""
    depths: Tensor
    """[1 or B, T] int64."""
    ancestors: Tensor
    """[1 or B, T, T] bool; entry [i, j] says that j is a strict ancestor of i."""
    taps: Tensor
    """[1 or B, T, W-1] int64: nodes, or places from the end of the committed window where negative; oldest first."""
    levels: int | None = None
    """No node is deeper, where the host knows that much of trees that it does not know."""

    @classmethod
    def from_tree(cls, tree: DraftTree, device: torch.device | str = "cpu", width: int = CONV_WIDTH) -> "TreeTensors":
        """One tree for all rows; `width` is that of the short convolution."""
        return cls.from_rows((tree,), device, width)

    @classmethod
    def from_rows(
        cls, trees: Sequence[DraftTree], device: torch.device | str = "cpu", width: int = CONV_WIDTH, nodes: int = 0
    ) -> "TreeTensors":
        """A tree per row, each padded to the largest (or to `nodes`) with childless nodes on the committed state."""
        nodes = max(nodes, max(tree.nodes for tree in trees))
        parents = np.full((len(trees), nodes), -1, np.int64)
        depths = np.zeros((len(trees), nodes), np.int64)
        ancestors = np.zeros((len(trees), nodes, nodes), np.bool_)
        taps = np.broadcast_to(np.arange(1 - width, 0), (len(trees), nodes, width - 1)).copy()
        for row, tree in enumerate(trees):
            parents[row, : tree.nodes] = tree.parents
            depths[row, : tree.nodes] = tree.depths
            ancestors[row, : tree.nodes, : tree.nodes] = tree.ancestors
            taps[row, : tree.nodes] = tree.taps(width)
        places, levels, mask, seen = (
            torch.from_numpy(array).to(device) for array in (parents, depths, ancestors, taps)
        )
        return cls(tuple(trees), places, levels, mask, seen)

    @property
    def tree(self) -> DraftTree:
        """The tree that all rows share. Raises ValueError where rows have trees of their own."""
        if len(self.trees) != 1:
            raise ValueError("rows have trees of their own: use the `tree` or `parent_pointer` strategy")
        return self.trees[0]

    @property
    def deepest(self) -> int:
        """A bound of all depths that needs no look at the device."""
        if self.trees:
            return max(tree.depth for tree in self.trees)
        return self.nodes - 1 if self.levels is None else min(self.levels, self.nodes - 1)

    @property
    def shared(self) -> bool:
        """Whether all rows share one tree that the host knows."""
        return len(self.trees) == 1

    @property
    def nodes(self) -> int:
        """T, padding included."""
        return self.parents.shape[1]

    @cached_property
    def places(self) -> Tensor:
        """[1 or B, T, W] int64: what the convolution reads in (the committed window, then the nodes), oldest first."""
        return places_of(self.taps)

    @cached_property
    def path_sums(self) -> Tensor:
        """[1 or B, T, T] float64, A + I: its product with g is G, the sum along every node's path."""
        return (self.ancestors | torch.eye(self.nodes, dtype=torch.bool, device=self.ancestors.device)).double()

    @cached_property
    def unrelated(self) -> Tensor:
        """[1 or B, 1, T, T] bool: where neither j is an ancestor of i nor j is i."""
        return (self.path_sums == 0)[:, None]
