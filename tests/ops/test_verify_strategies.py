"""Every verification against the reference in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops import pairs
from specla.ops.reference import reference_verify
from specla.ops.types import HeadShape, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify import STRATEGIES, get_verify
from specla.topology import DraftTree, chain, kary
from tests.ops.cases import (
    GROUPED,
    ODD,
    PLAIN,
    known_factors,
    node_inputs,
    random_state,
    random_tree,
    same_bits,
    shared,
    trees,
)
from tests.tolerances import assert_close

SIZES = [1, 2, 15, 16, 17, 63, 64, 65, 128]
NAMES = list(STRATEGIES)


def able(name: str, tree: DraftTree) -> bool:
    return get_verify(name).supports(tree) is None


def check(found: VerifyOutput, truth: VerifyOutput, entry: str = "verify") -> None:
    """Whatever was made is right, and in float32 where the contract says so."""
    assert found.out.dtype == torch.float32
    assert_close(found.out, truth.out, entry)
    assert truth.factors is not None and truth.states is not None
    if found.factors is not None:
        assert found.factors.u.dtype == torch.float32
        assert_close(found.factors.u, truth.factors.u, entry)
        assert_close(found.factors.decay, truth.factors.decay, entry)
        assert torch.equal(found.factors.k, truth.factors.k)
    if found.states is not None:
        assert found.states.dtype == torch.float32
        assert_close(found.states, truth.states, entry)


def run_all(
    tree: DraftTree,
    inputs: NodeInputs,
    state: Tensor,
    entry: str = "verify",
    known: Known | None = None,
    fold: Tensor | None = None,
    names: list[str] = NAMES,
) -> None:
    """Every strategy that can run the tree, making all it can, on a copy of the state."""
    folded = state.double()
    truth = reference_verify(folded, inputs, shared(tree), known, fold)
    for name in names:
        if not able(name, tree):
            continue
        held = state.clone()
        strategy = get_verify(name, pairs.makes(name))
        with torch.inference_mode():
            found = strategy.verify(held, inputs, shared(tree), known, fold)
        assert (found.factors is not None, found.states is not None) == tuple(
            record in pairs.makes(name) for record in ("factors", "states")
        ), name
        check(found, truth, entry)
        if fold is None:
            assert same_bits(held, state), f"{name} wrote the state"
            continue
        assert known is not None
        writes = fold & known.valid.any(1)
        assert same_bits(held[~writes], state[~writes]), f"{name} wrote a row that folds nothing"
        assert_close(held, folded, "commit")


@pytest.mark.parametrize("nodes", SIZES)
@pytest.mark.parametrize("kind", ["chain", "tree"])
def test_sizes(nodes: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(nodes)
    tree = chain(nodes - 1) if kind == "chain" else random_tree(nodes, generator)
    run_all(tree, node_inputs(2, nodes, PLAIN, generator), random_state(2, PLAIN, generator))


@pytest.mark.parametrize("shape", [ODD, GROUPED, HeadShape(3, 3, 8, 5), HeadShape(1, 4, 7, 9)])
@pytest.mark.parametrize("batch", [1, 3])
def test_head_shapes(shape: HeadShape, batch: int) -> None:
    generator = torch.Generator().manual_seed(batch)
    for tree in (chain(0), chain(4), random_tree(13, generator)):
        inputs = node_inputs(batch, tree.nodes, shape, generator)
        run_all(tree, inputs, random_state(batch, shape, generator))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(trees(), st.integers(0, 2**16))
def test_random_trees(tree: DraftTree, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    run_all(tree, node_inputs(1, tree.nodes, GROUPED, generator), random_state(1, GROUPED, generator))


@pytest.mark.parametrize("nodes", [2, 16, 64, 128])
@pytest.mark.parametrize("case", ["decay", "strength", "keys", "all"])
def test_extremes(nodes: int, case: str) -> None:
    """Decay of -80 and 0 beside ordinary decay, strengths of 0, 1 and 2, and the same key at every node."""
    generator = torch.Generator().manual_seed(nodes)
    for tree in (chain(nodes - 1), random_tree(nodes, generator)):
        q, k, v, g, beta = node_inputs(1, nodes, PLAIN, generator)

        def pick(values: list[float], like: Tensor) -> Tensor:
            chosen = torch.randint(len(values), like.shape, generator=generator)
            return torch.tensor(values)[chosen]

        if case in ("decay", "all"):
            g = torch.where(pick([0.0, 1.0], g) > 0, pick([-80.0, 0.0, -1e-3], g), g)
        if case in ("strength", "all"):
            beta = pick([0.0, 1.0, 2.0], beta)
        if case in ("keys", "all"):
            k = k[:, :1].expand_as(k)
        run_all(tree, NodeInputs(q, k, v, g, beta), random_state(1, PLAIN, generator), "verify_extreme")


def test_large_sums_of_decay() -> None:
    """G reaches -10,240, where float32 sums keep no digit of the small steps between recent nodes."""
    generator = torch.Generator().manual_seed(5)
    inputs = node_inputs(1, 128, PLAIN, generator)
    g = torch.where(torch.arange(128)[:, None] % 8 == 0, -640.0, inputs.g * 1e-2)
    run_all(chain(127), inputs._replace(g=g), random_state(1, PLAIN, generator))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs(dtype: torch.dtype) -> None:
    """The arithmetic is float32 on the rounded inputs: the recurrence is that of slightly different keys, no more."""
    generator = torch.Generator().manual_seed(7)
    for tree in (chain(0), chain(6), random_tree(17, generator)):
        inputs = node_inputs(2, tree.nodes, GROUPED, generator, dtype)
        valid = torch.rand(2, 3, generator=generator) < 0.7
        known = known_factors(valid, GROUPED, generator, dtype)
        run_all(tree, inputs, random_state(2, GROUPED, generator), known=known)


VALID = torch.tensor(
    [
        [True, True, True, True, True],
        [False, True, False, True, False],
        [False, False, False, False, False],
        [True, False, False, False, False],
        [False, False, False, False, True],
        [False, False, False, False, False],
    ]
)


@pytest.mark.parametrize("fold", [None, [False] * 6, [True] * 6, [True, False, True, True, False, False]])
@pytest.mark.parametrize("shape", [ODD, GROUPED])
def test_known_factors(fold: list[bool] | None, shape: HeadShape) -> None:
    """Ragged masks with NaN in the padding, and rows that fold beside rows that do not."""
    generator = torch.Generator().manual_seed(3)
    for tree in (chain(0), chain(5), random_tree(15, generator)):
        inputs = node_inputs(6, tree.nodes, shape, generator)
        known = known_factors(VALID, shape, generator)
        state = random_state(6, shape, generator)
        state[2, 0, 0, 0] = -0.0
        run_all(tree, inputs, state, known=known, fold=None if fold is None else torch.tensor(fold))


def test_a_fold_with_nothing_known_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(4)
    state = random_state(2, PLAIN, generator)
    for name in NAMES:
        tree = chain(0) if name == "ar" else chain(3)
        held = state.clone()
        inputs = node_inputs(2, tree.nodes, PLAIN, generator)
        get_verify(name).verify(held, inputs, shared(tree), None, torch.tensor([True, True]))
        assert same_bits(held, state)


@pytest.mark.parametrize("name", [name for name in NAMES if STRATEGIES[name].per_row and name != "ar"])
def test_a_tree_per_row(name: str) -> None:
    generator = torch.Generator().manual_seed(6)
    rows = [random_tree(nodes, generator) for nodes in (12, 7, 12, 1)]
    tensors = TreeTensors.from_rows(rows)
    inputs = node_inputs(4, 12, GROUPED, generator)
    state = random_state(4, GROUPED, generator)
    known = known_factors(torch.rand(4, 3, generator=generator) < 0.6, GROUPED, generator)
    fold = torch.tensor([True, False, False, True])
    truth = reference_verify(state.double(), inputs, tensors, known, fold)
    check(get_verify(name).verify(state.clone(), inputs, tensors, known, fold), truth)


def test_rows_do_not_touch_each_other() -> None:
    """A row of NaN, as an uninitialised dummy row holds, stays alone."""
    generator = torch.Generator().manual_seed(8)
    for name in NAMES:
        tree = chain(0) if name == "ar" else chain(6) if name == "chain" else kary(2, 11)
        inputs = node_inputs(3, tree.nodes, GROUPED, generator)
        state = random_state(3, GROUPED, generator)
        clean = get_verify(name).verify(state.clone(), inputs, shared(tree))
        for x in (state, *inputs):
            x[1] = torch.nan
        dirty = get_verify(name).verify(state.clone(), inputs, shared(tree))
        assert_close(dirty.out[[0, 2]], clean.out[[0, 2]], "verify")


def test_inputs_may_be_views() -> None:
    """A layer hands over slices of one packed projection."""
    generator = torch.Generator().manual_seed(9)
    tree = random_tree(11, generator)
    for batch in (1, 2):
        inputs = node_inputs(batch, 11, GROUPED, generator)
        padded = NodeInputs(*(torch.cat((x, torch.full_like(x, torch.nan)), dim=-1) for x in inputs))
        views = NodeInputs(*(wide[..., : x.shape[-1]] for wide, x in zip(padded, inputs, strict=True)))
        run_all(tree, views, random_state(batch, GROUPED, generator))


def test_names_and_needs() -> None:
    with pytest.raises(SpeclaError, match=r"engine.verify=mask: give one of ar, "):
        get_verify("mask")
    with pytest.raises(SpeclaError, match=r"engine.verify=tree makes no states: recover with replay_tokens, "):
        get_verify("tree", frozenset({"states"}))
    assert get_verify("chain", frozenset({"states"})).supports(kary(2, 4)) == (
        "chain verifies chains alone, and kary-b2-n4 has 2 leaves"
    )
    assert get_verify("ar").supports(chain(2)) == "ar drafts nothing, and chain-l2 has 2 drafts"
    with pytest.raises(ValueError, match="rows have trees of their own"):
        get_verify("hybrid").verify(
            torch.zeros(2, 2, 16, 16),
            node_inputs(2, 3, PLAIN, torch.Generator()),
            TreeTensors.from_rows([chain(2), kary(2, 3)]),
        )
