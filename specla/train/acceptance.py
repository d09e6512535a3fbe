"""What held-out text would accept of a drafter: alpha by depth, from rollouts over the target's own text.

The text is the target's greedy continuation, so a draft is accepted where it is the text's next token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specla.models.drafter import AlignedNet
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.train.rollout import rollout

RANKS = 4
"""Ranks that are told apart."""
_BATCH = 16


@dataclass(frozen=True)
class Acceptances:
    """Counts of one category.

    Attributes:
        reached: by depth, starts whose drafts above were all accepted.
        accepted: by depth, those whose draft there was accepted too.
        ranked: [depth][rank], of the starts whose tokens above were all among the first RANKS drafts: how often rank 1,
            2, ... was right.
        within: by depth, how many such starts there were.
    """

    reached: list[int]
    accepted: list[int]
    ranked: list[list[int]]
    within: list[int]

    @property
    def alpha(self) -> list[float]:
        """Accepted over reached, by depth."""
        return [a / max(1, r) for a, r in zip(self.accepted, self.reached, strict=True)]

    @property
    def table(self) -> list[list[float]]:
        """alpha[depth][rank], as `drafter.alpha` takes it."""
        return [[n / max(1, all_) for n in line] for line, all_ in zip(self.ranked, self.within, strict=True)]

    def rounded(self) -> list[float]:
        """alpha by depth, 4 decimals."""
        return [round(share, 4) for share in self.alpha]

    def __add__(self, other: "Acceptances") -> "Acceptances":
        def summed(a: list[int], b: list[int]) -> list[int]:
            return [x + y for x, y in zip(a, b, strict=True)]

        ranked = [summed(a, b) for a, b in zip(self.ranked, other.ranked, strict=True)]
        return Acceptances(
            summed(self.reached, other.reached), summed(self.accepted, other.accepted), ranked,
            summed(self.within, other.within),
        )  # fmt: skip


@torch.no_grad()
def accepted_by_depth(
    net: AlignedNet, target: GatedDeltaNetLM, texts: dict[str, Tensor], depth: int, prompt: int
) -> dict[str, Acceptances]:
    """alpha by depth for each category of texts, and over 'all'.

    Args:
        net: not packed.
        target: who wrote the texts.
        texts: by category, [rows, tokens] int64: prompts of `prompt` tokens and their greedy continuations.
        depth: of the drafts.
        prompt: tokens that the target did not write; drafts start where it did.
    """
    found: dict[str, Acceptances] = {}
    for name, rows in texts.items():
        parts = [_count(net, target, batch.to(target.device), depth, prompt) for batch in rows.split(_BATCH)]
        found[name] = sum(parts[1:], parts[0])
    kinds = list(found.values())
    return {**found, "all": sum(kinds[1:], kinds[0])}


def _count(net: AlignedNet, target: GatedDeltaNetLM, batch: Tensor, depth: int, prompt: int) -> Acceptances:
    with torch.autocast(batch.device.type, dtype=torch.bfloat16, enabled=batch.is_cuda):
        steps = rollout(net, target(batch), target.model.embeddings(batch), depth)
    # A start at i has the token i + 1 as its root: from the first token that the target wrote on.
    first, length = prompt - 1, batch.shape[1] - depth
    alive = torch.ones(batch.shape[0], length - first - 1, dtype=torch.bool, device=batch.device)
    near = alive.clone()
    reached, accepted, ranked, within = [], [], list[list[int]](), []
    for step, predicted in enumerate(steps):
        hidden = predicted[:, first : length - 1].to(target.dtype)
        wanted = batch[:, first + step + 2 : length + step + 1]
        best = target.logits(hidden).topk(min(RANKS, target.config.vocab_size), dim=-1).indices
        hits = best == wanted[..., None]
        reached.append(int(alive.sum()))
        within.append(int(near.sum()))
        ranked.append((hits & near[..., None]).flatten(0, 1).sum(0).tolist())
        alive, near = alive & hits[..., 0], near & hits.any(-1)
        accepted.append(int(alive.sum()))
    return Acceptances(reached, accepted, ranked, within)
