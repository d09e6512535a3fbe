"""How `topology=auto` came to a tree, as a record keeps it."""

from dataclasses import dataclass, field

from specla.bench.codec import measured

COSTED = 10
"""Prompts that steps are timed on, the first of the calibration set: a step takes much the same on every text, whereas
what is accepted differs so much between texts that all of them are needed."""


@dataclass(frozen=True)
class Candidate:
    """A tree with what is expected of it."""

    parents: tuple[int, ...]
    depth: int
    """Levels of drafts."""
    tau: float
    """Expected tokens a step of one row: 1 + the sum of the products of alpha along the paths."""
    step_us: float = field(metadata=measured())
    """Of a step of the whole batch, from the costs measured."""
    batch: int = 1

    @property
    def nodes(self) -> int:
        """T, root included."""
        return len(self.parents)

    @property
    def tok_s(self) -> float:
        """Expected tokens per second, of all rows."""
        return 1e6 * self.batch * self.tau / self.step_us


@dataclass(frozen=True)
class Cost:
    """A step of one shape, measured: drafting, verification, acceptance and commit."""

    nodes: int
    depth: int
    step_us: float = field(metadata=measured())
    draft_us: float = field(metadata=measured(least=0))
    """Drafting's part of it."""
    chain: bool = False


@dataclass(frozen=True)
class TreeChoice:
    """Acceptance, costs, and the trees that they were weighed for."""

    most: int
    """Nodes that the tree may have: topology.nodes."""
    alpha: tuple[tuple[float, ...], ...]
    """By depth and rank, what the trees were weighed with."""
    known: bool
    """Whether alpha was given (an oracle's) rather than measured."""
    prompts: int
    """Of the calibration set."""
    costs: tuple[Cost, ...]
    level_us: float = field(metadata=measured(least=0))
    """What one level of drafts more costs in drafting, nodes being equal."""
    picked: Candidate
    others: tuple[Candidate, ...] = ()
    """The best of every other number of nodes, the fastest first."""
    offered: tuple[tuple[int, ...], ...] = ()
    """Where alpha was measured: steps by depth and rank that it is a share of."""

    @property
    def told(self) -> str:
        """In one line."""
        best = self.picked
        shape = "the root alone" if best.nodes == 1 else f"{best.nodes} nodes in {best.depth} levels"
        line = f"topology=auto: {shape} of at most {self.most}, {best.tau:.2f} tokens a step and "
        line += f"{best.tok_s:.0f} tok/s expected"
        line += ", decoded as ar and in_place do" if best.nodes == 1 else ""
        if self.others:
            line += f"; next {self.others[0].nodes} nodes, {self.others[0].tok_s:.0f} tok/s"
        return line
