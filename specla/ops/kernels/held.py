"""Known factors, and which rows fold them, as the verification kernels read them."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from specla.ops.kernels.launch import Strided, strided
from specla.ops.types import Fold, Known

Pendency = Literal["none", "folded", "beside"]
"""No known factors; such that every row's state takes in; or such that stay beside the states of some rows or all."""


class Held(NamedTuple):
    """Pointers, strides and flags; any tensor stands where a kernel has no use for one."""

    k: Strided
    u: Strided
    decay: Tensor
    nodes: Tensor
    valid: Tensor
    fold: Tensor
    places: int
    flags: dict[str, bool]
    """KNOWN: there are any. INDEXED: they lie in a bank, at `nodes`. COUNTED: `valid` counts them. FOLDS: `fold` says
    which rows take them in; ALL_FOLD: every row does."""

    @classmethod
    def of(cls, known: Known | None, fold: Fold, any_tensor: Tensor) -> "Held":
        """Those of one verification."""
        flags = dict.fromkeys(("KNOWN", "INDEXED", "COUNTED", "FOLDS", "ALL_FOLD"), False)
        if known is None:
            nothing = Strided(any_tensor, 0, 0)
            return cls(nothing, nothing, any_tensor, any_tensor, any_tensor, any_tensor, 0, flags)
        counted, masked = known.valid.dim() == 1, isinstance(fold, Tensor)
        flags |= {"KNOWN": True, "INDEXED": known.nodes is not None, "COUNTED": counted}
        flags |= {"FOLDS": masked, "ALL_FOLD": fold is True}
        valid = known.valid if counted else known.valid.view(torch.uint8)
        nodes = valid if known.nodes is None else known.nodes
        folds = fold.view(torch.uint8) if isinstance(fold, Tensor) else valid
        k, u, decay = known.factors
        decay, nodes, valid, folds = (x.contiguous() for x in (decay.double(), nodes, valid, folds))
        places = (k if known.nodes is None else known.nodes).shape[1]
        return cls(strided(k), strided(u), decay, nodes, valid, folds, places, flags)

    def copied(self, known: Known | None) -> bool:
        """Whether something had to be copied to be read: a kernel must wait for that."""
        if known is None:
            return False
        given = (known.factors.k, known.factors.u, known.factors.decay)
        found = (self.k.data, self.u.data, self.decay)
        rest = self.valid.data_ptr() != known.valid.data_ptr()
        nodes = known.nodes is not None and self.nodes.data_ptr() != known.nodes.data_ptr()
        return rest or nodes or any(x.data_ptr() != y.data_ptr() for x, y in zip(given, found, strict=True))

    @property
    def pendency(self) -> Pendency:
        """Whether there are known factors, and whether all go into the state."""
        if not self.flags["KNOWN"]:
            return "none"
        return "folded" if self.flags["ALL_FOLD"] else "beside"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """In the order of the kernels' pointers."""
        return self.k.data, self.u.data, self.decay, self.nodes, self.valid, self.fold

    @property
    def strides(self) -> tuple[int, ...]:
        """The nodes that decays are of, and strides of k and u."""
        return self.decay.shape[1], self.k.row, self.k.node, self.u.row, self.u.node
