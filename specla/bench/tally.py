"""What is counted of decodes: tau, alpha by depth and by rank, and draft_efficiency are shares of these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from specla.bench.codec import MANY, measured
from specla.errors import SpeclaError

_COUNT = measured(least=0, below=MANY)


@dataclass(frozen=True)
class Tally:
    """Counts over verify steps, cut at EOS and at the limit, the prefill's token left out.

    Raises SpeclaError where they contradict each other.
    """

    steps: int = field(metadata=_COUNT)
    emitted: int = field(metadata=_COUNT)
    """Tokens, the bonus token of each step included."""
    drafted: int = field(metadata=_COUNT)
    """Draft nodes verified, roots left out."""
    accepted: int = field(metadata=_COUNT)
    reached: tuple[int, ...] = field(default=(), metadata=_COUNT)
    """Per depth 1..D: steps that reached it uncut, so that a draft at that depth could be accepted."""
    accepted_at: tuple[int, ...] = field(default=(), metadata=_COUNT)
    """Per depth 1..D: of those, the steps that accepted one."""
    offered: tuple[tuple[int, ...], ...] = field(default=(), metadata=_COUNT)
    """Per depth and rank: steps that reached it uncut and asked for a draft of that rank, whether there was one or
    not."""
    right: tuple[tuple[int, ...], ...] = field(default=(), metadata=_COUNT)
    """Per depth and rank: of those, the steps that accepted it."""

    def __post_init__(self) -> None:
        if contradiction := self._contradiction():
            raise SpeclaError(contradiction)

    def _contradiction(self) -> str:
        """What cannot be, or nothing. Counts by depth, and by rank, may be left out."""
        if self.accepted > self.drafted:
            return f"accepted {self.accepted} of {self.drafted} drafted"
        # A step emits its bonus token and what it accepted, less what a cut took of them, and never nothing.
        if not self.steps <= self.emitted <= self.steps + self.accepted:
            return f"emitted {self.emitted} tokens in {self.steps} steps that accepted {self.accepted}"
        if len(self.reached) != len(self.accepted_at) or [*map(len, self.offered)] != [*map(len, self.right)]:
            return "counts by depth or rank are of different lengths"
        before = self.steps
        for depth, (reached, accepted) in enumerate(zip(self.reached, self.accepted_at, strict=True), start=1):
            if not before >= reached >= accepted:
                return f"depth {depth}: {accepted} accepted of {reached} that reached it, of {before} that could"
            before = accepted
        if self.reached and sum(self.accepted_at) != self.accepted:
            return f"accepted {self.accepted}, and {sum(self.accepted_at)} by depth"
        for depth, (offered, right) in enumerate(zip(self.offered, self.right, strict=True), start=1):
            if any(hits > asked for hits, asked in zip(right, offered, strict=True)):
                return f"depth {depth}: more drafts were right than were asked for"
        return ""


@dataclass(frozen=True)
class Counts(Tally):
    """The tally of a cell, and the same by category of prompt."""

    by_category: Mapping[str, Tally] = field(default_factory=lambda: MappingProxyType({}))

    def _contradiction(self) -> str:
        for name in ("steps", "emitted", "drafted", "accepted"):
            parts = sum(getattr(part, name) for part in self.by_category.values())
            if self.by_category and parts != getattr(self, name):
                return f"{name} {getattr(self, name)}, and {parts} by category"
        return super()._contradiction()
