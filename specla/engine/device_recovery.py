"""Recovery in memory that stays where it is, so that a graph of it may be replayed.

Pending factors of `factors_deferred` and `factors_lazy` lie in a ring of a row each: that of the first is as long as a
path, and the next verification folds all of it. `in_place` is the same with a path of one node, so that a decode step
reads and writes the state once.
"""

import torch

from specla.engine.recovery import EngineRecovery, Recovery
from specla.errors import SpeclaError
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.records import LayerRecord, LayerState
from specla.models.state import DecodeState, make_bank
from specla.ops.known import fold_known
from specla.ops.texts import Walked
from specla.ops.types import Bank, Factors, Filled, Known, Moving

PENDING = ("in_place", "factors_deferred", "factors_lazy")
"""Recoveries that leave the commit to the next verification."""


def places_of(chosen: Recovery, longest: int) -> int:
    """Places of every row's ring of pending factors; 0 where a recovery has none."""
    if chosen.name not in PENDING:
        return 0
    return chosen.ring if chosen.name == "factors_lazy" else longest


class DeviceRecovery:
    """Commits accepted paths of all layers by launches alone.

    Args:
        chosen: the strategy.
        model: whose layers.
        state: written by every commit, or by the verification after it.
        longest: the most nodes that a cycle commits, D + 1.
    """

    def __init__(self, chosen: Recovery, model: GatedDeltaNetLM, state: DecodeState, longest: int) -> None:
        self.name, self.state, self._longest = chosen.name, state, longest
        self._reflects = model.config.allow_neg_eigval
        self._ring: Factors | None = None
        self._plain: EngineRecovery | None = None
        if self.name in PENDING:
            lazy = self.name == "factors_lazy"
            if lazy and chosen.ring < longest:
                raise SpeclaError(
                    f"engine.ring={chosen.ring}: a step commits up to {longest} tokens; give {longest} or more"
                )
            batch = state.recurrent.shape[1]
            places = (state.recurrent.shape[0], batch, places_of(chosen, longest))
            self._ring = make_bank(model.config, places, state.window).factors
            used = torch.zeros(state.recurrent.shape[0] * batch, dtype=torch.int64, device=model.device)
            self._filled = Filled(used, torch.full_like(used, not lazy, dtype=torch.bool))
            self._folded = Filled(used, torch.empty_like(self._filled.fold))
        elif self.name != "factors":
            self._plain = EngineRecovery(self.name, model, state, longest)

    def layers(self, bank: Bank) -> list[LayerState]:
        """What a verification starts from, and where it leaves its factors, a layer at a time."""
        batch = self.state.recurrent.shape[1]
        layers = []
        for i, (recurrent, window) in enumerate(zip(self.state.recurrent, self.state.window, strict=True)):
            part = Bank(*(x[i] for x in bank))
            if self._ring is None:
                layers.append(LayerState(recurrent, window, bank=part))
                continue
            rows = slice(i * batch, (i + 1) * batch)
            known = Known(Factors(*(x[i] for x in self._ring)), self._filled.used[rows])
            fold = self._filled.fold[rows] if self.name == "factors_lazy" else True
            layers.append(LayerState(recurrent, window, known, fold, part))
        return layers

    def commit(self, records: list[LayerRecord], bank: Bank, walked: Walked) -> None:
        """Commit every row's path, state and convolution window; a row of length 0 keeps its bits."""
        if self._plain is not None:
            self._plain.commit(records, walked.path, walked.length, bank.raw.flatten(0, 1))
            return
        from specla.ops.kernels.commit import commit_factors
        from specla.ops.kernels.launch import Taken
        from specla.ops.kernels.ring import append

        factors = Factors(*(x.flatten(0, 1) for x in bank.factors))
        moving = Moving(self.state.window.flatten(0, 1), bank.raw.flatten(0, 1))
        taken = Taken(walked.path, walked.length)
        if self._ring is None:
            recurrent = self.state.recurrent.flatten(0, 1)
            commit_factors(recurrent, factors, taken, moving, reflects=self._reflects)
            return
        ring = Factors(*(x.flatten(0, 1) for x in self._ring))
        if self.name != "factors_lazy":
            # Whatever the verification found pending it has folded: nobody reads the counts that this overwrites.
            append(ring, factors, taken, self._filled, self._longest, moving, self._folded)
            return
        after = append(ring, factors, taken, self._filled, self._longest, moving)
        self._filled.used.copy_(after.used)
        self._filled.fold.copy_(after.fold)

    def settled_copy(self) -> DecodeState:
        """A copy of the state with everything pending taken in; this one stays as it is."""
        copy = self.state.clone()
        if self._ring is not None:
            fold_known(copy.recurrent.flatten(0, 1), self._known())
        return copy

    def reset(self) -> None:
        """Forget everything pending: the state was replaced."""
        if self._ring is not None:
            self._filled.used.zero_()
            if self.name == "factors_lazy":
                self._filled.fold.zero_()

    def _known(self) -> Known:
        assert self._ring is not None
        return Known(Factors(*(x.flatten(0, 1) for x in self._ring)), self._filled.used)
