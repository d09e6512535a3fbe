"""Acceptance: the longest path of drafts that the target itself would have emitted.

Every token is an argmax (greedy, or with shared Gumbel noise), so a child is accepted when its token equals its
parent's argmax, and nothing is ever rejected and resampled.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specla.ops.sampling import Sampling, choose
from specla.ops.types import TreeTensors


@dataclass(frozen=True)
class Acceptance:
    """What a step accepted.

    Attributes:
        path: [B, D+1] int64, nodes from the root to the deepest accepted one; places past the row's length repeat it.
        accepted: [B] int64, a, the number of accepted drafts.
        emitted: [B, D+1] int64, the target's token at each node of the path: the accepted drafts, then the bonus token;
            a + 1 of them are valid.
    """

    path: Tensor
    accepted: Tensor
    emitted: Tensor


def accept(
    logits: Tensor, tokens: Tensor, tree: TreeTensors, sampling: Sampling, rows: Tensor, lengths: Tensor
) -> Acceptance:
    """Walk down from the root as long as a child holds the token that the target chooses.

    Args:
        logits: [B, T, vocabulary].
        tokens: [B, T] int64, of the nodes.
        rows: [B] int64, identities of the rows in the noise.
        lengths: [B] int64, committed tokens, which is the position of the root.
    """
    batch, depth = tokens.shape[0], int(tree.depths.max())
    index = torch.arange(batch, device=tokens.device)
    # Greedy choices are cheap enough to make at every node; with top-p only the nodes that are reached get sorted.
    greedy = choose(logits, sampling, rows, lengths) if sampling.greedy else None
    node = torch.zeros_like(lengths)
    alive = torch.ones_like(lengths, dtype=torch.bool)
    path, emitted, accepted = [], [], torch.zeros_like(lengths)
    for step in range(depth + 1):
        if greedy is not None:
            chosen = greedy[index, node]
        else:
            chosen = choose(logits[index, node], sampling, rows, lengths + step + 1)
        path.append(node)
        emitted.append(chosen)
        match = (tree.parents == node[:, None]) & (tokens == chosen[:, None])
        alive = alive & match.any(-1)
        if step == depth or not alive.any():
            break
        node = torch.where(alive, match.int().argmax(-1), node)
        accepted = accepted + alive
    return Acceptance(torch.stack(path, 1), accepted, torch.stack(emitted, 1))
