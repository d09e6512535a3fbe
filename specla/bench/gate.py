"""The losslessness gate: before any speedup is shown, the emitted text must be the target's own."""

from collections.abc import Sequence
from dataclasses import dataclass

from specla.bench.record import Lossless
from specla.engine.decode import Prefilled, StopRule
from specla.engine.teacher import ForcedScores, forced_scores
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops.sampling import Sampling


@dataclass(frozen=True)
class GateResult:
    """What the gate found over some texts.

    Attributes:
        lossless: exact where every token is AR's; near_tie where some differ within the bound; else failed.
        near_ties: positions within the bound that are not the argmax.
        positions: positions compared.
        reason: where and by how much the gate failed; empty otherwise.
        worst_tie: how far below the argmax the worst near tie scores, as a share of its bound; 0 without any.
    """

    lossless: Lossless
    near_ties: int
    positions: int
    reason: str = ""
    worst_tie: float = 0.0

    def __add__(self, other: "GateResult") -> "GateResult":
        order = (Lossless.EXACT, Lossless.NEAR_TIE, Lossless.FAILED)
        worst = max(self.lossless, other.lossless, key=order.index)
        return GateResult(
            worst,
            self.near_ties + other.near_ties,
            self.positions + other.positions,
            self.reason or other.reason,
            max(self.worst_tie, other.worst_tie),
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
    ties, worst = 0, 0.0
    for row, forced in enumerate(forced_scores(model, start, emitted, sampling)):
        reason, shares = _judge_row(forced, list(emitted[row]))
        ties, worst = ties + len(shares), max(worst, *shares, 0.0)
        if reason:
            return GateResult(Lossless.FAILED, ties, positions, f"row {row}, {reason}", worst)
    return GateResult(Lossless.NEAR_TIE, ties, positions, worst_tie=worst)


def _judge_row(forced: ForcedScores, tokens: list[int]) -> tuple[str, list[float]]:
    """(why the tokens fail or an empty string, every near tie's share of its bound); nothing else leaves the choice."""
    shares: list[float] = []
    judged = zip(tokens[1:], forced.choice, forced.margin, forced.bound, strict=True)
    for place, (token, choice, margin, bound) in enumerate(judged, start=1):
        if token == choice:
            continue
        # Written so that a margin that is no number fails.
        if not margin <= bound:
            return f"token {place}: scores {margin:.3g} below the target's choice, the bound is {bound:.3g}", shares
        shares.append(margin / bound if bound else 0.0)
    return "", shares
