"""One more level of a draft tree, whose upper levels are there already: what a drafter runs, level by level.

All ancestors of the new nodes are known, so nothing is solved (design, section 1):

    u_i = b_i (v_i - exp(G_i) S k_i - sum over ancestors j of exp(G_i - G_j) (k_i . k_j) u_j)
    o_i = exp(G_i) S q_i + sum over ancestors j of exp(G_i - G_j) (q_i . k_j) u_j + (q_i . k_i) u_i
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specla.ops.types import Factors, NodeInputs


class Level(NamedTuple):
    """Where M new nodes stand below P nodes that are there; the leading dimension is 1 where all rows agree."""

    ancestors: Tensor
    """[1 or B, M, P] bool: which of the P nodes are ancestors."""
    parents: Tensor
    """[1 or B, M] int64: a node's parent among the P; -1 is the committed state."""
    places: Tensor
    """[1 or B, M, W] int64: what the convolution reads, oldest first, in (window, the P nodes, the M nodes)."""


def conv_level(seen: Tensor, places: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The short convolution of the new nodes.

    Args:
        seen: [B, W-1 + P + M, C], the committed window, then the raw inputs of all nodes.
        places: see `Level`.
        weight: [C, W].
        bias: [C] or None.

    Returns:
        silu of the convolution, [B, M, C] in the dtype of `seen`.
    """
    batch, _, channels = seen.shape
    if places.shape[0] == 1:
        taken = seen.index_select(1, places.flatten()).view(batch, *places.shape[1:], channels)
    else:
        taken = seen[torch.arange(batch, device=seen.device)[:, None, None], places]
    y = (taken.float() * weight.t().float()).sum(2)
    return F.silu(y if bias is None else y + bias.float()).to(seen.dtype)


def read_level(state: Tensor, inputs: NodeInputs, above: Factors | None, level: Level) -> tuple[Tensor, Factors]:
    """Outputs and factors of the new nodes.

    Args:
        state: [B, H, V, K] float32, committed; it is not written. As many value heads as key heads.
        inputs: of the M new nodes.
        above: factors of the P nodes that are there; None where there are none.
        level: where the new ones stand.

    Returns:
        (out [B, M, H, V] float32, factors of the M nodes, G since the commit in float32).
    """
    q, k, v, g, beta = inputs
    nodes = k.shape[1]
    decay = g if above is None else g + _of_parents(above.decay, level.parents)
    rows = torch.cat((k, q), dim=1).float().transpose(1, 2)
    read = (rows @ state.mT).unflatten(2, (2, nodes)) * decay.exp().transpose(1, 2)[:, :, None, :, None]
    if above is not None:
        since = (decay.transpose(1, 2)[..., None] - above.decay.transpose(1, 2)[:, :, None]).masked_fill(
            ~level.ancestors[:, None], -torch.inf
        )
        products = (rows @ above.k.float().permute(0, 2, 3, 1)).unflatten(2, (2, nodes))
        read = read + (since.exp()[:, :, None] * products) @ above.u.transpose(1, 2)[:, :, None]
    u = beta[..., None] * (v.float() - read[:, :, 0].transpose(1, 2))
    out = read[:, :, 1].transpose(1, 2) + (q.float() * k.float()).sum(-1, keepdim=True) * u
    return out, Factors(k, u, decay)


def _of_parents(decay: Tensor, parents: Tensor) -> Tensor:
    """G of the parents, [B, M, H] from [B, P, H]; zero for the committed state."""
    index = parents.clamp(min=0).expand(decay.shape[0], -1)
    taken = decay.gather(1, index[..., None].expand(-1, -1, decay.shape[2]))
    return taken * (parents >= 0)[..., None]
