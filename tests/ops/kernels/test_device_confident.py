"""Trees shaped on a device: those of the host, whatever the drafter is sure of, and AR's own text along them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specla.drafters.aligned import AlignedDrafter
from specla.drafters.breadth import breadths, too_wide
from specla.drafters.confidence import Confidence, kept
from specla.drafters.device_confident import DeviceConfident
from specla.engine.decode import Decoding, StopRule
from specla.engine.device import DeviceDecoding, How
from specla.engine.recovery import Recovery
from specla.errors import SpeclaError
from specla.ops import pairs
from specla.ops.growth import Kept, Level, Likely
from specla.ops.kernels.choose import Places
from specla.ops.kernels.grow import grow
from specla.ops.kernels.lay import lay
from specla.ops.kernels.likely import likeliest
from specla.ops.noise import gumbel_noise
from specla.ops.sampling import Sampling, log_probabilities
from specla.ops.types import TreeTensors
from specla.ops.verify import get_verify
from specla.topology import DraftTree, chain, kary
from tests.engine.texts import GREEDY, SAMPLED, SPINE, ar_texts
from tests.ops.kernels.replays import replays
from tests.ops.kernels.test_device_aligned import LIMIT, network, started

FEW = 6
"""Tokens of the target: so few that a drafter that knows nothing is often right."""


def envelope(nodes: int, depth: int) -> DraftTree:
    """A tree of that size, whatever its shape."""
    return DraftTree((*range(-1, depth), *[0] * (nodes - 1 - depth)), f"confidence-n{nodes}")


@pytest.mark.parametrize(
    ("nodes", "depth", "confidence", "vocabulary", "sampling"),
    [
        pytest.param(9, 4, Confidence(3, None), None, GREEDY, id="greedy"),
        pytest.param(9, 4, Confidence(3, None), 4, SAMPLED, id="sampled from few tokens", marks=pytest.mark.gpu),
        pytest.param(6, 5, Confidence(2, 1.0), 4, GREEDY, id="margin, from few tokens", marks=pytest.mark.gpu),
        pytest.param(5, 3, Confidence(2, 1.0), None, SAMPLED, id="margin, sampled"),
        pytest.param(3, 2, Confidence(40, 0.2), 4, SAMPLED, id="wider than its vocabulary"),
        pytest.param(2, 1, Confidence(1, 3.0), None, GREEDY, id="one draft"),
        pytest.param(64, 8, Confidence(4, None), None, GREEDY, id="64 nodes", marks=pytest.mark.gpu),
    ],
)
def test_trees_are_those_of_the_host(
    nodes: int, depth: int, confidence: Confidence, vocabulary: int | None, sampling: Sampling, device: torch.device
) -> None:
    model, start = started(device, sampling, FEW)
    net, tree = network(model, vocabulary), envelope(nodes, depth)
    host = AlignedDrafter(net, sampling, start.rows, confidence)
    decoding = Decoding(model, start, tree, host, get_verify("tree"), "factors", StopRule(LIMIT))
    there = DeviceConfident(net, sampling, 2, [tree], confidence)
    how = How(get_verify("tree"), Recovery("factors"), sampling, StopRule(LIMIT))
    engine = DeviceDecoding(model, 2, (tree,), there, how, replays(device))
    engine.begin(start)
    steps = []
    while not decoding.done:
        going = [row for row, ended in enumerate(decoding.finished) if not ended]
        with torch.inference_mode():
            drafted, expected = there.draft(engine.cycles[depth].tensors, engine.texts), host.draft(tree)
        for row in going:
            own = (expected.trees or (expected.tree,) * 2)[row]
            assert drafted.tree.parents[row].tolist() == [*own.parents, *[-1] * (nodes - own.nodes)]
            assert drafted.tokens[row, : own.nodes].tolist() == expected.tokens[row][: own.nodes]
        steps.append(decoding.step())
        engine.advance()
    assert engine.emitted == decoding.emitted == [text[:LIMIT] for text in ar_texts(model, start, sampling, LIMIT)]
    for step, there_step in zip(steps, engine.steps(len(steps)), strict=True):
        for row, tokens in enumerate(step.emitted):
            if tokens:
                assert there_step.tree_of(row).parents == step.tree_of(row).parents
                assert (there_step.emitted[row], there_step.path[row]) == (tokens, step.path[row])


PAIRS = [("tree", "factors_deferred"), ("auto", "factors_lazy"), ("parent_pointer", "snapshot")]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_cuts_of_a_shaped_tree_share_one_state(pair: tuple[str, str], device: torch.device) -> None:
    model, start = started(device, GREEDY, FEW)
    trees = (chain(0), envelope(4, 2), envelope(9, 4))
    there = DeviceConfident(network(model), GREEDY, 2, trees, Confidence(3, 4.0))
    how = How(get_verify(pair[0], pairs.NEEDS[pair[1]]), Recovery(pair[1], 8), GREEDY, StopRule(LIMIT))
    engine = DeviceDecoding(model, 2, trees, there, how, replays(device))
    engine.begin(start)
    depths = [4, 0, 2, 4, 2, 0, 4, 2]
    for depth in depths:
        engine.advance(1, depth)
    assert engine.emitted == [text[:LIMIT] for text in ar_texts(model, start, GREEDY, LIMIT)]
    steps = engine.steps(len(depths), depths)
    assert any(accepted for step in steps for accepted in step.accepted)
    for depth, step in zip(depths, steps, strict=True):
        for row in range(2):
            tree = step.tree_of(row)
            assert tree.depth <= depth and tree.nodes <= {0: 1, 2: 4, 4: 9}[depth]
            assert list(tree.path(step.path[row][-1])) == step.path[row]


class Row:
    """One row's drafts as the host keeps them: a candidate is (q, token, parent), parents among the candidates."""

    def __init__(self, margin: float | None, nodes: int) -> None:
        self.margin, self.nodes = margin, nodes
        self.found: list[tuple[float, int, int]] = []
        self.frontier = [-1]

    def add(self, logs: Tensor, tokens: Tensor) -> None:
        """The children of the frontier, a line of `logs` [F, k] each."""
        first = len(self.found)
        for parent, their_logs, their_tokens in zip(self.frontier, logs.tolist(), tokens.tolist(), strict=False):
            q = self.found[parent][0] if parent >= 0 else 0.0
            self.found += [(q + log, token, parent) for log, token in zip(their_logs, their_tokens, strict=True)]
        self.frontier = [i for i in self.stay if i >= first]

    @property
    def stay(self) -> list[int]:
        """What is kept."""
        return kept([q for q, _, _ in self.found], self.nodes, self.margin)

    @property
    def tree(self) -> tuple[list[int], list[int]]:
        """(parents, tokens) of what is kept, the root being node 0."""
        place = {-1: 0} | {one: i + 1 for i, one in enumerate(self.stay)}
        return [place[self.found[i][2]] for i in self.stay], [self.found[i][1] for i in self.stay]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    nodes=st.integers(2, 64),
    depth=st.integers(1, 5),
    branching=st.integers(1, 5),
    margin=st.none() | st.floats(0.25, 6.0).map(lambda x: round(4 * x) / 4),
)
def test_what_stays_is_what_best_first_search_keeps(
    seed: int, nodes: int, depth: int, branching: int, margin: float | None
) -> None:
    grow_beside_the_host(seed, nodes, depth, branching, margin)


