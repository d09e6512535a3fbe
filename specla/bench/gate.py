"""The losslessness gate: before any speedup is shown, the emitted text must be the target's own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specla.bench.record import Lossless
from specla.engine.decode import Prefilled, StopRule
from specla.engine.teacher import ForcedScores, forced_scores
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops.sampling import Sampling

NEAR_TIE_EPSILONS: dict[torch.dtype, float] = {torch.float32: 64.0, torch.bfloat16: 4.0, torch.float16: 8.0}
"""A token is a near tie when it scores within this many machine epsilons, times the largest score, of the best.

Logits are rounded to the dtype once, and the state of a recurrent model carries the rounding of every step before: a
few epsilons in 16 bits, where the logits' own rounding rules, and a few dozen in float32, where accumulation does.
"""


@dataclass(frozen=True)
class GateResult:
    """What the gate found over some texts.

    Attributes:
        lossless: exact where every token is AR's; near_tie where some differ within the bound; else failed.
        near_ties: positions within the bound that are not the argmax.
        positions: positions compared.
        reason: where and by how much the gate failed; empty otherwise.
    """

    lossless: Lossless
    near_ties: int
    positions: int
    reason: str = ""

    def __add__(self, other: "GateResult") -> "GateResult":
        order = (Lossless.EXACT, Lossless.NEAR_TIE, Lossless.FAILED)
        worst = max(self.lossless, other.lossless, key=order.index)
        return GateResult(
            worst, self.near_ties + other.near_ties, self.positions + other.positions, self.reason or other.reason
        )


def check_texts(
    model: GatedDeltaNetLM,
    start: Prefilled,
    emitted: Sequence[Sequence[int]],
    reference: Sequence[Sequence[int]],
    sampling: Sampling,
    stop: StopRule,
) -> GateResult:
    """Compare emitted texts, a row each, with AR's; where they differ, the target itself judges, teacher-forced.

    Args:
        model, start, sampling: what the texts were decoded with.
        emitted: whole texts, the prefill's token first.
        reference: AR's.
        stop: that ended both.
    """
    positions = sum(len(tokens) - 1 for tokens in emitted)
    if all(list(a) == list(b) for a, b in zip(emitted, reference, strict=True)):
        return GateResult(Lossless.EXACT, 0, positions)
    for row, text in enumerate(emitted):
        tokens, reason = list(text), ""
        if tokens[:1] != list(reference[row])[:1]:
            reason = "token 0: is not the one that the shared prefill gave"
        elif stop.cut(tokens, 0) != (tokens, True):
            reason = f"{len(tokens)} tokens: the text does not end where the stop rule ends it"
        if reason:
            return GateResult(Lossless.FAILED, 0, positions, f"row {row}, {reason}")
    return judge_texts(model, start, emitted, sampling)


def judge_texts(
    model: GatedDeltaNetLM, start: Prefilled, emitted: Sequence[Sequence[int]], sampling: Sampling
) -> GateResult:
    """Have the target judge texts, teacher-forced, a row each, wherever they end: see `check_texts`."""
    positions = sum(len(tokens) - 1 for tokens in emitted)
    bound = NEAR_TIE_EPSILONS[model.dtype] * torch.finfo(model.dtype).eps
    ties = 0
    for row, forced in enumerate(forced_scores(model, start, emitted, sampling)):
        reason, found = _judge_row(forced, list(emitted[row]), bound)
        ties += found
        if reason:
            return GateResult(Lossless.FAILED, ties, positions, f"row {row}, {reason}")
    return GateResult(Lossless.NEAR_TIE, ties, positions)


def _judge_row(forced: ForcedScores, tokens: list[int], bound: float) -> tuple[str, int]:
    """(why the tokens fail or an empty string, near ties in them): they may leave the argmax at a near tie alone."""
    ties = 0
    judged = zip(tokens[1:], forced.choice, forced.margin, forced.scale, strict=True)
    for place, (token, choice, margin, scale) in enumerate(judged, start=1):
        allowed = bound * max(1.0, scale)
        # Written so that a margin that is no number fails.
        if token != choice and not margin <= allowed:
            return f"token {place}: scores {margin:.3g} below the target's choice, the bound is {allowed:.3g}", ties
        ties += token != choice
    return "", ties
