"""What builds up over many steps: rounding in the committed state, and the ring of lazy factors."""

import pytest
import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.recover import Record, get_recover
from specla.ops.reference import reference_commit
from specla.ops.types import Factors, HeadShape, NodeInputs
from specla.topology import chain
from tests.ops.cases import PLAIN, node_inputs, paths, random_state, same_bits, shared
from tests.ops.steps import make, step
from tests.tolerances import assert_close

TOKENS = 8192


@pytest.fixture(scope="module")
def long_text() -> tuple[NodeInputs, Tensor, Tensor]:
    """8,192 tokens of slow decay, whose errors live long; the state before and, in float64, after."""
    generator = torch.Generator().manual_seed(5)
    shape = HeadShape(1, 2, 16, 16)
    inputs = node_inputs(1, TOKENS + 12, shape, generator)
    inputs = inputs._replace(g=inputs.g * 1e-3)
    state = random_state(1, shape, generator)
    everything = torch.arange(TOKENS)[None]
    return inputs, state, reference_commit(state.double(), inputs, everything, torch.tensor([TOKENS]))


@pytest.fixture(scope="module")
def reflections() -> tuple[NodeInputs, Tensor, Tensor]:
    """The same with one key in every token, a write strength of 2 and no decay: no error fades."""
    generator = torch.Generator().manual_seed(1)
    shape = HeadShape(1, 1, 64, 16)
    inputs = node_inputs(1, TOKENS + 12, shape, generator)
    k = inputs.k[:, :1].expand_as(inputs.k).contiguous()
    inputs = inputs._replace(k=k, g=torch.zeros_like(inputs.g), beta=torch.full_like(inputs.beta, 2.0))
    state = random_state(1, shape, generator)
    return inputs, state, reference_commit(state.double(), inputs, torch.arange(TOKENS)[None], torch.tensor([TOKENS]))


WAYS = pytest.mark.parametrize(
    ("verify", "recover"),
    [
        ("ar", "factors"),
        ("ar", "factors_lazy"),
        ("chain", "snapshot"),
        ("tree", "factors"),
        ("tree", "factors_deferred"),
        ("tree", "factors_lazy"),
        ("tree", "replay_cached"),
        ("tree", "replay_tokens"),
    ],
)


@WAYS
def test_drift(verify: str, recover: str, long_text: tuple[NodeInputs, Tensor, Tensor]) -> None:
    decode(verify, recover, long_text)


@pytest.mark.parametrize(("verify", "recover"), [("tree", "factors"), ("tree", "factors_lazy")])
def test_drift_of_reflections(verify: str, recover: str, reflections: tuple[NodeInputs, Tensor, Tensor]) -> None:
    """In float32 products of the keys, rounded alike in every step, the tree mask would drift by 3e-4."""
    decode(verify, recover, reflections)


def decode(verify: str, recover: str, text: tuple[NodeInputs, Tensor, Tensor]) -> None:
    """All tokens in this way, and the state against the equations."""
    inputs, state, truth = text
    state = state.clone()
    tree = chain(0) if verify == "ar" else chain(11)
    verifier, recoverer, layer = make(verify, recover, tree.depth + 1, 16, reflects=bool((inputs.beta > 1).any()))
    generator = torch.Generator().manual_seed(6)
    path, done = torch.arange(tree.nodes)[None], 0
    with torch.inference_mode():
        while done < TOKENS:
            ahead = NodeInputs(*(x[:, done : done + tree.nodes] for x in inputs))
            _, record = step(verifier, recoverer, layer, state, ahead, tree)
            taken = min(int(torch.randint(1, tree.nodes + 1, (1,), generator=generator)), TOKENS - done)
            recoverer.commit(state, record, path, torch.tensor([taken]))
            done += taken
        recoverer.flush(state)
    assert_close(state, truth, "drift")


def test_the_ring_folds_a_row_only_when_it_could_overflow() -> None:
    generator = torch.Generator().manual_seed(9)
    tree = chain(2)
    verifier, recoverer, _ = make("tree", "factors_lazy", longest=3, ring=7)
    state = random_state(2, PLAIN, generator)
    start = state.clone()
    folds = []
    for _ in range(4):
        known, fold = recoverer.pending()
        folds.append(None if fold is None else fold.tolist())
        inputs = node_inputs(2, 3, PLAIN, generator)
        factors = verifier.verify(state, inputs, shared(tree), known, fold).factors
        path, length = paths([tree] * 2, [2, 0])
        recoverer.commit(state, Record(factors=factors), path, length)
    # Row 0 takes 3 a step: 0, 3, 6 of 7 places, so the third step's three could not be held. Row 1 takes 1.
    assert folds == [None, [False, False], [True, False], [False, False]]
    assert not same_bits(state[0], start[0])
    assert same_bits(state[1], start[1])


def test_a_ring_must_hold_a_step() -> None:
    with pytest.raises(SpeclaError, match=r"engine.ring=4: a step commits up to 5 tokens; give 5 or more"):
        get_recover("factors_lazy", ring=4, longest=5)
    recoverer = get_recover("factors_lazy", ring=4, longest=2)
    factors = Factors(torch.zeros(1, 3, 1, 4), torch.zeros(1, 3, 1, 4), torch.zeros(1, 3, 1))
    with pytest.raises(ValueError, match="a path of 3 nodes, where longest=2"):
        recoverer.commit(torch.zeros(1, 1, 4, 4), Record(factors=factors), torch.arange(3)[None], torch.tensor([3]))
