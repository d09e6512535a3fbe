"""Drafters that draft by launches alone: a CUDA graph holds them with the rest of a cycle."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specla.drafters.oracle import OracleDrafter
from specla.ops.texts import Drafts, Texts, Traces, Walked
from specla.ops.types import TreeTensors


class Drafted(NamedTuple):
    """One cycle's drafts."""

    tokens: Tensor
    """[B, T] int64, the root's first."""
    tree: TreeTensors
    """The one that was asked for, or one for each row, of as many nodes."""


class DeviceDrafter(ABC):
    """Proposes tokens for the nodes of a tree. What it keeps stays in the same memory from `begin` to `begin`."""

    launches = True
    """Whether drafting runs anything."""
    shapes = False
    """Whether it shapes the trees itself, within the nodes and levels of the tree asked for."""

    @abstractmethod
    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Start on a batch, from the host: its prompts, and the first token of each row, which the prefill gave."""

    def prime(self, hidden: Tensor) -> None:  # noqa: B027 - most do without
        """Take the target's hidden states [B, S, hidden] of the prompts, from the host, after `begin`."""

    @abstractmethod
    def draft(self, tree: TreeTensors, texts: Texts) -> Drafted:
        """Fill a tree that the host knows. Captured: no look at any value."""

    def observe(self, hidden: Tensor, walked: Walked, texts: Texts) -> None:  # noqa: B027 - most have no state
        """Take the target's hidden states [B, T, hidden] of the nodes, and which of them were accepted. Captured."""


class NoDrafts(DeviceDrafter):
    """The roots alone: autoregressive decoding."""

    launches = False

    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Nothing to keep."""

    def draft(self, tree: TreeTensors, texts: Texts) -> Drafted:
        """The memory of the roots itself."""
        return Drafted(texts.root[:, None], tree)


class DeviceOracle(DeviceDrafter):
    """`OracleDrafter` on a device. A row whose text has left its trace drafts in vain until it gets another.

    What it drafts it keeps: with a trace that was made anew in between, the same text would be drafted otherwise.

    Args:
        oracle: on the host, whose traces it follows.
        capacity: tokens that a trace may have.
        device: where.
        vocabulary: number of tokens.
        worker: a real drafter whose work is done besides, for its time: its tokens are thrown away.
    """

    def __init__(
        self,
        oracle: OracleDrafter,
        capacity: int,
        device: torch.device,
        vocabulary: int,
        worker: DeviceDrafter | None = None,
    ) -> None:
        self.oracle, self._capacity, self._vocabulary = oracle, capacity, vocabulary
        self._worker = worker
        self._drafts: dict[int, Drafts] = {}
        """By nodes of a tree."""
        self._again = torch.zeros(1, dtype=torch.bool, device=device)
        self._traces: Traces | None = None
        self._device = device

    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Start from the oracle's traces as they were given."""
        if self._worker is not None:
            self._worker.begin(prompts, roots)
        self.oracle.begin(prompts, roots)
        self.reload()

    def prime(self, hidden: Tensor) -> None:
        """For the worker."""
        if self._worker is not None:
            self._worker.prime(hidden)

    def observe(self, hidden: Tensor, walked: Walked, texts: Texts) -> None:
        """The worker catches up."""
        if self._worker is not None:
            self._worker.observe(hidden, walked, texts)

    @torch.inference_mode()
    def repeat(self, drafts: dict[int, Tensor] | None) -> None:
        """From the next cycle on draft what `kept` gave, cycle by cycle; None drafts by traces and draws again."""
        self._again.fill_(drafts is not None)
        for nodes, tokens in (drafts or {}).items():
            self._drafts.setdefault(nodes, Drafts(torch.empty_like(tokens), self._again)).tokens.copy_(tokens)

    def kept(self) -> dict[int, Tensor]:
        """What was drafted since the text began, by nodes of the tree: [cycles, B, T] int64 each."""
        return {nodes: drafts.tokens.clone() for nodes, drafts in self._drafts.items()}

    @torch.inference_mode()
    def reload(self) -> None:
        """Take the oracle's present traces over."""
        known = self.oracle.known(self._capacity)
        if self._traces is None:
            self._traces = Traces(*(x.to(self._device) for x in known))
            return
        for place, new in zip(self._traces, known, strict=True):
            place.copy_(new)

    def draft(self, tree: TreeTensors, texts: Texts) -> Drafted:
        """Right where the draws say so, wrong elsewhere."""
        from specla.ops.kernels import oracle

        if self._traces is None:
            raise ValueError("an oracle drafts after begin()")
        if self._worker is not None:
            self._worker.draft(tree, texts)
        tokens = torch.empty(texts.root.shape[0], tree.nodes, dtype=torch.int64, device=self._device)
        kept = self._drafts.get(tree.nodes)
        if kept is None:
            room = torch.zeros(self._capacity, *tokens.shape, dtype=torch.int64, device=self._device)
            kept = self._drafts[tree.nodes] = Drafts(room, self._again)
        oracle.draft(tokens, tree.parents, texts, self._traces, kept, self._vocabulary)
        return Drafted(tokens, tree)
