"""Committed factors on their way into the state: one product, wherever they come from.

    S <- exp(G_a) S + sum over j of exp(G_a - G_j) u_j k_j^T

The path of a commit, a pending path and a lazy ring all end here.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from specla.ops.rows import settled
from specla.ops.types import Factors, Fold, Known


class Pending(NamedTuple):
    """Known factors made safe to compute with: padding holds zeros, and `total` is the decay of the newest."""

    factors: Factors
    valid: Tensor
    total: Tensor
    """[B, HV] float64, G of the newest valid factor; zero where there is none."""


def pending(known: Known) -> Pending:
    """Padding may hold anything, NaN too, and NaN times zero is NaN: replace it rather than weigh it by zero."""
    known = known.in_order()
    k, u, decay = known.factors
    padding = ~known.valid
    decay = decay.double().masked_fill(padding[..., None], 0.0)
    factors = Factors(k.masked_fill(padding[..., None, None], 0.0), u.masked_fill(padding[..., None, None], 0.0), decay)
    # G falls along a path since g <= 0: the newest is the least.
    return Pending(factors, known.valid, decay.amin(1).clamp(max=0.0))


def weights(since: Tensor, decay: Tensor, valid: Tensor) -> Tensor:
    """exp(since - G_j) in float32, zero where invalid.

    The difference is taken in float64, where large sums keep their digits.

    Args:
        since: [B, HV] float64.
        decay: [B, L, HV].
        valid: [B, L] bool.

    Returns:
        [B, L, HV].
    """
    return (since[:, None] - decay).masked_fill_(~valid[..., None], -torch.inf).float().exp_()


def add_factors(state: Tensor, factors: Factors, weight: Tensor, keep: Tensor) -> Tensor:
    """keep S + sum over j of weight_j u_j k_j^T, written over `state` (contiguous), which is returned.

    Args:
        state: [B, HV, V, K] float32.
        factors: L of them.
        weight: [B, L, HV] float32.
        keep: [B, HV] float32.
    """
    batch, places, heads, key_size = factors.k.shape
    grouped = state.view(batch * heads, -1, key_size)
    u = (factors.u * weight[..., None]).view(batch, places, heads, -1)
    u = u.permute(0, 2, 3, 1).reshape(batch * heads, -1, places)
    k = factors.k.float().transpose(1, 2).reshape(batch * heads, places, key_size)
    state.mul_(keep[..., None, None])
    grouped.baddbmm_(u, k)
    return state


def write_rows(state: Tensor, factors: Factors, weight: Tensor, keep: Tensor, rows: Tensor) -> None:
    """`add_factors` in place for rows [B] bool; every other row keeps its bits, whatever its factors hold."""
    if settled(rows, True):
        add_factors(state, factors, weight, keep)
    elif not settled(rows, False):
        new = add_factors(state.clone(), factors, weight, keep)
        torch.where(rows[:, None, None, None], new, state, out=state)


def fold_known(state: Tensor, known: Known, rows: Tensor | None = None) -> None:
    """Take known factors into `state` in place, for rows [B] bool or all; a row with nothing valid keeps its bits."""
    held = pending(known)
    filled = held.valid.any(1)
    _fold(state, held, filled if rows is None else filled & rows)


def absorb(state: Tensor, known: Known | None, fold: Fold) -> Pending | None:
    """Fold the rows that ask for it into `state`; what stays pending is returned, or None where nothing can."""
    if known is None:
        return None
    held = pending(known)
    if fold is None or fold is False or (fold is not True and settled(fold, False)):
        return held
    _fold(state, held, held.valid.any(1) & fold)
    if fold is True or settled(fold, True):
        return None
    return Pending(held.factors, held.valid & ~fold[:, None], held.total.masked_fill(fold[:, None], 0.0))


def start_state(state: Tensor, known: Known | None, fold: Fold) -> tuple[Tensor, Tensor | None]:
    """What a walk starts from: the committed state with everything known applied, and the decay it stands at.

    Returns:
        (S [B, HV, V, K], which is `state` itself where nothing is pending: do not write into it;
        G of the newest pending factor [B, HV] float64, or None for zero).
    """
    held = absorb(state, known, fold)
    if held is None:
        return state, None
    weight = weights(held.total, held.factors.decay, held.valid)
    return add_factors(state.clone(), held.factors, weight, held.total.float().exp()), held.total


def _fold(state: Tensor, held: Pending, rows: Tensor) -> None:
    weight = weights(held.total, held.factors.decay, held.valid)
    write_rows(state, held.factors, weight, held.total.float().exp(), rows)
