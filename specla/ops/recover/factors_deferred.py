"""The commit deferred into the next verification (paper, section 5.2)."""

from torch import Tensor

from specla.ops.conv import move_window
from specla.ops.known import fold_known
from specla.ops.recover.base import Record, RecoverStrategy, accepted
from specla.ops.recover.factors import path_factors
from specla.ops.rows import repeat_rows
from specla.ops.types import Fold, Known, Moving


class DeferredFactors(RecoverStrategy):
    """Keeps the accepted factors until the next verification, which folds every row."""

    name = "factors_deferred"

    def __init__(self) -> None:
        self._known: Known | None = None

    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor, moving: Moving | None = None) -> None:
        assert record.factors is not None, "factors_deferred: verification left no factors"
        if state.is_cuda:
            # Verification finds the path's factors where they lie, in a bank that the next one does not write.
            path, length = (repeat_rows(x, state.shape[0]) for x in (path, length))
            self._known = Known(record.factors, length, path)
            move_window(moving, path, length)
            return
        chosen = accepted(path, length, state.shape[0])
        self._known = Known(path_factors(record.factors, chosen), chosen.valid.expand(state.shape[0], -1))
        move_window(moving, path, length)

    def pending(self) -> tuple[Known | None, Fold]:
        return self._known, None if self._known is None else True

    def flush(self, state: Tensor) -> None:
        if self._known is not None:
            fold_known(state, self._known)
        self.reset()

    def reset(self) -> None:
        self._known = None
