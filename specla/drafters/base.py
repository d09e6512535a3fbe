"""The contract between a drafter and the decoding loop."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specla.topology import DraftTree


@dataclass(frozen=True)
class Draft:
    """One step's drafts.

    Attributes:
        tokens: one list of T tokens a row; the first is the row's root, the last emitted token.
        tree: the tree they fill; it may be smaller than the tree asked for, where the drafter had nothing to say.
        trees: one tree a row, where rows have trees of their own: `tree` is then a deepest one of them, and the tokens
            of smaller ones are padded with anything. Empty where all rows share `tree`.
        shaped: whether the drafter shaped the trees itself, within the nodes and levels of the tree asked for.
    """

    tokens: list[list[int]]
    tree: DraftTree
    trees: tuple[DraftTree, ...] = ()
    shaped: bool = False


def shared_or_own(trees: Sequence[DraftTree]) -> tuple[DraftTree, tuple[DraftTree, ...]]:
    """`tree` and `trees` of a draft: the tree of all rows and no others, or a deepest one and every row's own."""
    if len(set(trees)) == 1:
        return trees[0], ()
    return max(trees, key=lambda one: one.depth), tuple(trees)


@dataclass(frozen=True)
class Verified:
    """What the target knew of one step: for drafters that go on from its hidden states.

    Attributes:
        hidden: [B, T, hidden], its hidden states of the step's nodes, after its last norm.
        path: [B, L] int64, the accepted nodes, root first; any node past a row's length.
        tokens: [B, L] int64, the target's token at each of them: the accepted drafts, then the next root.
        length: [B] int64, how many of the L were committed; 0 for a finished row.
    """

    hidden: Tensor
    path: Tensor
    tokens: Tensor
    length: Tensor


class Drafter(ABC):
    """Proposes tokens for the nodes of a tree, and is told what was emitted.

    Attributes:
        name: as the configuration spells it.
        synthetic: whether its acceptance is dialled in rather than earned.
    """

    name: str
    synthetic: bool = False

    @abstractmethod
    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Start on a batch: its prompts, and the first token of each row, which the prefill gave."""

    def prime(self, hidden: Tensor) -> None:  # noqa: B027 - most drafters see tokens alone
        """The target's hidden states of the prompts, [B, S, hidden], after `begin`; shorter ones are padded left."""

    @abstractmethod
    def draft(self, tree: DraftTree) -> Draft:
        """Fill the tree (or a part of it that holds the root) for every row."""

    @abstractmethod
    def observe(self, emitted: Sequence[Sequence[int]]) -> None:
        """The tokens a step emitted, a list a row; the last one is the row's next root. Empty for a finished row."""

    def verified(self, step: Verified) -> None:  # noqa: B027
        """What the target knew of a step, before `observe` tells what of it counts."""

    def rows_off_trace(self) -> list[int]:
        """Rows that need a new trace of the target before they can draft again; only an oracle has any."""
        return []

    def retrace(self, row: int, tokens: Sequence[int]) -> None:
        """A new trace for a row: the tokens that the target emits after its present root."""
        raise NotImplementedError(f"{self.name} keeps no trace")


class NoDrafter(Drafter):
    """Drafts nothing: the decoding loop with this drafter is autoregressive decoding."""

    name = "none"

    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Start on a batch."""
        self._roots = list(roots)

    def draft(self, tree: DraftTree) -> Draft:
        """The roots alone; `tree` has a single node."""
        return Draft([[root] for root in self._roots], tree)

    def observe(self, emitted: Sequence[Sequence[int]]) -> None:
        """Remember the new roots."""
        self._roots = [tokens[-1] if tokens else root for tokens, root in zip(emitted, self._roots, strict=True)]
