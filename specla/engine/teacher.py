"""Teacher-forced autoregressive decoding: what the target thinks of a text that something else emitted.

The pass takes AR's own steps, so AR's text is its choice everywhere, whatever dtype, sampling or model. Another text
may leave the choice where rounding could have: how far that reaches is measured on this text (`rounding.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specla.engine.decode import Prefilled, tree_tensors
from specla.engine.graph import CudaGraphs, Run
from specla.engine.recovery import EngineRecovery
from specla.engine.rounding import CANDIDATES, Candidates, score_noise
from specla.interrupt import check
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops.sampling import Sampling, choose, nucleus_within, scores
from specla.ops.verify import get_verify
from specla.topology import chain

NEAR_TIE_NOISES = 8.0
"""A token is a near tie within so many times the noise of a score.

Of models of 2 to 24 layers in three dtypes, calm and chaotic ones, verified as chains and trees by every strategy, no
score of the best eight moved by more than 7.5 times its noise against another, and 99 % by less than 4
(tests/bench/test_gate_bounds.py measures it again).
"""


@dataclass(frozen=True)
class ForcedScores:
    """One row's text under the target, position by position, the prefill's token left out.

    Attributes:
        choice: the target's token, by AR's own rule.
        margin: the best score minus the emitted token's; 0 where the token is the choice, inf outside the nucleus.
        bound: how far below the best a token may score; 0 in a text that is the target's own.
    """

    choice: list[int]
    margin: list[float]
    bound: list[float]


@torch.inference_mode()
def forced_scores(
    model: GatedDeltaNetLM, start: Prefilled, emitted: Sequence[Sequence[int]], sampling: Sampling
) -> list[ForcedScores]:
    """Run AR over emitted texts, a row each, the prefill's token first; the state of `start` is not written.

    On a GPU one step is captured and replayed: its place in the texts is on the device.
    """
    texts = _Texts(model, start, emitted, sampling)
    seen = _Seen(texts)
    texts.walk(seen.look)
    margin = torch.where(seen.differs, seen.margin, 0.0)
    bound = torch.zeros_like(margin)
    if seen.differs.any():
        noise = score_noise(model, start, texts.tokens, texts.valid, seen.candidates, sampling)
        bound = NEAR_TIE_NOISES * noise
        if not sampling.greedy and sampling.top_p < 1.0:
            # Whether a token may be in the nucleus takes the bound, which the first pass has just measured.
            edge = _Edge(texts, bound)
            texts.walk(edge.look)
            margin = torch.where(seen.differs, edge.margin, 0.0)
    rows = zip(emitted, seen.choice.tolist(), margin.tolist(), bound.tolist(), strict=True)
    return [ForcedScores(*(part[1 : len(tokens)] for part in parts)) for tokens, *parts in rows]


Look = Callable[[Tensor, Tensor, Tensor], None]
"""Called at every place with the logits [B, V] and the position [B], prompt included, of its token, and the place."""


class _Texts:
    """Texts of one batch, and AR's steps over them."""

    def __init__(
        self, model: GatedDeltaNetLM, start: Prefilled, emitted: Sequence[Sequence[int]], sampling: Sampling
    ) -> None:
        self.model, self.start, self.sampling = model, start, sampling
        longest = max(len(tokens) for tokens in emitted)
        self.places = longest - 1
        padded = [[*tokens, *[0] * (longest - len(tokens))] for tokens in emitted]
        self.tokens = torch.tensor(padded, device=model.device)
        """[B, places + 1] int64, padded on the right."""
        lengths = torch.tensor([len(tokens) for tokens in emitted], device=model.device)
        self.valid = torch.arange(longest, device=model.device) < lengths[:, None]
        self.valid[:, 0] = False
        """[B, places + 1], where a token is to be judged."""

    def walk(self, look: Look) -> None:
        """Take AR's step at every position; nothing is read back."""
        state = self.start.state.clone()
        recovery = EngineRecovery("factors", self.model, state, longest=1)
        tree = tree_tensors(chain(0), self.model.device, self.model.config.conv_size)
        verify, place = get_verify("ar"), torch.zeros_like(self.tokens[:1, 0])

        def step() -> None:
            tokens = self.tokens.index_select(1, place)
            hidden, records = self.model.forward_nodes(tokens, tree, recovery.layers(), verify)
            logits = self.model.logits(hidden[:, 0])
            recovery.commit(records, torch.zeros_like(tokens), torch.ones_like(tokens[:, 0]))
            state.lengths += 1
            place.add_(1)
            look(logits, state.lengths, place)

        graphs, run = None, step
        if self.model.device.type == "cuda" and self.places > 1:
            graphs = CudaGraphs(self.model.device)
            graphs.aside(step, 1)
            replay: Run = graphs.capture(step)
            state.copy_(self.start.state)
            place.zero_()
            run = replay  # type: ignore[assignment]
        for _ in range(self.places):
            check()
            run()
        if graphs is not None:
            torch.cuda.synchronize(self.model.device)
            graphs.release()


