"""Sums along the paths of a tree."""

import torch
from torch import Tensor


def path_decay(g: Tensor, path_sums: Tensor, since: Tensor | None) -> Tensor:
    """G of every node, heads first, [B, HV, T] float64: path_sums [1 or B, T, T] times g, on top of `since` [B, HV].

    A g that is not finite spreads to all nodes of its row and head: `specla.ops.lost` has the form that keeps it apart.
    """
    rows = g.double().transpose(1, 2)
    decay = torch.bmm(rows, path_sums.mT) if path_sums.shape[0] == g.shape[0] else rows @ path_sums[0].mT
    return decay if since is None else decay + since[..., None]
