"""The tree mask: every node at once, on any tree, from one read of the state (paper, section 4.2)."""

import torch
from torch import Tensor

from specla.ops.known import Pending, absorb
from specla.ops.lost import contained
from specla.ops.paths import path_decay
from specla.ops.types import Bank, Factors, Fold, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.base import VerifyStrategy


class TreeMask(VerifyStrategy):
    """The delta rule's UT transform with the ancestor mask in place of a causal one.

    (I + B) U = diag(b) (V - diag(exp G) K S^T) by forward substitution, then O = diag(exp G) Q S^T + W U. Pending
    factors are further columns of B and W, on the right-hand side alone.
    """

    name = "tree"
    per_row = True

    def verify(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        known: Known | None = None,
        fold: Fold = None,
        bank: Bank | None = None,
    ) -> VerifyOutput:
        if state.is_cuda:
            from specla.ops.kernels.tree import verify_tree

            return verify_tree(state, inputs, tree, known, fold, bank=bank, reflects=self.reflects)
        held = absorb(state, known, fold)
        return contained(lambda nodes: self._solve(state, nodes, tree, held), inputs, tree)

    def _solve(self, state: Tensor, inputs: NodeInputs, tree: TreeTensors, held: Pending | None) -> VerifyOutput:
        q, k, v, g, beta = inputs
        batch, nodes, heads, key_size = k.shape
        value_heads, value_size = v.shape[2:]
        # n key heads, each with its value heads beside each other, and m value heads, over all rows of the batch.
        n, m = batch * heads, batch * value_heads
        decay = path_decay(g, tree.path_sums, None if held is None else held.total)
        ratio = _decay_ratio(decay, tree, held)
        strength = beta.transpose(1, 2).reshape(m, nodes, 1)

        # Keys above queries: one product for both with the keys, one with the state, shared by a group's value heads.
        rows = torch.stack((k.transpose(1, 2), q.transpose(1, 2)), dim=2).float().view(n, 2 * nodes, key_size)
        keys = rows[:, :nodes]
        if held is not None:
            keys = torch.cat((held.factors.k.float().transpose(1, 2).reshape(n, -1, key_size), keys), dim=1)
        products = torch.bmm(rows, keys.mT).view(n, 1, 2, nodes, -1)
        weight = (ratio.view(n, -1, 1, nodes, keys.shape[1]) * products).view(m, 2, nodes, -1)
        read = torch.bmm(rows, state.view(n, -1, key_size).mT).view(n, 2 * nodes, -1, value_size)
        read = read.transpose(1, 2).reshape(m, 2, nodes, value_size).mul_(decay.float().exp_().view(m, 1, nodes, 1))
        if held is not None:
            places = keys.shape[1] - nodes
            known_u = held.factors.u.transpose(1, 2).reshape(m, 1, places, value_size)
            read += weight[..., :places] @ known_u
            weight = weight[..., places:]

        target = (v.float().transpose(1, 2).reshape(m, nodes, value_size) - read[:, 0]).mul_(strength)
        lower = weight[:, 0]
        if self.reflects:
            # No error fades: where keys repeat, float32 rounds their products the same
            # way in every step, and after 8,192 tokens these are past the drift bound.
            own = rows[:, :nodes].double()
            lower = (ratio.view(n, -1, nodes, keys.shape[1])[..., -nodes:] * torch.bmm(own, own.mT)[:, None]).flatten(
                0, 1
            )
        u = _substitute(lower * strength, target.to(lower.dtype)).float()
        out = torch.baddbmm(read[:, 1], weight[:, 1], u)
        u, out = (x.view(batch, value_heads, nodes, value_size).transpose(1, 2) for x in (u, out))
        return VerifyOutput(out, Factors(k, u, decay.transpose(1, 2)), None)


def _substitute(lower: Tensor, target: Tensor) -> Tensor:
    """Solve (I + B) U = target by forward substitution: [m, T, T], [m, T, V] -> [m, T, V].

    The solver takes the diagonal as ones and reads one triangle, so `lower` needs neither I nor a strict mask. Written
    as U^T (I + B)^T = target^T, both operands are column-major, as LAPACK wants them, and nothing is copied.
    """
    solved: Tensor = torch.linalg.solve_triangular(lower.mT, target.mT, upper=True, left=False, unitriangular=True)
    return solved.mT


def _decay_ratio(decay: Tensor, tree: TreeTensors, held: Pending | None) -> Tensor:
    """exp(G_i - G_j) where j is known, an ancestor of i or i itself, else 0: [B, HV, T, R + T] float32.

    The difference is taken in float64 and masked before the exponential: unrelated nodes may differ by anything.
    """
    unrelated = tree.unrelated
    columns = decay
    if held is not None:
        columns = torch.cat((held.factors.decay.transpose(1, 2), decay), dim=2)
        padding = ~held.valid[:, None, None].expand(-1, 1, decay.shape[2], -1)
        unrelated = torch.cat((padding, unrelated.expand(padding.shape[0], -1, -1, -1)), dim=3)
    difference = decay[..., :, None] - columns[..., None, :]
    return difference.masked_fill_(unrelated, -torch.inf).float().exp_()
