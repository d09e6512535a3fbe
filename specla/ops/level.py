"""One more level of a draft tree, whose upper levels are there already: what a drafter runs, level by level.

All ancestors of the new nodes are known, so nothing is solved (design, section 1):

    u_i = b_i (v_i - exp(G_i) S k_i - sum over ancestors j of exp(G_i - G_j) (k_i . k_j) u_j)
    o_i = exp(G_i) S q_i + sum over ancestors j of exp(G_i - G_j) (q_i . k_j) u_j + (q_i . k_i) u_i
"""

from typing import NamedTuple

import torch
from torch import Tensor

from specla.ops.types import NodeInputs


class Level(NamedTuple):
    """Where M new nodes stand below P nodes that are there; the leading dimension is 1 where all rows agree."""

    unrelated: Tensor
    """[1 or B, 1, M, P] bool: which of the P nodes are no ancestors."""
    parents: Tensor
    """[1 or B, M] int64: 0 is the committed state, 1 + j the j-th of the P nodes."""
    places: Tensor
    """[1 or B, M, W] int64: what the convolution reads, oldest first, in (window, the P nodes, the M nodes)."""


class Above(NamedTuple):
    """The P nodes that are there, heads in the rows as the products take them."""

    seen: Tensor
    """[B, W-1 + P, C], the committed window, then the nodes' inputs of the convolution."""
    k: Tensor
    """[B*H, P, K] float32."""
    u: Tensor
    """[B*H, P, V] float32."""
    decay: Tensor
    """[B, H, 1 + P] float32, G since the commit; first that of the committed state, which is 0."""


def committed(state: Tensor, window: Tensor) -> Above:
    """No nodes yet, above state [B, H, V, K] and window [B, W-1, C]."""
    rows = state.shape[0] * state.shape[1]
    k, u = state.new_empty(rows, 0, state.shape[3]), state.new_empty(rows, 0, state.shape[2])
    return Above(window, k, u, state.new_zeros(*state.shape[:2], 1))


def read_level(state: Tensor, inputs: NodeInputs, above: Above, level: Level, seen: Tensor) -> tuple[Tensor, Above]:
    """Outputs of the new nodes.

    Args:
        state: [B, H, V, K] float32, committed; it is not written. As many value heads as key heads.
        inputs: of the M new nodes.
        above: the P nodes that are there.
        level: where the new ones stand.
        seen: [B, W-1 + P + M, C], what `above` holds with the new nodes' inputs of the convolution.

    Returns:
        (out [B, M, H, V] float32, all nodes that are there now, the new ones last).
    """
    q, k, v, g, beta = inputs
    batch, nodes, heads, size = k.shape
    flat = batch * heads
    rows = torch.stack((k.transpose(1, 2), q.transpose(1, 2)), dim=2).float().view(flat, 2 * nodes, size)
    keys, queries = rows.split(nodes, dim=1)
    decay = _of_parents(above.decay, level.parents).add_(g.transpose(1, 2))
    read = torch.bmm(rows, state.view(flat, -1, size).mT).view(flat, 2, nodes, -1)
    read *= decay.exp().view(flat, 1, nodes, 1)
    if above.k.shape[1]:
        since = decay[..., None] - above.decay[:, :, None, 1:]
        since = since.masked_fill_(level.unrelated, -torch.inf).exp_().view(flat, 1, nodes, -1)
        weights = torch.bmm(rows, above.k.mT).view(flat, 2, nodes, -1).mul_(since)
        read = torch.baddbmm(read.flatten(1, 2), weights.flatten(1, 2), above.u).view(read.shape)
    u = v.transpose(1, 2).reshape(flat, nodes, -1) - read[:, 0]
    u *= beta.transpose(1, 2).reshape(flat, nodes, 1)
    out = torch.addcmul(read[:, 1], (queries * keys).sum(-1, keepdim=True), u)
    below = Above(
        seen, torch.cat((above.k, keys), dim=1), torch.cat((above.u, u), dim=1), torch.cat((above.decay, decay), dim=2)
    )
    return out.view(batch, heads, nodes, -1).transpose(1, 2), below


def _of_parents(decay: Tensor, parents: Tensor) -> Tensor:
    """G of the parents, [B, H, M] from [B, H, 1 + P]."""
    if parents.shape[0] == 1:
        return decay.index_select(2, parents[0])
    return decay.gather(2, parents[:, None].expand(-1, decay.shape[1], -1))


def commit_line(state: Tensor, inputs: NodeInputs, last: Tensor) -> Tensor:
    """Take consecutive tokens into `state`, in place; only the last one's output is wanted.

        (I + B) U = diag(b) (V - diag(exp G) K S^T)      B_ij = b_i exp(G_i - G_j) (k_i . k_j), j < i
        S <- exp(G_L) S + sum over j of exp(G_L - G_j) u_j k_j^T        o_L = S q_L

    Args:
        state: [B, H, V, K] float32, contiguous. As many value heads as key heads.
        inputs: of L tokens; one with decay and write strength 0 is padding, and leaves the state as it is.
        last: [B] int64, the token whose output is wanted, the last that is not padding.

    Returns:
        Its output, [B, 1, H, V] float32.
    """
    q, k, v, g, beta = inputs
    batch, length, heads, size = k.shape
    flat = batch * heads
    keys, written = k.float().transpose(1, 2).reshape(flat, length, size), state.view(flat, -1, size)
    decay = g.transpose(1, 2).reshape(flat, length, 1).cumsum(1)
    keep = decay.exp()
    u = v.transpose(1, 2).reshape(flat, length, -1) - torch.bmm(keys, written.mT).mul_(keep)
    strength = beta.transpose(1, 2).reshape(flat, length, 1)
    u *= strength
    if length > 1:
        # Above the diagonal, which the solver does not read, differences are positive and might overflow.
        since = (decay - decay.mT).clamp_(max=0).exp_()
        lower = torch.bmm(keys, keys.mT).mul_(since).mul_(strength)
        u = torch.linalg.solve_triangular(lower, u, upper=False, unitriangular=True)
        u = u * since[:, -1, :, None]
    written.mul_(keep[:, -1:]).baddbmm_(u.mT, keys)
    query = q[:, -1:] if length == 1 else q.gather(1, last[:, None, None, None].expand(-1, 1, heads, size))
    return torch.matmul(state, query[:, 0, :, :, None].float())[..., 0][:, None]
