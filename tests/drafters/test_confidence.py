"""Trees shaped by confidence: valid, within budget and margin, ancestors kept, and what best-first search keeps."""

import heapq
from typing import cast

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specla.drafters.confidence import Confidence, draft_confident, kept
from specla.drafters.network import AlignedNetwork, DrafterState
from specla.ops.level import Level
from specla.ops.sampling import Sampling
from specla.topology import DraftTree

VOCABULARY = 6


class Words:
    """A drafter whose scores depend on the path alone, which its hidden state, a number, stands for."""

    def scores(self, hidden: Tensor, sampling: Sampling, rows: Tensor, positions: Tensor) -> Tensor:
        flat = [words_after(int(number)) for number in hidden.flatten().tolist()]
        return torch.stack(flat).view(*hidden.shape[:2], VOCABULARY)

    def tokens(self, places: Tensor) -> Tensor:
        return places

    def descend(
        self, state: DrafterState, above: object, hidden: Tensor, tokens: Tensor, level: Level
    ) -> tuple[Tensor, object]:
        return further(hidden[..., 0], tokens)[..., None], above


def words_after(number: int) -> Tensor:
    return 3 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(number))


def further(number: Tensor, token: Tensor) -> Tensor:
    return (number * 31 + token + 1).long() % 100003


def best_first(number: int, nodes: int, depth: int, confidence: Confidence) -> set[tuple[int, ...]]:
    """The paths that expanding one node at a time keeps."""
    queue: list[tuple[float, tuple[int, ...], int]] = []

    def expand(q: float, path: tuple[int, ...], at: int) -> None:
        best = words_after(at).log_softmax(-1).topk(confidence.branching)
        for log, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            after = int(further(torch.tensor(at), torch.tensor(token)))
            heapq.heappush(queue, (-(q + log), (*path, token), after))

    expand(0.0, (), number)
    found: set[tuple[int, ...]] = set()
    top = -queue[0][0]
    while queue and len(found) < nodes - 1:
        q, path, at = heapq.heappop(queue)
        if confidence.margin is not None and -q < top - confidence.margin:
            break
        found.add(path)
        if len(path) < depth:
            expand(-q, path, at)
    return found


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 10**4), min_size=1, max_size=3),
    nodes=st.integers(2, 24),
    depth=st.integers(1, 6),
    branching=st.integers(1, VOCABULARY),
    margin=st.none() | st.floats(0.1, 8.0),
)
def test_it_keeps_what_best_first_search_keeps(
    numbers: list[int], nodes: int, depth: int, branching: int, margin: float | None
) -> None:
    confidence = Confidence(branching, margin)
    state = DrafterState(torch.empty(0), torch.zeros(len(numbers), 3, 1), torch.tensor(numbers)[:, None].double())
    rows = torch.arange(len(numbers))
    network = cast(AlignedNetwork, Words())
    found = draft_confident(network, state, confidence, (nodes, depth), Sampling(), rows, rows)
    for number, (parents, tokens) in zip(numbers, found, strict=True):
        tree = DraftTree((-1, *parents))
        assert 2 <= tree.nodes <= nodes and tree.depth <= depth
        paths = [tuple(tokens[i - 1] for i in tree.path(node)[1:]) for node in range(1, tree.nodes)]
        assert len(set(paths)) == len(paths)
        assert set(paths) == best_first(number, nodes, depth, confidence)


@given(
    steps=st.lists(st.tuples(st.integers(-1, 30), st.floats(0.0, 5.0)), min_size=1, max_size=31),
    nodes=st.integers(2, 20),
    margin=st.none() | st.floats(0.01, 6.0),
)
def test_ancestors_stay_within_budget_and_margin(
    steps: list[tuple[int, float]], nodes: int, margin: float | None
) -> None:
    parents = [min(parent, i - 1) for i, (parent, _) in enumerate(steps)]
    q: list[float] = []
    for parent, (_, less) in zip(parents, steps, strict=True):
        q.append((q[parent] if parent >= 0 else 0.0) - less)
    stay = kept(q, nodes, margin)
    assert 1 <= len(stay) <= nodes - 1 and stay == sorted(set(stay))
    assert all(parents[i] == -1 or parents[i] in stay for i in stay)
    if margin is not None:
        assert min(q[i] for i in stay) >= max(q) - margin
    worst = min(q[i] for i in stay)
    left_out = [value for i, value in enumerate(q) if i not in stay and (margin is None or value >= max(q) - margin)]
    assert all(value <= worst for value in left_out)


def test_nothing_is_kept_of_nothing() -> None:
    assert kept([], 5, 1.0) == []
    assert kept([-torch.inf, -1.0], 5, None) == [1]
