"""The aligned drafter: a trained layer that goes on from the target's own hidden states (paper, section 6.2).

Its state comes from true hidden states alone: after a step it runs again over the tokens that were accepted, with the
target's hidden states of them, before it drafts the next time.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specla.drafters.base import Draft, Drafter, Verified, shared_or_own
from specla.drafters.confidence import Confidence, draft_confident
from specla.drafters.fixed import draft_tree, tree_plan
from specla.drafters.network import AlignedNetwork, DrafterState
from specla.ops.rows import take_nodes
from specla.ops.sampling import Sampling
from specla.topology import MAX_NODES, DraftTree

__all__ = ["AlignedDrafter", "AlignedNetwork", "Confidence"]


class AlignedDrafter(Drafter):
    """Drafts chains and trees of any shape, or trees that it shapes itself.

    Args:
        network: for the target that decodes.
        sampling: how the target chooses: drafts are chosen with the same noise.
        rows: [B] int64, identities of the rows in the noise.
        confidence: shape a tree for each row within the nodes and levels of the tree asked for; None fills that tree.
    """

    name = "aligned"

    def __init__(
        self, network: AlignedNetwork, sampling: Sampling, rows: Tensor, confidence: Confidence | None = None
    ) -> None:
        self.network, self.sampling, self.rows, self.confidence = network, sampling, rows, confidence
        self._trees: dict[tuple[int, ...], DraftTree] = {}

    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Remember the prompts; `prime` brings the hidden states."""
        self._prompts, self._roots = prompts, list(roots)
        self._lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.rows.device)
        self._pending: list[Verified] = []
        self._state: DrafterState | None = None

    def prime(self, hidden: Tensor) -> None:
        """Run over the prompts."""
        self._state = state_after(self.network, self._prompts, self._roots, hidden)

    def draft(self, tree: DraftTree) -> Draft:
        """Fill the tree, or shape one within its nodes and levels."""
        if tree.nodes == 1:
            # Drafting nothing, it need not catch up either.
            return Draft([[root] for root in self._roots], tree)
        state = self._caught_up()
        if self.confidence is not None:
            return self._confident(state, self.confidence, tree)
        plan = tree_plan(tree, self.rows.device, state.window.shape[1] + 1)
        drafted = draft_tree(self.network, state, plan, self.sampling, self.rows, self._lengths)
        return Draft([[root, *row] for root, row in zip(self._roots, drafted.tolist(), strict=True)], tree)

    def _confident(self, state: DrafterState, confidence: Confidence, tree: DraftTree) -> Draft:
        size = (tree.nodes, tree.depth)
        grown = draft_confident(self.network, state, confidence, size, self.sampling, self.rows, self._lengths)
        trees = tuple(self._tree(tree, tuple(parents)) for parents, _ in grown)
        tokens = [[root, *row] for root, (_, row) in zip(self._roots, grown, strict=True)]
        deepest, own = shared_or_own(trees)
        most = max(map(len, tokens))
        return Draft([row + [0] * (most - len(row)) for row in tokens], deepest, own, shaped=True)

    def _tree(self, asked: DraftTree, parents: tuple[int, ...]) -> DraftTree:
        if parents not in self._trees:
            self._trees[parents] = DraftTree((-1, *parents), asked.name)
        return self._trees[parents]

    def verified(self, step: Verified) -> None:
        """Keep the true hidden states until the next draft."""
        self._pending.append(step)
        self._lengths = self._lengths + step.length

    def observe(self, emitted: Sequence[Sequence[int]]) -> None:
        """Remember the new roots."""
        self._roots = [tokens[-1] if tokens else root for tokens, root in zip(emitted, self._roots, strict=True)]

    def _caught_up(self) -> DrafterState:
        """The state after everything committed: mostly one step, many after some that drafted nothing."""
        if self._state is None:
            raise RuntimeError("the aligned drafter was given no hidden states of the prompts")
        pending, self._pending = self._pending, []
        while pending:
            group, places = list[Verified](), 0
            while pending and (not group or places + pending[0].path.shape[1] <= MAX_NODES):
                places += pending[0].path.shape[1]
                group.append(pending.pop(0))
            self._take(self._state, group)
        return self._state

    def _take(self, state: DrafterState, steps: Sequence[Verified]) -> None:
        hidden = torch.cat([take_nodes(step.hidden, step.path) for step in steps], dim=1)
        tokens = torch.cat([step.tokens for step in steps], dim=1)
        length = torch.stack([step.length for step in steps]).sum(0)
        if len(steps) > 1:
            valid = torch.cat(
                [torch.arange(s.path.shape[1], device=s.path.device) < s.length[:, None] for s in steps], 1
            )
            # What counts moves to the front, in order.
            order = (~valid).int().argsort(dim=1, stable=True)
            hidden, tokens = take_nodes(hidden, order), tokens.gather(1, order)
        if length.device.type == "cpu":
            longest = max(1, int(length.max()))
            hidden, tokens = hidden[:, :longest], tokens[:, :longest]
        self.network.catch_up(state, hidden, tokens, length)


def state_after(
    network: AlignedNetwork, prompts: Sequence[Sequence[int]], roots: Sequence[int], hidden: Tensor
) -> DrafterState:
    """A drafter's state after prompts of any lengths.

    Args:
        network: of the drafter.
        prompts: token ids, a list a row.
        roots: [B], the first token of each row.
        hidden: [B, S, hidden], the target's, shorter prompts padded on the left.
    """
    length, device = hidden.shape[1], hidden.device
    # The token after each: the last one is the root.
    after = [[*prompt[1:], root] for prompt, root in zip(prompts, roots, strict=True)]
    tokens = torch.tensor([[0] * (length - len(row)) + list(row) for row in after], device=device)
    valid = None
    if any(len(row) < length for row in after):
        lengths = torch.tensor([len(row) for row in after], device=device)
        valid = torch.arange(length, device=device) >= length - lengths[:, None]
    return network.start(hidden, tokens, valid)
