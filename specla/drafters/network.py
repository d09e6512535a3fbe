"""The aligned drafter's compute: tensors of fixed shapes in, tensors out, no decision on the host.

Positions: the state holds the true inputs (h_{i}, x_{i+1}) of all tokens before the root x_n, that is up to i = n - 1,
whose output is the prediction of h_n. So the first draft needs the head alone, and every level below it runs the block
on what the level above predicted, leaving the state as it is.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from specla.models.drafter_checkpoint import TrainedDrafter
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops.conv import conv_places
from specla.ops.level import Above, Level, commit_line, committed, read_level
from specla.ops.linear import PackedLinear
from specla.ops.noise import gumbel_noise, gumbel_noise_at, is_kept
from specla.ops.rows import take_nodes
from specla.ops.sampling import Sampling, log_probabilities
from specla.ops.types import NodeInputs


@dataclass
class DrafterState:
    """What a drafter keeps between steps.

    Attributes:
        recurrent: [B, H, V, K] float32.
        window: [B, W-1, C], newest inputs of the convolution, oldest first.
        predicted: [B, hidden], the prediction of the root's hidden state.
    """

    recurrent: Tensor
    window: Tensor
    predicted: Tensor


class AlignedNetwork:
    """A drafter's own block with the embedding and the head of its target.

    Args:
        target: ready for inference.
        trained: for that target, of its dtype, on its device.
        vocabulary: how many of the most frequent tokens are drafted from; None takes the drafter's own number.
    """

    def __init__(self, target: GatedDeltaNetLM, trained: TrainedDrafter, vocabulary: int | None = None) -> None:
        self.target, self.net = target, trained.net.prepare()
        size = target.config.vocab_size
        count = min(vocabulary or trained.draft_vocabulary, size)
        self.ids = None if count == size else trained.order[:count].sort().values
        """[V'] int64, the tokens drafted from; None for all."""
        self._head = None if self.ids is None else PackedLinear(target.lm_head.weight[self.ids])

    def start(self, hidden: Tensor, tokens: Tensor, valid: Tensor | None) -> DrafterState:
        """The state after prompts.

        Args:
            hidden: [B, S, hidden], the target's, of the prompts' tokens; shorter prompts are padded on the left.
            tokens: [B, S] int64, the token after each: the last one is the root.
            valid: [B, S] bool, false on padding; None where every row is full.
        """
        block = self.net.block
        entered = self.net.enter(hidden, self.target.model.embeddings(tokens))
        mixed, state = block.attn.sequence(block.attn_norm(entered), None, valid)
        # Its own memory: it is written in place.
        predicted = self.net.leave((entered + mixed)[:, -1]).clone()
        return DrafterState(state.recurrent.contiguous(), state.window.contiguous(), predicted)

    def catch_up(self, state: DrafterState, hidden: Tensor, tokens: Tensor, length: Tensor) -> None:
        """Commit true inputs, in place; a row of length 0 stays as it is.

        Args:
            hidden: [B, L, hidden], the target's, of the tokens just committed, in order.
            tokens: [B, L] int64, the token after each: the last valid one is the row's root.
            length: [B] int64, how many of the L count.
        """
        attn, kept = self.net.block.attn, state.window.shape[1]
        at, places = _line(hidden.shape[1], kept + 1, hidden.device)
        entered = self._enter(hidden, tokens)
        raw, gate, a, b = attn.project(self.net.block.attn_norm(entered))
        seen = torch.cat((state.window, raw), dim=1)
        inputs = attn.delta_inputs(conv_places(seen, *attn._conv_weights(), places), a, b)
        # Replaced, not weighed by zero: what stands past a row's end may be NaN.
        past = (at >= length[:, None])[..., None]
        k, v = (x.masked_fill(past[..., None], 0.0) for x in (inputs.k, inputs.v))
        inputs = NodeInputs(inputs.q, k, v, *(x.masked_fill(past, 0.0) for x in (inputs.g, inputs.beta)))
        last = (length - 1).clamp_(min=0)
        out = commit_line(state.recurrent, inputs, last)
        state.window.copy_(take_nodes(seen, length[:, None] + at.new_tensor(range(kept))))
        # Only the last one's prediction is read.
        before = take_nodes(entered, last[:, None])
        mixed = before + attn.finish(out, None if gate is None else take_nodes(gate, last[:, None]), before.dtype)
        predicted = self.net.leave(mixed)[:, 0]
        state.predicted.copy_(torch.where((length > 0)[:, None], predicted, state.predicted))

    def scores(self, hidden: Tensor, sampling: Sampling, rows: Tensor, positions: Tensor) -> Tensor:
        """The scores of the tokens of `ids`, whose order is that of the drafts.

        Args:
            hidden: [B, M, hidden], predicted.
            rows, positions: [B, M] or [B, 1] int64, of the tokens to be drafted; read with a temperature alone.

        Returns:
            [B, M, V'] float32: logits, or log probabilities with the noise that the target will choose with.
        """
        logits = self.head(hidden)
        if sampling.greedy:
            return logits.float()
        return log_probabilities(logits, sampling) + self._noise(sampling.seed, rows, positions)

    def _noise(self, seed: int, rows: Tensor, positions: Tensor) -> Tensor:
        """The target's, of the tokens of `ids`."""
        if self.ids is not None and not is_kept(rows, positions):
            return gumbel_noise_at(seed, rows, positions, self.ids.expand(*rows.shape, -1))
        noise = gumbel_noise(seed, rows, positions, self.target.config.vocab_size)
        return noise if self.ids is None else noise[..., self.ids]

    def head(self, hidden: Tensor) -> Tensor:
        """hidden [..., hidden], predicted -> logits [..., V'] of the tokens of `ids`."""
        return self.target.logits(hidden) if self._head is None else self._head(hidden)

    def tokens(self, places: Tensor) -> Tensor:
        """Places among the V' scores as tokens."""
        return places if self.ids is None else self.ids[places]

    def descend(
        self, state: DrafterState, above: Above | None, hidden: Tensor, tokens: Tensor, level: Level
    ) -> tuple[Tensor, Above]:
        """Run one more level of drafts; the state is left alone.

        Args:
            above: the nodes that have run; None for none.
            hidden: [B, M, hidden], what their parents predicted of themselves: the hidden state before each new token.
            tokens: [B, M] int64, of the new nodes.
            level: where they stand.

        Returns:
            (their predictions [B, M, hidden], all nodes that have run, these last).
        """
        attn = self.net.block.attn
        above = committed(state.recurrent, state.window) if above is None else above
        entered = self._enter(hidden, tokens)
        raw, gate, a, b = attn.project(self.net.block.attn_norm(entered))
        seen = torch.cat((above.seen, raw), dim=1)
        inputs = attn.delta_inputs(conv_places(seen, *attn._conv_weights(), level.places), a, b)
        out, below = read_level(state.recurrent, inputs, above, level, seen)
        return self.net.leave(entered + attn.finish(out, gate, entered.dtype)), below

    def _enter(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        return self.net.enter(hidden, self.target.model.embeddings(tokens))


@lru_cache(maxsize=64)
def _line(length: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of consecutive tokens: their numbers [L], and what the convolution reads for each, [1, L, W], as in `Level`."""
    at = torch.arange(length, device=device)
    return at, (at[:, None] + torch.arange(width, device=device))[None]
