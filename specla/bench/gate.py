"""The losslessness gate: before any speedup is shown, the emitted text must be the target's own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specla.bench.record import Lossless
from specla.engine.decode import Prefilled
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
) -> GateResult:
    """Compare emitted texts, a row each, with AR's; where they differ, the target itself judges, teacher-forced."""
    positions = sum(len(tokens) - 1 for tokens in emitted)
    if all(list(a) == list(b) for a, b in zip(emitted, reference, strict=True)):
        return GateResult(Lossless.EXACT, 0, positions)
    bound = NEAR_TIE_EPSILONS[model.dtype] * torch.finfo(model.dtype).eps
    ties = 0
    for row, forced in enumerate(forced_scores(model, start, emitted, sampling)):
        reason, found = _judge_row(forced, list(emitted[row]), list(reference[row]), bound)
        ties += found
        if reason:
            return GateResult(Lossless.FAILED, ties, positions, f"row {row}, {reason}")
    return GateResult(Lossless.NEAR_TIE, ties, positions)


def _judge_row(forced: ForcedScores, emitted: list[int], reference: list[int], bound: float) -> tuple[str, int]:
    """(why the row fails or an empty string, near ties in it); a row may leave AR's text at a near tie alone."""
    if emitted[:1] != reference[:1]:
        return "token 0: is not the one that the shared prefill gave", 0
    ties = 0
    for place, (margin, scale) in enumerate(zip(forced.margin, forced.scale, strict=True), start=1):
        allowed = bound * max(1.0, scale)
        if margin > allowed:
            return f"token {place}: scores {margin:.3g} below the target's choice, the bound is {allowed:.3g}", ties
        ties += margin > 0
    if not ties and emitted != reference:
        return f"{len(emitted)} tokens where AR emits {len(reference)}, with no near tie to part them", 0
    return "", ties
