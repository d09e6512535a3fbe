"""Teacher-forced autoregressive decoding: what the target thinks of a text that something else emitted."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specla.engine.decode import Prefilled, tree_tensors
from specla.engine.graph import CudaGraphs, Run
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
    """Run AR over emitted texts, a row each, the prefill's token first; the state of `start` is not written.

    On a GPU one step is captured and replayed: its place in the texts is on the device.
    """
    forced = _Forced(model, start, emitted, sampling)
    graphs = CudaGraphs(model.device) if model.device.type == "cuda" else None
    step: Run = forced.step
    if graphs is not None and forced.places > 1:
        graphs.aside(step, 1)
        replay = graphs.capture(step)
        forced.rewind()
        step = replay
    for _ in range(forced.places):
        check()
        step()
    found = forced.found()
    if graphs is not None:
        graphs.release()
    return found


class _Forced:
    """AR over given texts, position by position."""

    def __init__(
        self, model: GatedDeltaNetLM, start: Prefilled, emitted: Sequence[Sequence[int]], sampling: Sampling
    ) -> None:
        self.model, self.start, self.emitted, self.sampling = model, start, emitted, sampling
        self.state = start.state.clone()
        self.recovery = EngineRecovery("factors", model, self.state, longest=1)
        self.tree, self.verify = tree_tensors(chain(0), model.device, model.config.conv_size), get_verify("ar")
        longest = max(len(tokens) for tokens in emitted)
        self.places = longest - 1
        self.texts = torch.tensor([[*tokens, *[0] * (longest - len(tokens))] for tokens in emitted]).to(model.device)
        self.choice = torch.zeros_like(self.texts)
        self.margin, self.scale = (torch.zeros(self.texts.shape, device=model.device) for _ in range(2))
        self.place = torch.zeros_like(self.texts[:1, 0])

    def rewind(self) -> None:
        """Back to the beginning."""
        self.state.copy_(self.start.state)
        self.place.zero_()

    def step(self) -> None:
        """One position: nothing is read back."""
        tokens = self.texts.index_select(1, self.place)
        hidden, records = self.model.forward_nodes(tokens, self.tree, self.recovery.layers(), self.verify)
        logits = self.model.logits(hidden[:, 0])
        score = scores(logits, self.sampling, self.start.rows, self.state.lengths + 1, NUCLEUS_SLACK)
        self.recovery.commit(records, torch.zeros_like(tokens), torch.ones_like(tokens[:, 0]))
        self.state.lengths += 1
        self.place += 1
        token = self.texts.index_select(1, self.place)
        best = score.amax(-1, keepdim=True)
        self.choice.index_copy_(1, self.place, score.argmax(-1, keepdim=True))
        self.margin.index_copy_(1, self.place, best - score.gather(1, token))
        self.scale.index_copy_(1, self.place, score.masked_fill(score.isinf(), 0.0).abs().amax(-1, keepdim=True))

    def found(self) -> list[ForcedScores]:
        """What was seen, as far as every text goes."""
        parts = (self.choice.tolist(), self.margin.tolist(), self.scale.tolist())
        rows = zip(self.emitted, *parts, strict=True)
        return [ForcedScores(*(part[1 : len(tokens)] for part in row)) for tokens, *row in rows]
