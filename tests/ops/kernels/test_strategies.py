"""Every strategy as it runs on a GPU: the equations, and CUDA graphs that replay what was run eagerly."""

import pytest
import torch
from torch import Tensor

from specla.ops import pairs
from specla.ops.reference import reference_verify
from specla.ops.types import VerifyOutput
from specla.ops.verify import STRATEGIES, get_verify
from specla.topology import DraftTree, chain, kary
from tests.ops.kernels.verification import PUBLISHED, Case, draw

pytestmark = pytest.mark.gpu
BATCH = 8
TREES = {"ar": chain(0), "chain": chain(8)}
"""What cannot run a binary tree of 31 nodes."""
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def entry_of(name: str) -> str:
    return "verify_split" if name in ("tree", "auto") else "verify"


def drawn(tree: DraftTree, dtype: torch.dtype, device: torch.device, ring: bool, seed: int = 0) -> Case:
    valid = torch.rand(BATCH, 16, generator=torch.Generator().manual_seed(seed)) < 0.7 if ring else None
    return draw(tree, PUBLISHED, BATCH, dtype, valid, seed).to(device)


def tensors(found: VerifyOutput) -> list[Tensor]:
    """Everything that was made."""
    made = [found.out, found.states, *(found.factors or ())]
    return [x for x in made if x is not None]


@every_strategy
@pytest.mark.parametrize("ring", [False, True], ids=["fresh", "ring"])
@torch.inference_mode()
def test_against_the_equations(name: str, ring: bool, dtype: torch.dtype, device: torch.device) -> None:
    case = drawn(TREES.get(name, kary(2, 31)), dtype, device, ring)
    before = case.state.clone()
    found = get_verify(name, pairs.makes(name)).verify(*case)
    case.check(found, before, entry_of(name))


@every_strategy
@torch.inference_mode()
def test_some_rows_fold(name: str, device: torch.device) -> None:
    """A ring that is taken into the state of every other row; the others keep their bits."""
    case = drawn(TREES.get(name, kary(2, 31)), torch.bfloat16, device, ring=True)
    assert case.known is not None
    fold = torch.arange(BATCH, device=device) % 2 == 0
    state, known = case.state.clone(), case.known
    found = get_verify(name).verify(state, *case[1:], fold)
    assert torch.equal(state[~fold], case.state[~fold])
    folded = case.state.double()
    reference_verify(folded, *case[1:], fold)
    rest = case._replace(state=folded.float(), known=known._replace(valid=known.valid & ~fold[:, None]))
    rest.check(found, rest.state.clone(), entry_of(name))


@every_strategy
@pytest.mark.parametrize("ring", [False, True], ids=["fresh", "ring"])
@torch.inference_mode()
def test_a_graph_replays_what_was_run(name: str, ring: bool, device: torch.device) -> None:
    """Captured once, then replayed on other inputs, state and ring in the same memory: the same bits as eagerly."""
    tree = TREES.get(name, kary(2, 31))
    held, *others = (drawn(tree, torch.bfloat16, device, ring, seed) for seed in range(3))
    strategy = get_verify(name, pairs.makes(name))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            strategy.verify(*held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = tensors(strategy.verify(*held))
    for case in others:
        expected = tensors(strategy.verify(*case))
        _overwrite(held, case)
        for x in captured:
            if x.data_ptr() != held.inputs.k.data_ptr():
                x.fill_(torch.nan)
        for _ in range(2):
            graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(x, y) for x, y in zip(captured, expected, strict=True))


def _overwrite(held: Case, case: Case) -> None:
    held.state.copy_(case.state)
    pairs_of = list(zip(held.inputs, case.inputs, strict=True))
    if held.known is not None and case.known is not None:
        pairs_of += [*zip(held.known.factors, case.known.factors, strict=True), (held.known.valid, case.known.valid)]
    for one, other in pairs_of:
        one.copy_(other)