class _Seen:
    """What the target chooses, how far below it the text scores, and the candidates that rounding could confuse."""

    def __init__(self, texts: _Texts) -> None:
        tokens, vocabulary = texts.tokens, texts.model.config.vocab_size
        self._texts, few = texts, min(CANDIDATES, vocabulary)
        self.choice = torch.zeros_like(tokens)
        self.margin = torch.zeros(tokens.shape, device=tokens.device)
        ids = tokens.new_zeros(*tokens.shape, few + 1)
        self.candidates = Candidates(ids, torch.zeros(ids.shape, device=tokens.device))

    @property
    def differs(self) -> Tensor:
        """[B, places + 1], where the text leaves the target's choice."""
        return self._texts.valid & (self.choice != self._texts.tokens)

    def look(self, logits: Tensor, positions: Tensor, place: Tensor) -> None:
        """One position."""
        sampling, rows = self._texts.sampling, self._texts.start.rows
        score = scores(logits, sampling, rows, positions)
        token = self._texts.tokens.index_select(1, place)
        best = score.topk(self.candidates.ids.shape[-1] - 1, dim=-1)
        # `choose` may look at values, which no capture allows; its choice is the argmax of the scores.
        chosen = score.argmax(-1) if logits.is_cuda else choose(logits, sampling, rows, positions)
        # The best first, the emitted token last: both are judged by how their logits move against each other.
        ids = torch.cat((chosen[:, None], best.indices[:, 1:], token), dim=-1)
        self.choice.index_copy_(1, place, chosen[:, None])
        self.margin.index_copy_(1, place, best.values[:, :1] - score.gather(1, token))
        self.candidates.ids.index_copy_(1, place, ids[:, None])
        self.candidates.logits.index_copy_(1, place, logits.float().gather(1, ids)[:, None])


class _Edge:
    """Margins where the nucleus has an edge: against tokens that are certainly inside, of one that may be."""

    def __init__(self, texts: _Texts, bound: Tensor) -> None:
        self._texts, self._bound = texts, bound
        self.margin = torch.zeros_like(bound)

    def look(self, logits: Tensor, positions: Tensor, place: Tensor) -> None:
        """One position."""
        sampling = self._texts.sampling
        score = scores(logits, replace(sampling, top_p=1.0), self._texts.start.rows, positions)
        certain, possible = nucleus_within(logits, sampling, self._bound.index_select(1, place))
        token = self._texts.tokens.index_select(1, place)
        best = score.masked_fill(~certain, -torch.inf).amax(-1, keepdim=True)
        own = score.masked_fill(~possible, -torch.inf).gather(1, token)
        self.margin.index_copy_(1, place, (best - own).nan_to_num(torch.inf, torch.inf).clamp(min=0.0))