def test_growth_of_three_levels() -> None:
    """One case by itself, for compute-sanitizer."""
    grow_beside_the_host(3, 12, 3, 3, 2.5)


def grow_beside_the_host(seed: int, nodes: int, depth: int, branching: int, margin: float | None) -> None:
    """Grow two rows from random probabilities, and hold every level against the host's."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator, depth = torch.Generator().manual_seed(seed), min(depth, nodes - 1)
    rows = [Row(margin, nodes) for _ in range(2)]
    levels, drafts = [*breadths(nodes, depth, branching), None], Kept.roots(2, nodes, device)
    above, ran_last, started, last = None, 1, 0, None
    for number, level in enumerate(levels):
        # Quarters: sums of them are exact, and many are equal.
        logs = -(torch.rand(2, ran_last, branching, generator=generator) * 16).round().sort(-1).values / 4
        # Outside a nucleus nothing is possible; a draft that is certain may be so by either zero.
        logs = logs.masked_fill(logs < -3.5, -torch.inf) + torch.where(logs == 0, -0.0, 0.0)
        tokens = torch.randint(1000, logs.shape, generator=generator)
        after = 1 if number == 0 else started + ran_last
        ran, width = level or (0, 0)
        likely = Likely(logs.to(device), tokens.to(device))
        drafts, running = grow(likely, above, drafts, Level(started, after, ran, width), margin)
        for row, their_logs, their_tokens in zip(rows, logs, tokens, strict=True):
            row.add(their_logs, their_tokens)
        if level is not None:
            forest = lay(running.ids, running.parents, 4, number)
            for i, row in enumerate(rows):
                of_row = [q for q in running.q[i].tolist() if q > -torch.inf]
                assert of_row == [row.found[one][0] for one in row.frontier]
                depths = forest.depths[i, ran:][: len(of_row)].tolist()
                assert depths == [number] * len(of_row)
                assert forest.ancestors[i].sum(1).tolist() == forest.depths[i].tolist()
            # Whoever ran before is found where it stood.
            if last is not None:
                moved = last.gather(1, running.moved)
                real = running.ids[:, :ran] >= 0
                assert torch.equal(moved[real], running.ids[:, :ran][real])
            above, last, started, ran_last = running.q, running.ids, after, width
    grown = lay(drafts.ids, drafts.parents, 4, depth)
    for i, row in enumerate(rows):
        parents, tokens_kept = row.tree
        own = TreeTensors.from_rows([DraftTree((-1, *parents))], device, 4, nodes)
        for name in ("parents", "depths", "ancestors", "taps"):
            assert torch.equal(getattr(grown, name)[i], getattr(own, name)[0]), name
        assert drafts.tokens[i, 1 : len(parents) + 1].tolist() == tokens_kept


@pytest.mark.parametrize("tree", [chain(0), chain(6), kary(3, 14), SPINE], ids=lambda tree: tree.name)
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_tree_is_laid_out_as_the_host_does(tree: DraftTree, width: int, device: torch.device) -> None:
    # Identities in any order, all of them known.
    ids = torch.randperm(50, generator=torch.Generator().manual_seed(tree.nodes))[: tree.nodes]
    parents = torch.tensor([-1 if parent < 0 else int(ids[parent]) for parent in tree.parents])
    found = lay(ids[None].to(device), parents[None].to(device), width, tree.depth)
    expected = TreeTensors.from_tree(tree, device, width)
    for name in ("parents", "depths", "ancestors", "taps"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert found.deepest == tree.depth and not found.shared


@pytest.mark.parametrize(
    "sampling", [GREEDY, Sampling(0.8, 1.0, 3), Sampling(1.3, 0.6, 5)], ids=["greedy", "sampled", "nucleus"]
)
@pytest.mark.parametrize("vocabulary", [7, 9001])
def test_likely_tokens_have_their_probabilities(vocabulary: int, sampling: Sampling, device: torch.device) -> None:
    logits = 2 * torch.randn(2, 3, vocabulary, generator=torch.Generator().manual_seed(7)).to(device)
    rows, lengths = torch.tensor([4, 9], device=device), torch.tensor([11, 30], device=device)
    places = Places(rows, lengths, torch.full((1, 3), 2, device=device))
    scores = logits
    if not sampling.greedy:
        positions = (lengths + 3)[:, None].expand(2, 3)
        noise = gumbel_noise(sampling.seed, rows[:, None].expand(2, 3), positions, vocabulary)
        scores = log_probabilities(logits, sampling) + noise
    ids = torch.randperm(20_000, device=device)[:vocabulary]
    best = scores.log_softmax(-1).topk(5, dim=-1)
    for order in (None, ids):
        found = likeliest(logits, sampling, places, 5, order)
        there = best.values > -torch.inf
        torch.testing.assert_close(found.logs, best.values, rtol=1e-5, atol=1e-5)
        tokens = best.indices if order is None else order[best.indices]
        assert torch.equal(found.tokens[there], tokens[there])


def test_what_a_kernel_cannot_take_is_refused(device: torch.device) -> None:
    logits, rows = torch.randn(1, 2, 50, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    places = Places(rows, rows, torch.zeros(1, 2, dtype=torch.int64, device=device))
    with pytest.raises(SpeclaError, match="the 51 likeliest of 50 tokens"):
        likeliest(logits, GREEDY, places, 51)
    likely, roots = likeliest(logits, GREEDY, places, 2), Kept.roots(1, 5, device)
    with pytest.raises(SpeclaError, match="side by side"):
        grow(Likely(likely.logs.mT, likely.tokens.mT), None, roots, Level(0, 1, 0, 2), None)
    with pytest.raises(SpeclaError, match=r"q of the nodes above of \(1, 3\)"):
        grow(likely, torch.zeros(1, 3, device=device), roots, Level(0, 1, 0, 2), None)
    with pytest.raises(SpeclaError, match="side by side"):
        lay(roots.ids.expand(2, 5), roots.parents.expand(2, 5), 4)
    with pytest.raises(SpeclaError, match="parents of"):
        lay(roots.ids, roots.parents[:, :4], 4)


def test_trees_that_no_level_holds_are_refused(device: torch.device) -> None:
    assert too_wide(envelope(64, 8), 4) is None and too_wide(chain(127), 1) is None
    model, _ = started(device, GREEDY)
    with pytest.raises(SpeclaError, match=r"topology.nodes=128: .* give fewer nodes"):
        DeviceConfident(network(model), GREEDY, 1, [envelope(128, 8)], Confidence(4, 3.0))
