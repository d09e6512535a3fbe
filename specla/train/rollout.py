"""The drafter as it will be used, from every position of a text at once, differentiable.

A draft that starts at position i has read true hidden states up to i: its first step. Every further step reads the
hidden state that the step before predicted, and leaves the state of its first step alone but for its own drafts. So a
step at depth s needs, for each start i, reads of the state S_i after the true token i, with a key and a query of its
own, and the corrections of the s - 2 drafts between:

    u_s = b (v - exp(G_s) S_i k_s - sum_{2 <= j < s} exp(G_s - G_j) (k_s . k_j) u_j)
    o_s = exp(G_s) S_i q_s + sum_{2 <= j <= s} exp(G_s - G_j) (q_s . k_j) u_j        G_s = g_2 + ... + g_s

The reads of all S_i are one causal linear attention over the corrections of the true pass, in chunks: no state is ever
stored per position, and the rollout is the drafter's decode exactly.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specla.models.drafter import AlignedNet
from specla.ops.types import NodeInputs

CHUNK = 64


@dataclass(frozen=True)
class TrueStates:
    """The states S_i after every token of a text, as what reads them needs it; in chunks of C tokens.

    Attributes:
        k: [B, H, N, C, K] keys.
        u: [B, H, N, C, V] corrections.
        sums: [B, H, N, C] float32, G within the chunk.
        ratio: [B, H, N, C, C], exp(G_i - G_j) on and below the diagonal, else 0.
        starts: [B, H, N, V, K], the state before each chunk.
        tokens: T, without padding.
    """

    k: Tensor
    u: Tensor
    sums: Tensor
    ratio: Tensor
    starts: Tensor
    tokens: int

    @classmethod
    def of(cls, inputs: NodeInputs) -> "TrueStates":
        """Run the delta rule over a text from the empty state; inputs [B, T, H, ...]."""
        tokens = inputs.k.shape[1]
        k, v = _chunks(inputs.k), _chunks(inputs.v)
        g, beta = _chunks(inputs.g[..., None])[..., 0], _chunks(inputs.beta[..., None])
        sums = g.double().cumsum(-1)
        place = torch.arange(k.shape[-2], device=k.device)
        causal = place[:, None] >= place
        ratio = torch.where(causal, sums[..., :, None] - sums[..., None, :], -torch.inf).float().exp()
        strict = beta * ratio * (k @ k.mT)
        wide = sums.float().exp()[..., None] * k
        solved = torch.linalg.solve_triangular(strict, beta * torch.cat((v, wide), -1), upper=False, unitriangular=True)
        free, w = solved.split((v.shape[-1], k.shape[-1]), dim=-1)
        to_end = (sums[..., -1:] - sums).float().exp()[..., None] * k
        whole = sums[..., -1].float().exp()[..., None, None]
        state = k.new_zeros(*k.shape[:2], v.shape[-1], k.shape[-1])
        starts, corrections = [], []
        for i in range(k.shape[2]):
            u = free[:, :, i] - w[:, :, i] @ state.mT
            starts.append(state)
            corrections.append(u)
            state = whole[:, :, i] * state + u.mT @ to_end[:, :, i]
        return cls(k, torch.stack(corrections, 2), sums.float(), ratio, torch.stack(starts, 2), tokens)

    def read(self, x: Tensor) -> Tensor:
        """S_i x_i for every token: x [B, T, H, K] -> [B, T, H, V] float32."""
        x = _chunks(x)
        out = self.sums.exp()[..., None] * (x @ self.starts.mT) + (self.ratio * (x @ self.k.mT)) @ self.u
        return out.flatten(2, 3)[:, :, : self.tokens].transpose(1, 2)


def _chunks(x: Tensor) -> Tensor:
    """[B, T, H, D] -> float32 [B, H, N, C, D], padded with zeros, which change nothing."""
    batch, tokens, heads, size = x.shape
    chunk = min(CHUNK, tokens)
    x = F.pad(x.float().transpose(1, 2), (0, 0, 0, -tokens % chunk))
    return x.reshape(batch, heads, -1, chunk, size)


def rollout(net: AlignedNet, hidden: Tensor, embedded: Tensor, depth: int) -> list[Tensor]:
    """Draft `depth` steps from every position of a text, each on the text's own tokens.

    Args:
        net: not packed.
        hidden: [B, T, hidden], the target's hidden states of the text's tokens.
        embedded: [B, T, hidden], the tokens embedded.
        depth: steps, at least 1.

    Returns:
        one tensor a step s = 1, 2, ...: predictions [B, T - depth, hidden] of the hidden state s places further on.
    """
    attn, length = net.block.attn, hidden.shape[1] - depth
    weight, _ = attn._conv_weights()
    taps: list[Tensor] = []
    below = _Drafts(None)
    predicted, out = hidden[:, :length], []
    for step in range(1, depth + 1):
        entered = net.enter(predicted, embedded[:, step : step + length])
        raw, gate, a, b = attn.project(net.block.attn_norm(entered))
        # Newest first: the drafts so far, then the true inputs backwards from the start.
        taps = [raw, *taps] if taps else [F.pad(raw, (0, 0, j, 0))[:, :length] for j in range(weight.shape[1])]
        wide, newest = weight.float().flip(-1), taps[: weight.shape[1]]
        mixed = sum(tap.float() * wide[:, j] for j, tap in enumerate(newest))
        assert isinstance(mixed, Tensor)
        inputs = attn.delta_inputs(F.silu(mixed).to(raw.dtype), a, b)
        # Mixed precision must not round the state.
        with torch.autocast(hidden.device.type, enabled=False):
            if step == 1:
                states = TrueStates.of(inputs)
                delta, below = states.read(inputs.q), _Drafts(states)
            else:
                delta = below.add(inputs)
        mixer = attn.finish(delta, gate, entered.dtype)
        predicted = net.leave(entered + mixer)
        out.append(predicted)
    return out


class _Drafts:
    """The drafts of every start so far, on top of the state of its first step."""

    def __init__(self, states: TrueStates | None) -> None:
        self.states = states
        self.k: list[Tensor] = []
        self.u: list[Tensor] = []
        self.sums: list[Tensor] = []

    def add(self, inputs: NodeInputs) -> Tensor:
        """One more draft for every start; returns its outputs [B, T, H, V] float32."""
        assert self.states is not None
        q, k, v = inputs.q.float(), inputs.k.float(), inputs.v.float()
        sums = inputs.g + self.sums[-1] if self.sums else inputs.g
        decay = sums.exp()[..., None]
        read, out = decay * self.states.read(k), decay * self.states.read(q)
        for k_j, u_j, sums_j in zip(self.k, self.u, self.sums, strict=True):
            ratio = (sums - sums_j).exp()
            read = read + (ratio * (k * k_j).sum(-1))[..., None] * u_j
            out = out + (ratio * (q * k_j).sum(-1))[..., None] * u_j
        u = inputs.beta[..., None] * (v - read)
        self.k, self.u, self.sums = [*self.k, k], [*self.u, u], [*self.sums, sums]
        return out + (q * k).sum(-1, keepdim=True) * u
