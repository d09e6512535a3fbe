"""Choosing tokens: every choice is an argmax of a score, so that speculation has nothing to reject and resample.

Greedy scores are the logits. Sampling scores are `log p + Gumbel noise`, with p after temperature and top-p: their
argmax is distributed as p (the Gumbel-max trick), and the noise is shared between drafter and target.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specla.ops.noise import gumbel_noise, gumbel_noise_at

_FEW = 256
"""Tokens among which a nucleus is looked for first."""
_SUM_ROUNDINGS = 64
"""Of a softmax and its exponentials, in units of float32's rounding."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Attributes:
        temperature: 0 is greedy.
        top_p: the smallest set of most probable tokens that reaches this mass is kept; 1 keeps all.
        seed: of the noise.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        """Whether the choice needs no noise."""
        return self.temperature == 0.0


def log_probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """log p after temperature and top-p, in float32; tokens outside the nucleus are -inf.

    Args:
        logits: [..., vocabulary].
        sampling: with a temperature above 0.
    """
    log_p = torch.log_softmax(logits.float() / sampling.temperature, dim=-1)
    if sampling.top_p >= 1.0:
        return log_p
    ordered, order = log_p.sort(dim=-1, descending=True, stable=True)
    probability = ordered.exp()
    # A token stays when the mass before it has not reached top_p yet: so the first always stays.
    outside = probability.cumsum(-1) - probability >= sampling.top_p
    return log_p.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), -torch.inf)


def nucleus_within(logits: Tensor, sampling: Sampling, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Which tokens are inside the nucleus wherever rounding moves the logits, and which are inside somewhere.

    Where differences of log p move by at most `bound`, only tokens within it change ranks, and the odds of the mass
    before a token change by at most a factor of exp(bound). Float32 sums of n probabilities add up to n roundings.

    Args:
        logits: [..., vocabulary].
        sampling: with a temperature above 0.
        bound: [..., 1] float32, 0 or more.

    Returns:
        (certain, possible), both [..., vocabulary] bool; the first is part of the second.
    """
    log_p = torch.log_softmax(logits.double() / sampling.temperature, dim=-1)
    ordered = log_p.sort(dim=-1, descending=True).values
    mass = F.pad(ordered.exp().cumsum(-1), (1, 0)).clamp(max=1.0)
    above = torch.searchsorted(-ordered, -(log_p + bound))
    near = torch.searchsorted(-ordered, -(log_p - bound), right=True)
    least, most = mass.gather(-1, above), (mass.gather(-1, near) - log_p.exp()).clamp(min=0.0)
    least, most = torch.sigmoid(torch.logit(least) - bound), torch.sigmoid(torch.logit(most) + bound)
    rounding = (near + _SUM_ROUNDINGS) * 2.0**-24
    return most + rounding < sampling.top_p, least - rounding < sampling.top_p


def scores(logits: Tensor, sampling: Sampling, rows: Tensor, positions: Tensor) -> Tensor:
    """The scores whose argmax is the token.

    Args:
        logits: [..., vocabulary].
        rows, positions: [...] int64, of the token to be chosen.

    Returns:
        [..., vocabulary] float32.
    """
    if sampling.greedy:
        return logits.float()
    noise = gumbel_noise(sampling.seed, rows, positions, logits.shape[-1])
    return log_probabilities(logits, sampling) + noise


def choose(logits: Tensor, sampling: Sampling, rows: Tensor, positions: Tensor) -> Tensor:
    """The token of each position, [...] int64, from logits [..., vocabulary]."""
    if sampling.greedy:
        # On a CPU this takes a third of argmax's time, and finds the first of equals too.
        return logits.max(-1).indices
    found = _choose_among_few(logits, sampling, rows, positions)
    return scores(logits, sampling, rows, positions).argmax(-1) if found is None else found


def _choose_among_few(logits: Tensor, sampling: Sampling, rows: Tensor, positions: Tensor) -> Tensor | None:
    """The same choice without sorting the vocabulary, where a few tokens hold the whole nucleus; else None.

    It looks at the values, so it is for a CPU: on a device that would wait for the host.
    """
    if sampling.top_p >= 1.0 or logits.device.type != "cpu" or logits.shape[-1] <= _FEW:
        return None
    log_p, tokens = torch.log_softmax(logits.float() / sampling.temperature, dim=-1).topk(_FEW, dim=-1)
    # Equal tokens in index order, as a stable sort of the vocabulary has them: topk promises no order among them.
    tokens, by_index = tokens.sort(dim=-1)
    log_p, order = log_p.gather(-1, by_index).sort(dim=-1, descending=True, stable=True)
    tokens = tokens.gather(-1, order)
    probability = log_p.exp()
    outside = probability.cumsum(-1) - probability >= sampling.top_p
    # A token as probable as the last of the few may have been left out for it: then the whole order counts.
    if not (outside | (log_p > log_p[..., -1:])).all():
        return None
    noise = gumbel_noise_at(sampling.seed, rows, positions, tokens)
    best = (log_p + noise).masked_fill(outside, -torch.inf).argmax(-1, keepdim=True)
    return tokens.gather(-1, best)[..., 0]
