"""What is counted of decodes: tau, alpha by depth and by rank, and draft_efficiency are shares of these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Tally:
    """Counts over verify steps, cut at EOS and at the limit, the prefill's token left out."""

    steps: int
    emitted: int
    """Tokens, the bonus token of each step included."""
    drafted: int
    """Draft nodes verified, roots left out."""
    accepted: int
    reached: tuple[int, ...] = ()
    """Per depth 1..D: steps that reached it uncut, so that a draft at that depth could be accepted."""
    accepted_at: tuple[int, ...] = ()
    """Per depth 1..D: of those, the steps that accepted one."""
    offered: tuple[tuple[int, ...], ...] = ()
    """Per depth and rank: steps that reached it uncut and asked for a draft of that rank, whether there was one or
    not."""
    right: tuple[tuple[int, ...], ...] = ()
    """Per depth and rank: of those, the steps that accepted it."""


@dataclass(frozen=True)
class Counts(Tally):
    """The tally of a cell, and the same by category of prompt."""

    by_category: Mapping[str, Tally] = field(default_factory=lambda: MappingProxyType({}))
