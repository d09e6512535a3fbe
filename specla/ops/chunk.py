"""The gated delta rule over a sequence, in chunks: prefill, training, and the naive batched baseline.

Plain differentiable torch. Within a chunk the corrections of all tokens come from one unit-lower-triangular solve (the
UT transform of the delta rule); a loop over chunks carries the state.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_SIZE = 64
"""Tokens solved together."""


def chunk_gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None = None, chunk_size: int = CHUNK_SIZE
) -> tuple[Tensor, Tensor]:
    """Run the gated delta rule over T tokens.

    A token with `beta = 0` and `g = 0` leaves the state as it was: this is how padding is written.

    Args:
        q: [B, T, H, K], normalised and scaled.
        k: [B, T, H, K], normalised.
        v: [B, T, HV, V]; HV is a multiple of H, and HV / H value heads share one q and k.
        g: [B, T, HV] float32, log decay.
        beta: [B, T, HV] float32, write strength.
        state: [B, HV, V, K] float32, or None for zeros. It is not written.
        chunk_size: tokens solved together.

    Returns:
        (out [B, T, HV, V] float32, new state [B, HV, V, K] float32).
    """
    # Mixed-precision training must not round the state: inside, everything is float32.
    with torch.autocast(q.device.type, enabled=False):
        out, after = _run_chunks(q, k, v, g, beta, state, chunk_size, final_state=True)
    assert after is not None
    return out, after


def chunk_outputs(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None = None) -> Tensor:
    """The outputs of `chunk_gated_delta_rule` alone; the last update of the state, which nobody reads, is not run."""
    with torch.autocast(q.device.type, enabled=False):
        return _run_chunks(q, k, v, g, beta, state, CHUNK_SIZE, final_state=False)[0]


def _run_chunks(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None, chunk_size: int, final_state: bool
) -> tuple[Tensor, Tensor | None]:
    batch, tokens, heads, key_size = q.shape
    value_heads, value_size = v.shape[2:]
    chunk = min(chunk_size, tokens)
    q, k = (_chunked(_expand_heads(x, value_heads // heads), chunk) for x in (q, k))
    v, g, beta = _chunked(v, chunk), _chunked(g[..., None], chunk)[..., 0], _chunked(beta[..., None], chunk)
    # Float64: a difference of two large sums must keep the digits of the small one.
    sums = g.double().cumsum(-1)
    decay = sums.float()
    position = torch.arange(chunk, device=q.device)
    causal = position[:, None] >= position
    # Masked before the exponential: above the diagonal the difference is positive and could overflow.
    ratio = torch.where(causal, sums[..., :, None] - sums[..., None, :], -torch.inf).float().exp()
    strict = beta * ratio * (k @ k.mT)
    wide_k = decay.exp()[..., None] * k
    solved = torch.linalg.solve_triangular(
        strict, beta * torch.cat((v, wide_k), dim=-1), upper=False, unitriangular=True
    )
    u_free, w = solved.split((value_size, key_size), dim=-1)
    attention = ratio * (q @ k.mT)
    wide_q = decay.exp()[..., None] * q
    if state is None:
        state = q.new_zeros(batch, value_heads, value_size, key_size)
    outputs = []
    for i in range(q.shape[2]):
        u = u_free[:, :, i] - w[:, :, i] @ state.mT
        outputs.append(wide_q[:, :, i] @ state.mT + attention[:, :, i] @ u)
        if final_state or i + 1 < q.shape[2]:
            k_to_end = (sums[:, :, i, -1:] - sums[:, :, i]).float().exp()[..., None] * k[:, :, i]
            state = decay[:, :, i, -1, None, None].exp() * state + u.mT @ k_to_end
    out = torch.stack(outputs, dim=2).flatten(2, 3)[:, :, :tokens]
    return out.transpose(1, 2), state if final_state else None


def _expand_heads(x: Tensor, groups: int) -> Tensor:
    return x if groups == 1 else x.repeat_interleave(groups, dim=2)


def _chunked(x: Tensor, chunk: int) -> Tensor:
    """[B, T, heads, D] -> float32 [B, heads, chunks, chunk, D], padded at the end with tokens that change nothing."""
    batch, tokens, heads, size = x.shape
    x = F.pad(x.float().transpose(1, 2), (0, 0, 0, -tokens % chunk))
    return x.reshape(batch, heads, -1, chunk, size)
