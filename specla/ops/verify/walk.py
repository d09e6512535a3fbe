"""The step that walking strategies share: the delta rule over a batch of live states, node by node.

Nodes come first and heads are folded into rows: N = B x H key heads, M = (HV / H) x V rows of state under each, so that
value heads share q and k without a copy. One product reads a state for both k and q; outputs come out of the parent's
state, o = exp(g) S_p q + (k . q) u, all at once after the walk.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specla.ops.lost import path_decay_apart
from specla.ops.types import Factors, NodeInputs


class Walk:
    """One walk over the nodes of `inputs`, in `order` (all nodes once; None is node order), in steps of several nodes.

    Args:
        inputs: of the T nodes.
        sizes: how many nodes every step advances; their sum is T.
        order: [T] int64.
    """

    def __init__(self, inputs: NodeInputs, sizes: Sequence[int], order: Tensor | None = None) -> None:
        q, k, v, g, beta = inputs
        if order is not None:
            q, k, v, g, beta = (x.index_select(1, order) for x in (q, k, v, g, beta))
        self.batch, self.nodes, self.heads, key_size = q.shape
        self.value_heads, self.value_size = v.shape[2:]
        self.rows = self.batch * self.heads
        folded = [size * self.rows for size in sizes]
        self.key_query = self._node_major(torch.stack((k, q), dim=3)).view(-1, 2, key_size)
        strength = beta[..., None]
        keep = g.exp()[..., None].expand(v.shape)
        self.keep = self._node_major(keep).view(self.nodes * self.rows, -1)
        parts = (
            self.key_query,
            self.key_query[:, :1],
            self._node_major(v.float() * strength).view_as(self.keep),
            self._node_major(keep * strength).view_as(self.keep),
            self.keep[..., None],
        )
        self._steps = list(zip(*(torch.split(part, folded) for part in parts), strict=True))
        self._read: list[Tensor] = []
        self._u: list[Tensor] = []

    def start(self, state: Tensor) -> Tensor:
        """[B, HV, V, K] -> the same memory as [N, M, K]."""
        return state.view(self.rows, -1, state.shape[-1])

    def read(self, parents: Tensor) -> None:
        """Take the next step: what its n nodes read from the states of their parents, [n N, M, K]."""
        key_query, _, strong_v, strong_keep, _ = self._steps[len(self._u)]
        read = torch.bmm(key_query, parents.mT)
        self._u.append(torch.addcmul(strong_v, strong_keep, read[:, 0], value=-1))
        self._read.append(read)

    def write(self, parents: Tensor, live: Tensor | None) -> Tensor:
        """States after the nodes of the step just read, [n N, M, K], where a child or recovery wants them.

        `live` is where they are written: the parents' own memory, another, or None for new memory.
        """
        _, key, _, _, keep = self._steps[len(self._u) - 1]
        live = torch.mul(parents, keep, out=live)
        return live.addcmul_(self._u[-1][..., None], key)

    def finish(self, inverse: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(out, u), both [B, T, HV, V] float32, as views; `inverse` undoes `order`."""
        u = torch.cat(self._u)
        alignment = (self.key_query[:, 0] * self.key_query[:, 1]).sum(-1, keepdim=True)
        out = torch.addcmul(self.keep * torch.cat(self._read)[:, 1], alignment, u)
        if inverse is None:
            return self._row_major(out), self._row_major(u)
        return self._row_major(out).index_select(1, inverse), self._row_major(u).index_select(1, inverse)

    def _node_major(self, x: Tensor) -> Tensor:
        """[B, T, ...] -> float32 [T, B, ...], contiguous."""
        return x.float().transpose(0, 1).contiguous()

    def _row_major(self, x: Tensor) -> Tensor:
        return x.view(self.nodes, self.batch, self.value_heads, self.value_size).transpose(0, 1)


def walk_factors(inputs: NodeInputs, u: Tensor, path_sums: Tensor, since: Tensor | None) -> Factors:
    """The factors of all nodes."""
    return Factors(inputs.k, u, path_decay_apart(inputs.g, path_sums, since).transpose(1, 2))
