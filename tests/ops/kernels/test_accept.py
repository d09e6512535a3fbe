"""The walk, the stop rule and the oracle on a device, held against those of the host's loop, cycle by cycle."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from specla.drafters.oracle import OracleDrafter
from specla.engine import accept as host
from specla.engine.decode import StopRule
from specla.ops.kernels.accept import accept
from specla.ops.kernels.choose import Best, Places, best_of_parts
from specla.ops.kernels.oracle import draft
from specla.ops.sampling import Sampling
from specla.ops.texts import Drafts, Ends, Log, Texts, Traces
from specla.ops.types import TreeTensors
from specla.topology import DraftTree, chain, explicit, kary

VOCABULARY, BATCH, CYCLES = 11, 3, 24
TREES = [chain(0), chain(4), kary(2, 7), kary(3, 13), explicit((-1, 0, 0, 1, 1, 2, 4))]


@dataclass
class Host:
    """What the loop on the host keeps of its rows."""

    roots: list[int]
    lengths: Tensor
    stop: StopRule
    emitted: list[list[int]] = field(default_factory=list)
    finished: list[bool] = field(default_factory=list)

    def step(self, logits: Tensor, tokens: Tensor, tree: TreeTensors) -> tuple[list[int], list[int], Tensor]:
        """(accepted, kept, length) of every row."""
        rows = torch.arange(BATCH, device=logits.device)
        found = host.accept(logits, tokens, tree, Sampling(), rows, self.lengths)
        kept = []
        for row in range(BATCH):
            new: list[int] = []
            if not self.finished[row]:
                upto = int(found.accepted[row]) + 1
                new, self.finished[row] = self.stop.cut(found.emitted[row, :upto].tolist(), len(self.emitted[row]))
                self.emitted[row] += new
                self.roots[row] = new[-1]
            kept.append(len(new))
        length = (found.accepted + 1).masked_fill(torch.tensor(self.finished, device=logits.device), 0)
        self.lengths = self.lengths + length
        return found.accepted.tolist(), kept, length


def texts(roots: list[int], device: torch.device) -> Texts:
    """After a prefill of 10 tokens a row."""
    emitted = torch.full((BATCH, 64), -7, device=device)
    emitted[:, 0] = torch.tensor(roots, device=device)
    ones = torch.ones(BATCH, dtype=torch.int64, device=device)
    return Texts(emitted[:, 0].clone(), 10 * ones, emitted, ones.clone(), ones == 0, 0 * ones, 0 * ones)


def log_of(places: int, device: torch.device, cycles: int = CYCLES) -> Log:
    """Empty."""
    one, other = (torch.full((cycles, BATCH), -1, dtype=torch.int16, device=device) for _ in range(2))
    return Log(one, other, torch.full((cycles, BATCH, places), -1, dtype=torch.int16, device=device))


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: f"{tree.nodes}-nodes")
@pytest.mark.parametrize("eos", [(), (3, 9)])
def test_cycles_are_those_of_the_host(tree: DraftTree, eos: tuple[int, ...], device: torch.device) -> None:
    tensors, generator = TreeTensors.from_tree(tree, device), torch.Generator().manual_seed(tree.nodes)
    roots = [1, 2, 4]
    here = Host(list(roots), torch.full((BATCH,), 10, device=device), StopRule(13, frozenset(eos)))
    here.emitted, here.finished = [[root] for root in roots], [False] * BATCH
    there, log = texts(roots, device), log_of(tree.depth + 2, device)
    ends = Ends(13, torch.tensor(eos, dtype=torch.int64, device=device))
    rows = torch.arange(BATCH, device=device)
    for cycle in range(CYCLES):
        logits = torch.randn(BATCH, tree.nodes, VOCABULARY, generator=generator).to(device)
        tokens = torch.randint(VOCABULARY, (BATCH, tree.nodes), generator=generator).to(device)
        # Every second draft is right, so that paths are long.
        right = logits.argmax(-1)[:, [max(parent, 0) for parent in tree.parents]]
        tokens = torch.where(torch.rand(tokens.shape, generator=generator).to(device) < 0.5, right, tokens)
        best = best_of_parts(logits, Sampling(), Places(rows, there.length, tensors.depths))
        walked = accept(best, tokens, tensors.parents, tree.depth, there, ends, log)
        accepted, kept, length = here.step(logits, tokens, tensors)
        assert log.accepted[cycle].tolist() == accepted and log.kept[cycle].tolist() == kept
        assert torch.equal(walked.length, length) and torch.equal(there.length, here.lengths)
        for row, path in enumerate(walked.path.tolist()):
            nodes = path[: accepted[row] + 1]
            assert [tree.parents[node] for node in nodes] == [-1, *nodes[:-1]]
            assert set(path[accepted[row] :]) == {nodes[-1]}
    assert there.root.tolist() == here.roots and there.finished.tolist() == here.finished
    assert all(here.finished) and there.cycle.tolist() == [CYCLES] * BATCH
    for row, text in enumerate(here.emitted):
        assert there.emitted[row].tolist()[: len(text)] == text and there.tokens[row] == len(text)
        assert set(there.emitted[row].tolist()[len(text) :]) == {-7}


def test_a_full_log_is_left_alone(device: torch.device) -> None:
    there, log = texts([1, 2, 4], device), log_of(1, device, cycles=1)
    ends = Ends(50, torch.zeros(0, dtype=torch.int64, device=device))
    tensors = TreeTensors.from_tree(chain(0), device)
    where = Places(torch.arange(BATCH, device=device), there.length, tensors.depths)
    for _ in range(3):
        best = best_of_parts(torch.zeros(BATCH, 1, VOCABULARY, device=device), Sampling(), where)
        accept(best, torch.zeros(BATCH, 1, dtype=torch.int64, device=device), tensors.parents, 0, there, ends, log)
    assert log.kept.tolist() == [[1, 1, 1]] and there.tokens.tolist() == [4, 4, 4]


def test_of_equal_parts_the_first_token_is_taken(device: torch.device) -> None:
    """As argmax does on the host; what a part has no score for is none."""
    there, log = texts([1, 2, 4], device), log_of(1, device)
    score = torch.tensor([[[1.0, 3.0, 3.0]], [[3.0, 3.0, 3.0]], [[-torch.inf, 2.0, 1.0]]], device=device)
    token = torch.tensor([[[9, 5, 7]], [[2, 5, 7]], [[0, 6, 8]]], dtype=torch.int32, device=device)
    tensors, ends = TreeTensors.from_tree(chain(0), device), Ends(50, torch.zeros(0, dtype=torch.int64, device=device))
    roots = torch.zeros(BATCH, 1, dtype=torch.int64, device=device)
    accept(Best(score, token), roots, tensors.parents, 0, there, ends, log)
    assert there.root.tolist() == [5, 2, 6]


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: f"{tree.nodes}-nodes")
@pytest.mark.parametrize("alpha", [0.0, 1.0, 0.7, [[0.5, 0.3], [0.4, 0.2, 0.2]]])
def test_drafts_are_those_of_the_host_s_oracle(tree: DraftTree, alpha: object, device: torch.device) -> None:
    generator = np.random.default_rng(tree.nodes)
    traces = [generator.integers(VOCABULARY, size=length).tolist() for length in (20, 9, 14)]
    oracle = OracleDrafter(alpha, traces, VOCABULARY, seed=5, rows=[4, 0, 7])  # type: ignore[arg-type]
    roots = [trace[0] for trace in traces]
    oracle.begin([[]] * BATCH, roots)
    known = oracle.known(24)
    there = Traces(*(x.to(device) for x in (known.text, known.length, known.luck, known.thresholds)))
    parents = TreeTensors.from_tree(tree, device).parents
    drafts = Drafts(
        torch.zeros(6, BATCH, tree.nodes, dtype=torch.int64, device=device), torch.zeros(1, device=device) > 0
    )
    at, seen, here = [0] * BATCH, [], texts(roots, device)
    for cycle in range(8):
        tokens = torch.full((BATCH, tree.nodes), -1, device=device)
        root = torch.tensor([trace[place] for trace, place in zip(traces, at, strict=True)], device=device)
        places = torch.tensor(at, device=device) + 1
        here = here._replace(root=root, tokens=places, cycle=torch.full_like(places, cycle))
        draft(tokens, parents, here, there, drafts, VOCABULARY)
        assert tokens.tolist() == oracle.draft(tree).tokens
        seen.append(tokens)
        steps = [int(generator.integers(0, 3)) for _ in at]
        emitted = [trace[place + 1 : place + 1 + step] for trace, place, step in zip(traces, at, steps, strict=True)]
        oracle.observe(emitted)
        at = [place + len(new) for place, new in zip(at, emitted, strict=True)]
    # Again, from wherever the text is now: what was kept.
    drafts.again.fill_(True)
    for cycle in range(6):
        tokens = torch.full((BATCH, tree.nodes), -1, device=device)
        draft(tokens, parents, here._replace(cycle=torch.full_like(places, cycle)), there, drafts, VOCABULARY)
        assert torch.equal(tokens, seen[cycle])
