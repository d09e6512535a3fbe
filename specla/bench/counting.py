"""Counting what steps accepted, by the definitions of tau, alpha_d and draft_efficiency (design section 7)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from specla.bench.tally import Counts, Tally
from specla.engine.decode import Step


@dataclass
class Counter:
    """A tally in the making."""

    steps: int = 0
    emitted: int = 0
    drafted: int = 0
    accepted: int = 0
    reached: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    offered: list[list[int]] = field(default_factory=list)
    right: list[list[int]] = field(default_factory=list)

    def add(self, step: Step, row: int) -> None:
        """Count one row of a step; a row that had ended before it emitted nothing and does not count."""
        kept = len(step.emitted[row])
        if not kept:
            return
        # A cut at EOS or at the limit hides what lies below it: those depths were not reached uncut.
        accepted = min(step.accepted[row], kept)
        self.steps += 1
        self.emitted += kept
        tree = step.tree_of(row)
        self.drafted += tree.nodes - 1
        self.accepted += accepted
        path = step.path[row]
        for depth in range(1, min(kept, len(path)) + 1):
            if not tree.children[path[depth - 1]]:
                break
            _bump(self.reached, depth)
            if depth <= accepted:
                _bump(self.accepted_at, depth)
        self._add_ranks(step, row, min(kept, len(path)), accepted)

    def _add_ranks(self, step: Step, row: int, uncut: int, accepted: int) -> None:
        """Count by depth and rank what was asked for: a draft that the drafter did not have was not right either."""
        tree, node = step.tree_of(row), 0
        asked = step.asked or tree
        for depth in range(1, uncut + 1):
            children = asked.children[node]
            if not children:
                break
            for rank in range(len(children)):
                _bump(_line(self.offered, depth), rank + 1)
            if depth > accepted:
                break
            rank = int(tree.ranks[step.path[row][depth]])
            _bump(_line(self.right, depth), rank + 1)
            node = children[rank]

    def tally(self) -> Tally:
        """What was counted, the lists padded to the same depth."""
        depth = len(self.reached)
        accepted_at = (*self.accepted_at, *[0] * (depth - len(self.accepted_at)))
        right = [_padded(_line(self.right, i + 1), len(line)) for i, line in enumerate(self.offered)]
        return Tally(
            self.steps,
            self.emitted,
            self.drafted,
            self.accepted,
            tuple(self.reached),
            accepted_at,
            tuple(map(tuple, self.offered)),
            tuple(right),
        )


def counts(rows: Iterable[tuple[str, Iterable[tuple[Step, int]]]]) -> Counts:
    """The counts of a cell, from (category, (step, row) pairs) of every row decoded."""
    total, by_category = Counter(), dict[str, Counter]()
    for category, steps in rows:
        part = by_category.setdefault(category, Counter())
        for step, row in steps:
            total.add(step, row)
            part.add(step, row)
    all_rows = total.tally()
    parts = {name: counter.tally() for name, counter in sorted(by_category.items())}
    return Counts(**vars(all_rows), by_category=parts)


def _bump(counter: list[int], depth: int) -> None:
    counter.extend([0] * (depth - len(counter)))
    counter[depth - 1] += 1


def _line(table: list[list[int]], depth: int) -> list[int]:
    table.extend([] for _ in range(depth - len(table)))
    return table[depth - 1]


def _padded(line: list[int], length: int) -> tuple[int, ...]:
    return (*line, *[0] * (length - len(line)))
