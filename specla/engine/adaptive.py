"""How far to draft, decided from step to step: from what was accepted by depth, and what a step of each depth took.

A tree is cut below a level; cut at its root it is an autoregressive step. Drafting to depth d emits

    tokens(d) = 1 + alpha_1 + alpha_1 alpha_2 + ... + alpha_1 ... alpha_d

tokens a step, and the cut with the most tokens per second is taken. Acceptance is learned while drafting alone, so once
drafting no longer pays a shallow cut is tried now and then, the less often the longer it has not paid.
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from statistics import median
from typing import NamedTuple

from specla.topology import DraftTree

MEMORY = 0.97
"""What a step leaves of the weight of the counts before it."""
TRIALS, TIMES = 3, 15
"""How often every cut is tried at first, and the newest times of a cut, whose median counts."""
DOUBT = 2.0
"""Imagined drafts at each depth, accepted as those a depth above, at the first as often as not."""
GAIN = 1.03
"""How much faster than without drafts a cut must be: times are noisy, and drafting in vain costs."""
FIRST_PROBE, LAST_PROBE = 8, 128
"""Steps between two trials of drafting that does not pay: doubled by each trial that changes nothing."""
LAG = 2
"""Steps until a step's counters are known, as on a device whose host runs ahead of it."""


class Outcome(NamedTuple):
    """What a step did.

    Attributes:
        depth: of the cut.
        reached: rows that verified a draft at depth 1, 2, ...
        accepted: rows that accepted one there.
        seconds: of the step.
    """

    depth: int
    reached: list[int]
    accepted: list[int]
    seconds: float


class Adaptive:
    """Chooses the cut of the next step. It may serve many texts, one after the other: what it learned stays.

    Args:
        tree: the deepest draft.
        lag: steps until an outcome counts.
    """

    def __init__(self, tree: DraftTree, lag: int = LAG) -> None:
        halved = [tree.depth >> shift for shift in range(tree.depth.bit_length())]
        self.cuts = {depth: cut(tree, depth) for depth in sorted({0, *halved})}
        """By depth, every tree that may be drafted: the whole one, those of half its depth, of a quarter, ..., none."""
        self.steps = dict.fromkeys(self.cuts, 0)
        self._late: deque[Outcome] = deque()
        self._lag = lag
        self._reached, self._accepted = [0.0] * tree.depth, [0.0] * tree.depth
        self._times = {depth: deque[float](maxlen=TIMES) for depth in self.cuts}
        self._idle, self._patience = 0, FIRST_PROBE

    def choose(self) -> DraftTree:
        """The tree to draft next."""
        return self.cuts[self.next_depth()]

    def next_depth(self) -> int:
        """The depth of the tree to draft next."""
        depth = self._next()
        self.steps[depth] += 1
        return depth

    def _next(self) -> int:
        # Deepest first: its acceptance is what the shallow ones need to know as well.
        if untried := [depth for depth in self.cuts if self.steps[depth] < TRIALS]:
            return max(untried)
        rates = self.rates()
        best = max(rates, key=rates.__getitem__)
        if best and rates[best] > GAIN * rates[0]:
            self._idle, self._patience = 0, FIRST_PROBE
            return best
        self._idle += 1
        if self._idle < self._patience:
            return 0
        self._idle, self._patience = 0, min(2 * self._patience, LAST_PROBE)
        return min(depth for depth in self.cuts if depth)

    def alphas(self) -> list[float]:
        """The share accepted at depth 1, 2, ... of what reached it."""
        shares, above = [], 0.5
        for reached, accepted in zip(self._reached, self._accepted, strict=True):
            above = (accepted + DOUBT * above) / (reached + DOUBT)
            shares.append(above)
        return shares

    def rates(self) -> dict[int, float]:
        """Tokens per second by depth of the cut; none of one whose time is not known yet."""
        # 1, alpha_1, alpha_1 alpha_2, ...: what each level adds.
        tokens = list(accumulate(accumulate(self.alphas(), mul, initial=1.0)))
        return {depth: tokens[depth] / median(times) if times else 0.0 for depth, times in self._times.items()}

    def observe(self, outcome: Outcome) -> None:
        """Take a step's outcome, to be counted `lag` steps later."""
        self._late.append(outcome)
        if len(self._late) > self._lag:
            self._count(self._late.popleft())

    def _count(self, outcome: Outcome) -> None:
        for level, (reached, accepted) in enumerate(zip(outcome.reached, outcome.accepted, strict=True)):
            self._reached[level] = MEMORY * self._reached[level] + reached
            self._accepted[level] = MEMORY * self._accepted[level] + accepted
        self._times[outcome.depth].append(outcome.seconds)

    @property
    def told(self) -> str:
        """Which cuts were taken, in words."""
        total = max(1, sum(self.steps.values()))
        cuts = ((f"depth {depth}" if depth else "no drafts", steps) for depth, steps in self.steps.items())
        parts = [f"{name} in {100 * steps / total:.0f} %" for name, steps in cuts]
        return f"adaptive: {', '.join(parts)} of {total} steps"


def cut(tree: DraftTree, depth: int) -> DraftTree:
    """The upper levels of a tree, root and `depth` levels of drafts; nodes keep their order."""
    if depth >= tree.depth:
        return tree
    kept = [node for node in range(tree.nodes) if tree.depths[node] <= depth]
    place = {node: i for i, node in enumerate(kept)}
    parents = tuple(-1 if node == 0 else place[tree.parents[node]] for node in kept)
    return DraftTree(parents, f"{tree.name}-d{depth}")


def outcome_of(depth: int, drafted: int, accepted: Sequence[int], seconds: float) -> Outcome:
    """A step's outcome.

    Args:
        depth: of the cut that was chosen.
        drafted: levels that the drafter filled of it.
        accepted: drafts that each unfinished row accepted.
        seconds: of the step.
    """
    levels = range(1, drafted + 1)
    reached = [sum(count >= level - 1 for count in accepted) for level in levels]
    return Outcome(depth, reached, [sum(count >= level for count in accepted) for level in levels], seconds)
