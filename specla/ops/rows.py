"""Rows and nodes: gathering a path, and several layers stacked in the rows so that one call serves all of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specla.ops.types import Factors


def stack_factors(layers: Sequence[Factors]) -> Factors:
    """The factors of several layers, folded into the rows layer by layer."""
    if len(layers) == 1:
        return layers[0]
    return Factors(*(torch.cat(parts) for parts in zip(*layers, strict=True)))


def repeat_rows(x: Tensor, rows: int) -> Tensor:
    """A path or a length of B rows for `rows` = layers x B rows, layer by layer; a single row broadcasts."""
    if x.shape[0] in (1, rows):
        return x
    return x.repeat(rows // x.shape[0], *(1 for _ in x.shape[1:]))


def take_nodes(x: Tensor, nodes: Tensor) -> Tensor:
    """x [B, T, ...] at nodes [1 or B, L], all valid -> [B, L, ...]."""
    if nodes.shape[0] == 1:
        return x.index_select(1, nodes[0])
    return x[torch.arange(x.shape[0], device=x.device)[:, None], nodes]


def settled(mask: Tensor, value: bool) -> bool:
    """Whether the host may rely on every entry of `mask` being `value`.

    On a CPU it looks. On a device looking would stall the stream and break graph capture, so the answer is no, and the
    caller takes the form that is right for any mask.
    """
    return mask.device.type == "cpu" and bool((mask if value else ~mask).all())
