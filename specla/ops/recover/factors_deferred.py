"""The commit deferred into the next verification (paper, section 5.2)."""

from torch import Tensor

from specla.ops.conv import move_window
from specla.ops.known import fold_known
from specla.ops.recover.base import Record, RecoverStrategy, accepted
from specla.ops.recover.factors import path_factors
from specla.ops.types import Known, Moving


class DeferredFactors(RecoverStrategy):
    """Keeps the accepted factors until the next verification, which folds every row."""

    name = "factors_deferred"

    def __init__(self) -> None:
        self._known: Known | None = None

    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor, moving: Moving | None = None) -> None:
        assert record.factors is not None, "factors_deferred: verification left no factors"
        chosen = accepted(path, length, state.shape[0])
        self._known = Known(path_factors(record.factors, chosen), chosen.valid.expand(state.shape[0], -1))
        move_window(moving, path, length)

    def pending(self) -> tuple[Known | None, Tensor | None]:
        if self._known is None:
            return None, None
        valid = self._known.valid
        return self._known, valid.new_ones(valid.shape[0])

    def flush(self, state: Tensor) -> None:
        if self._known is not None:
            fold_known(state, self._known)
        self.reset()

    def reset(self) -> None:
        self._known = None
