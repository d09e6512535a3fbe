"""Teacher-forced autoregressive decoding: what the target thinks of a text that something else emitted."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specla.engine.decode import Prefilled, tree_tensors
from specla.engine.recovery import EngineRecovery
from specla.interrupt import check
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops.sampling import Sampling, scores
from specla.ops.verify import get_verify
from specla.topology import chain

NUCLEUS_SLACK = 1e-5
"""Mass by which the nucleus of a forced pass is wider than top_p: a token on its edge is a tie, not an error."""


@dataclass(frozen=True)
class ForcedScores:
    """One row's text under the target, position by position, the prefill's token left out.

    Attributes:
        choice: the target's token, its argmax.
        margin: the best score minus the emitted token's; 0 where the two tie, inf outside the nucleus.
        scale: the largest finite score in magnitude, to which rounding is relative.
    """

    choice: list[int]
    margin: list[float]
    scale: list[float]


@torch.inference_mode()
def forced_scores(
    model: GatedDeltaNetLM, start: Prefilled, emitted: Sequence[Sequence[int]], sampling: Sampling
) -> list[ForcedScores]:
    """Run AR over emitted texts, a row each, the prefill's token first; the state of `start` is not written."""
    state = start.state.clone()
    recovery = EngineRecovery("factors", model, state, longest=1)
    tree, verify = tree_tensors(chain(0), model.device, model.config.conv_size), get_verify("ar")
    longest = max(len(tokens) for tokens in emitted)
    padded = torch.tensor([[*tokens, *[0] * (longest - len(tokens))] for tokens in emitted], device=model.device)
    path, one = torch.zeros_like(padded[:, :1]), torch.ones_like(padded[:, 0])
    found = [ForcedScores([], [], []) for _ in emitted]
    for place in range(longest - 1):
        check()
        hidden, records = model.forward_nodes(padded[:, place : place + 1], tree, recovery.layers(), verify)
        score = scores(model.logits(hidden[:, 0]), sampling, start.rows, state.lengths + 1, NUCLEUS_SLACK)
        recovery.commit(records, path, one)
        state.lengths += 1
        choice = score.argmax(-1)
        margin = score.amax(-1) - score.gather(1, padded[:, place + 1, None])[:, 0]
        scale = score.masked_fill(score.isinf(), 0.0).abs().amax(-1)
        for row, tokens in enumerate(emitted):
            if place + 1 < len(tokens):
                found[row].choice.append(int(choice[row]))
                found[row].margin.append(margin[row].item())
                found[row].scale.append(scale[row].item())
    return found
