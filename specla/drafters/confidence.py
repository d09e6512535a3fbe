"""Drafting best first (paper, section 6.1): a tree for each row, shaped by how sure the drafter is.

A draft's confidence is q, the sum of log probabilities along its path. The likeliest drafts within a budget of nodes
are found level by level: children cannot be likelier than their parent, so only nodes that are among the best so far
need to run. What is kept is exactly what expanding one node at a time, best first, would keep.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from specla.drafters.fixed import level_of
from specla.drafters.network import AlignedNetwork, DrafterState
from specla.ops.level import Level
from specla.ops.sampling import Sampling


@dataclass(frozen=True)
class Confidence:
    """How trees are shaped: children a node may have, and how far below the best draft's q another's may be."""

    branching: int
    margin: float | None


@dataclass
class Candidate:
    """A draft that may be kept.

    Attributes:
        token: drafted.
        q: sum of log probabilities of its path.
        parent: a candidate of the same row; -1 is the root.
        path: where its ancestors stand among the nodes of its row that have run.
        slot: where it stands there itself, once it runs.
    """

    token: int
    q: float
    parent: int
    path: list[int]
    slot: int = -1


def kept(q: Sequence[float], nodes: int, margin: float | None) -> list[int]:
    """Which candidates stay, in their order: within `margin` of the best, then the `nodes` - 1 best.

    Parents stand before their children, whose q is no higher: so an ancestor stays with its descendants.
    """
    if not q:
        return []
    least = max(q) - margin if margin is not None else -torch.inf
    near = [i for i, value in enumerate(q) if value >= least and value > -torch.inf]
    return sorted(sorted(near, key=lambda i: (-q[i], i))[: nodes - 1])


def draft_confident(
    network: AlignedNetwork,
    state: DrafterState,
    confidence: Confidence,
    size: tuple[int, int],
    sampling: Sampling,
    rows: Tensor,
    lengths: Tensor,
) -> list[tuple[list[int], list[int]]]:
    """A tree for every row.

    Args:
        network: of the drafter.
        state: caught up to the root; it is left alone.
        confidence: how trees are shaped.
        size: (nodes, root included, levels of drafts) at most.
        sampling: how the target will choose; with a temperature, probabilities are those of the noisy scores.
        rows: [B] int64, identities of the rows in the noise.
        lengths: [B] int64, committed tokens.

    Returns:
        (parents, tokens) of each row's drafts: parents of a `DraftTree`, without the root's.
    """
    nodes, depth = size
    found: list[list[Candidate]] = [[] for _ in range(rows.shape[0])]
    # Of every row, the candidates that run in this level; the root is none.
    frontier: list[list[int]] = [[-1] for _ in found]
    predicted, above, started, ran = state.predicted[:, None], None, 0, 0
    for level in range(depth):
        # All nodes of a level share a row's noise.
        scores = network.scores(predicted, sampling, rows[:, None], lengths[:, None] + (level + 1))
        best = scores.log_softmax(-1).topk(min(confidence.branching, scores.shape[-1]), dim=-1)
        tokens = network.tokens(best.indices).tolist()
        for row, (logs, words) in enumerate(zip(best.values.tolist(), tokens, strict=True)):
            first = len(found[row])
            _add(found[row], frontier[row], logs, words)
            stay = kept([one.q for one in found[row]], nodes, confidence.margin)
            frontier[row] = [i for i in stay if i >= first]
        if level + 1 == depth or not any(frontier):
            break
        run = _next_level(found, frontier, started, ran, state.window)
        hidden = predicted.gather(1, run.sources[..., None].expand(-1, -1, predicted.shape[2]))
        predicted, above = network.descend(state, above, hidden, run.tokens, run.level)
        started, ran = ran, ran + run.tokens.shape[1]
    return [_tree(row, kept([one.q for one in row], nodes, confidence.margin)) for row in found]


def _add(found: list[Candidate], frontier: list[int], logs: list[list[float]], words: list[list[int]]) -> None:
    """The children of the nodes that ran; what else ran in the level filled it up for another row."""
    for parent, their_logs, their_words in zip(frontier, logs, words, strict=False):
        above = found[parent] if parent >= 0 else None
        path = [] if above is None else [*above.path, above.slot]
        for log, word in zip(their_logs, their_words, strict=True):
            found.append(Candidate(word, log + (0.0 if above is None else above.q), parent, path))


class _Run(NamedTuple):
    """One level of all rows: tokens [B, M], where their parents are among the predictions [B, M], where they stand."""

    tokens: Tensor
    sources: Tensor
    level: Level


def _next_level(
    found: list[list[Candidate]], frontier: list[list[int]], started: int, ran: int, window: Tensor
) -> _Run:
    """The nodes that run next, each row filled up to the widest with nodes that nobody reads.

    Args:
        found: of every row, all candidates.
        frontier: of every row, those that run.
        started: nodes that had run before the level above.
        ran: those that have run now.
        window: [B, W-1, C].
    """
    width = max(map(len, frontier))
    tokens, sources, ancestors = [], [], []
    for candidates, chosen in zip(found, frontier, strict=True):
        here = [candidates[i] for i in chosen]
        for i, one in enumerate(here):
            one.slot = ran + i
        idle = width - len(here)
        parents = [candidates[one.parent].slot - started if one.parent >= 0 else 0 for one in here]
        tokens.append([one.token for one in here] + [0] * idle)
        sources.append(parents + [0] * idle)
        ancestors.append([one.path for one in here] + [list[int]()] * idle)
    level = level_of(ancestors, ran, window.shape[1] + 1, window.device)
    return _Run(torch.tensor(tokens, device=window.device), torch.tensor(sources, device=window.device), level)


def _tree(found: list[Candidate], stay: list[int]) -> tuple[list[int], list[int]]:
    """What is kept as parents and tokens, the root being node 0."""
    node = {-1: 0} | {i: place + 1 for place, i in enumerate(stay)}
    return [node[found[i].parent] for i in stay], [found[i].token for i in stay]
