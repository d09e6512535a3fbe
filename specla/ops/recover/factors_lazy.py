"""Committed factors kept in a ring, folded only when it could overflow: beyond the paper, for large batches."""

import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.conv import move_window
from specla.ops.known import fold_known
from specla.ops.recover.base import Record, RecoverStrategy, accepted
from specla.ops.recover.factors import path_factors
from specla.ops.rows import take_nodes
from specla.ops.types import Factors, Filled, Fold, Known, Moving

RING = 16
"""Places of the ring, unless the user says otherwise: a step's reading of them stays below that of the state."""


class LazyFactors(RecoverStrategy):
    """A ring of R committed factors per row.

    Args:
        ring: R.
        longest: the most nodes a step may commit, D + 1. It may be set again before `pending`, up to the ring's size.
    """

    name = "factors_lazy"

    def __init__(self, ring: int = RING, longest: int = 1) -> None:
        if ring < longest:
            raise SpeclaError(f"engine.ring={ring}: a step commits up to {longest} tokens; give {longest} or more")
        self.ring = ring
        self.longest = longest
        self._held: Factors | None = None
        self._count = torch.zeros(0, dtype=torch.int64)
        self._fold: Tensor | None = None
        self._filled: Filled | None = None

    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor, moving: Moving | None = None) -> None:
        assert record.factors is not None, "factors_lazy: verification left no factors"
        if path.shape[1] > self.longest:
            raise ValueError(f"a path of {path.shape[1]} nodes, where longest={self.longest}")
        if state.is_cuda:
            self._append(record.factors, path, length, moving)
            return
        chosen = accepted(path, length, state.shape[0])
        new = path_factors(record.factors, chosen)
        if self._held is None:
            # Zeros, not empty memory: what a place holds before its first factor must not be NaN.
            self._held = Factors(*(x.new_zeros(x.shape[0], self.ring, *x.shape[2:]) for x in new))
            self._count = chosen.valid.new_zeros(state.shape[0], dtype=torch.int64)
        if self._fold is not None:
            self._count = self._count.masked_fill(self._fold, 0)
        # A gather, not a scatter: a place takes the factor that lands on it or keeps its own, and none lies outside.
        places = chosen.valid.shape[1]
        source = torch.arange(self.ring, device=path.device) - self._count[:, None]
        added = chosen.valid.sum(1)
        lands = (source >= 0) & (source < added[:, None])
        source = source.clamp(0, places - 1)
        for held, x in zip(self._held, new, strict=True):
            mask = lands.view(*lands.shape, *(1 for _ in held.shape[2:]))
            torch.where(mask, take_nodes(x, source), held, out=held)
        self._count = self._count + added
        self._fold = None
        move_window(moving, path, length)

    def pending(self) -> tuple[Known | None, Fold]:
        if self._held is None:
            return None, None
        if self._filled is not None:
            return Known(self._held, self._filled.used), self._filled.fold
        self._fold = self._count + self.longest > self.ring
        return self._known(self._held), self._fold

    def flush(self, state: Tensor) -> None:
        if self._held is not None:
            fold_known(state, self._known(self._held))
        self.reset()

    def reset(self) -> None:
        self._count = torch.zeros_like(self._count)
        self._fold = None
        if self._filled is not None:
            self._filled = Filled(*(torch.zeros_like(x) for x in self._filled))

    def _append(self, factors: Factors, path: Tensor, length: Tensor, moving: Moving | None) -> None:
        """The commit on a GPU, where the counts and which rows fold are the kernel's."""
        from specla.ops.kernels.launch import Taken
        from specla.ops.kernels.ring import append

        if self._held is None or self._filled is None:
            rows = factors.k.shape[0]
            self._held = Factors(*(x.new_zeros(rows, self.ring, *x.shape[2:]) for x in factors))
            count = torch.zeros(rows, dtype=torch.int64, device=path.device)
            self._filled = Filled(count, torch.zeros_like(count, dtype=torch.bool))
        self._filled = append(self._held, factors, Taken(path, length), self._filled, self.longest, moving)

    def _known(self, held: Factors) -> Known:
        if self._filled is not None:
            return Known(held, self._filled.used)
        used = max(1, int(self._count.max()))
        valid = torch.arange(used, device=self._count.device) < self._count[:, None]
        return Known(Factors(*(x[:, :used] for x in held)), valid)
