"""The one contract of recovery: from what verification left to a committed state."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from specla.ops import pairs
from specla.ops.rows import repeat_rows
from specla.ops.types import Factors, Fold, Known, Moving, NodeInputs


class Record(NamedTuple):
    """What one layer's verification left; a strategy reads the fields its `needs` name.

    Layers may be stacked in B, for one commit over all (not for `replay_tokens`, whose weights differ by layer).
    """

    factors: Factors | None = None
    states: tuple[Tensor, ...] | None = None
    """[B, T, HV, V, K] float32 of each layer: stacked, they would all be copied to pick one of them."""
    gated: NodeInputs | None = None
    x: Tensor | None = None
    """[B, T, hidden], the layer's input, for "inputs"."""
    window: Tensor | None = None
    """[B, W-1, C], the convolution's window before this step, for "inputs"."""


class Path(NamedTuple):
    """The accepted path, made safe to gather. One row may stand for all."""

    nodes: Tensor
    """[1 or B, L] int64; past the end the accepted node again, so that whatever a rejected node holds is never read."""
    valid: Tensor
    """[1 or B, L] bool."""
    rows: Tensor
    """[1 or B] bool: the rows that commit anything."""


class RecoverStrategy(ABC):
    """Commits accepted paths, for one layer or for layers stacked in B; it may hold pending factors between steps."""

    name: ClassVar[str]
    reflects: bool = False
    """Whether write strengths may exceed 1, as in `VerifyStrategy`: kernels then commit with more digits."""

    @property
    def needs(self) -> frozenset[str]:
        """What it reads: "inputs", "gated", "factors" or "states"."""
        return pairs.NEEDS[self.name]

    @abstractmethod
    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor, moving: Moving | None = None) -> None:
        """Commit path[b, :length[b]], at once or by the next verification.

        Args:
            state: [B, HV, V, K] float32, contiguous, written in place; a row of length 0 keeps its bits.
            record: of the verification that ran on this state.
            path: [B, L] int64, nodes from the root down; any valid node past length[b]. One layer's rows are enough
                where layers are stacked.
            length: [B] int64.
            moving: the convolution's window, which goes along the same path: on a GPU in the same launch.
        """

    def pending(self) -> tuple[Known | None, Fold]:
        """(known, fold) for the next verification, which must be given both."""
        return None, None

    def flush(self, state: Tensor) -> None:  # noqa: B027 - most strategies hold nothing
        """Take everything pending into `state`, in place: before anyone reads it."""

    def reset(self) -> None:  # noqa: B027
        """Forget everything pending: the state was replaced."""


def accepted(path: Tensor, length: Tensor, rows: int) -> Path:
    """A path and its length as a `Path` over `rows` rows."""
    if length.device.type == "cpu":
        path = path[:, : max(1, int(length.max()))]
    path, length = repeat_rows(path, rows), repeat_rows(length, rows)
    places = torch.arange(path.shape[1], device=path.device)
    nodes = path.gather(1, torch.minimum(places, (length[:, None] - 1).clamp(min=0)))
    return Path(nodes, places < length[:, None], length > 0)
