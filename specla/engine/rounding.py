"""How much of a score is rounding: the target runs a text once more, all at once and in float32.

A strategy that is right differs from AR in the order of its sums and in what it rounds, and so does this pass:
products of many rows, the delta rule in chunks, and in 16 bits nothing rounded between the layers. What a score moves
by, against the best, is the noise that a right strategy may have too. It comes from the target alone, so that no fault
of a strategy can widen its own bound; and it follows dtype, depth, weights and text, where a fixed number of machine
epsilons is too wide for one model and too narrow for the next.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from specla.engine.decode import Prefilled
from specla.interrupt import check
from specla.models.block import Block
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.records import LayerState
from specla.ops.norm import rms_norm
from specla.ops.sampling import Sampling

CANDIDATES = 8
"""Tokens of the best scores at a position, on which noise is measured."""
_WEIGHTS_AT_ONCE = 1 << 26
"""Elements of the head's rows that are gathered together: 256 MB in float32."""


_GUMBEL_MOST = 17.0
"""The largest noise of a token: -log(-log(1 - 2^-24)), rounded up."""


class Candidates(NamedTuple):
    """Tokens that are compared at every place of a text.

    Attributes:
        ids: [B, S, k] int64, the target's choice first.
        logits: [B, S, k] float32, as AR's step computes them.
    """

    ids: Tensor
    logits: Tensor


@torch.inference_mode()
def score_noise(
    model: GatedDeltaNetLM,
    start: Prefilled,
    tokens: Tensor,
    valid: Tensor,
    candidates: Candidates,
    sampling: Sampling,
) -> Tensor:
    """What rounding does to the difference of two scores, at every place of some texts.

    The largest of: what the candidates at this place moved by, the root mean square of that over all places, and one
    place of the largest logit in the model's dtype, which a logit near a rounding boundary may move by at any time.

    Args:
        model, start: what the texts were decoded with.
        tokens: [B, S] int64, texts, the prefill's token first, padded on the right.
        valid: [B, S] bool, the places that count.
        candidates: of every place; those of place 0 are not looked at.
        sampling: scores are logits, or logits over the temperature plus noise.

    Returns:
        [B, S] float32.
    """
    wide = torch.zeros_like(candidates.logits)
    wide[:, 1:] = _wide_logits(model, start, tokens[:, :-1], candidates.ids[:, 1:])
    moved = (wide - wide[..., :1]) - (candidates.logits - candidates.logits[..., :1])
    moved = moved[..., 1:].abs() * valid[..., None]
    pooled = (moved.square().sum() / (valid.sum() * moved.shape[-1])).sqrt()
    largest = candidates.logits.abs().amax(-1)
    temperature = 1.0 if sampling.greedy else sampling.temperature
    noise = torch.maximum(moved.amax(-1), pooled).maximum(last_place(largest, model.dtype)) / temperature
    # The score itself is a float32, the noise of a token added to it.
    return noise.maximum(last_place(largest / temperature + _GUMBEL_MOST * (not sampling.greedy), torch.float32))


def last_place(x: Tensor, dtype: torch.dtype) -> Tensor:
    """What the last binary place of x, at least 0, is worth in a dtype."""
    return torch.finfo(dtype).eps * torch.exp2(torch.frexp(x).exponent.float() - 1)


def _wide_logits(model: GatedDeltaNetLM, start: Prefilled, tokens: Tensor, ids: Tensor) -> Tensor:
    """Logits [B, S, k] of the tokens `ids` after each of `tokens` [B, S], in float32."""
    hidden = _wide_hidden(model, start, tokens)
    head, batch = model.lm_head.weight, tokens.shape[0]
    span = max(1, _WEIGHTS_AT_ONCE // (batch * ids.shape[-1] * head.shape[-1]))
    parts = [
        (head[ids[:, at : at + span]].float() * hidden[:, at : at + span, None]).sum(-1)
        for at in range(0, tokens.shape[1], span)
    ]
    return torch.cat(parts, dim=1)


def _wide_hidden(model: GatedDeltaNetLM, start: Prefilled, tokens: Tensor) -> Tensor:
    """Hidden states [B, S, hidden] after the last norm; layers are widened one at a time, for the memory."""
    hidden = model.model.embeddings.weight[tokens].float()
    for i, block in enumerate(model.blocks):
        check()
        with torch.device("meta"):
            wide = Block(model.config)
        wide.load_state_dict({name: weight.float() for name, weight in block.state_dict().items()}, assign=True)
        before = LayerState(start.state.recurrent[i], start.state.window[i].float())
        hidden, _ = wide.sequence(hidden, before)
    return rms_norm(hidden, model.model.norm.weight.float(), model.config.norm_eps)
