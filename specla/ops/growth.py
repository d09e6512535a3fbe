"""Trees that grow from drafts on a device: what the kernels pass to each other.

Drafts go by identities, which stay the same while their places change: the root's is 0, and whoever runs has the next.
"""

from typing import NamedTuple

import torch
from torch import Tensor

ROOT = 0
"""The root's identity."""
ORPHAN = -1
"""The parent of the root, and of a place that holds no draft."""
NOBODY = -2
"""The identity of a draft that never runs, and of a place that holds none."""


class Likely(NamedTuple):
    """The likeliest tokens after every node that ran, best first."""

    logs: Tensor
    """[B, F, k] float32, log probabilities."""
    tokens: Tensor
    """[B, F, k] int64."""


class Kept(NamedTuple):
    """The drafts that stay, parents before their children, the root in front."""

    q: Tensor
    """[B, N] float32, sums of log probabilities; -inf where there is no draft, and 0 of the root."""
    tokens: Tensor
    """[B, N] int64; the root's is not looked at."""
    ids: Tensor
    """[B, N] int64, identities."""
    parents: Tensor
    """[B, N] int64, identities."""
    slots: Tensor
    """[B, N] int64: where it stands among the nodes that ran or run last; anywhere, where it does not."""

    @classmethod
    def roots(cls, batch: int, nodes: int, device: torch.device) -> "Kept":
        """The roots alone."""
        q = torch.full((batch, nodes), -torch.inf, device=device)
        q[:, 0] = 0
        whole = torch.zeros(batch, nodes, dtype=torch.int64, device=device)
        ids = whole + NOBODY
        ids[:, 0] = ROOT
        return cls(q, whole, ids, whole + ORPHAN, whole)


class Running(NamedTuple):
    """The nodes that run next: R that have run already and may be ancestors, then F new ones, any of them idle."""

    q: Tensor
    """[B, F] float32, of the new ones; -inf where a place is idle."""
    tokens: Tensor
    """[B, F] int64, of the new ones."""
    sources: Tensor
    """[B, F] int64, of the new ones: after which of the nodes that ran last."""
    moved: Tensor
    """[B, R] int64: where the others stood."""
    ids: Tensor
    """[B, R + F] int64, identities."""
    parents: Tensor
    """[B, R + F] int64, identities."""


class Level(NamedTuple):
    """What is known of a level before anything is drafted."""

    started: int
    """The first identity of those that ran last; the root's at first."""
    next: int
    """The first identity of those that run next."""
    ran: int
    """R."""
    width: int
    """F; 0 in the last level, where nothing runs any more."""
