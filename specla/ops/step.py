"""The decode step of the delta rule: what one token reads, and what it writes."""

import torch
from torch import Tensor

from specla.ops.rows import settled
from specla.ops.types import NodeInputs


def read_step(state: Tensor, inputs: NodeInputs) -> tuple[Tensor, Tensor]:
    """Output and correction of one token (T = 1), from the state before it, which is not written.

    Returns:
        (out, u), both [B, HV, V] float32.
    """
    q, k, v, g, beta = inputs
    batch, _, heads, key_size = k.shape
    value_heads, value_size = v.shape[2:]
    # n key heads over all rows, each with its value heads beside each other: one product reads S for k and q.
    n = batch * heads
    rows = torch.cat((k, q), dim=1).float().transpose(1, 2).reshape(n, 2, key_size)
    read_k, read_q = torch.bmm(rows, state.view(n, -1, key_size).mT).view(n, 2, -1, value_size).unbind(1)
    keep = g.exp().view(n, -1, 1)
    u = torch.addcmul(v.float().reshape(n, -1, value_size), keep, read_k, value=-1).mul_(beta.reshape(n, -1, 1))
    key, query = rows.unbind(1)
    out = torch.addcmul(keep * read_q, (key * query).sum(-1).view(n, 1, 1), u)
    shape = (batch, value_heads, value_size)
    return out.view(shape), u.view(shape)


def write_step(state: Tensor, inputs: NodeInputs, u: Tensor, rows: Tensor | None = None) -> None:
    """S <- exp(g) S + u k^T in place, for rows [B] bool or all; every other row keeps its bits."""
    batch, _, heads, key_size = inputs.k.shape
    keep = inputs.g[:, 0].exp()[..., None, None]
    written = state if rows is None or settled(rows, True) else state.clone()
    written.mul_(keep)
    grouped = written.view(batch, heads, -1, key_size)
    grouped.addcmul_(u.reshape(batch, heads, -1, 1), inputs.k[:, 0, :, None].float())
    if rows is not None and written is not state:
        torch.where(rows[:, None, None, None], written, state, out=state)
