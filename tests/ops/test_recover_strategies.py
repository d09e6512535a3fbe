"""Every recovery, after every verification it goes with, against the delta rule run token by token in float64."""

import pytest
import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops import pairs
from specla.ops.conv import conv_sequence
from specla.ops.recover import Record, commit_factors, get_recover
from specla.ops.reference import reference_commit, reference_verify
from specla.ops.rows import stack_factors
from specla.ops.types import Factors, HeadShape, Known, NodeInputs
from specla.ops.verify import get_verify
from specla.topology import DraftTree, chain, explicit
from tests.ops.cases import GROUPED, ODD, PLAIN, node_inputs, paths, random_state, random_tree, same_bits, shared
from tests.ops.steps import Layer, make, step
from tests.tolerances import assert_close

PAIRS = [(verify, recover) for verify, recovers in pairs.RECOVERS_WITH.items() for recover in recovers]
TREE = explicit([-1, 0, 0, 1, 1, 2, 3, 6])


def tree_for(verify: str) -> DraftTree:
    return {"ar": chain(0), "chain": chain(5)}.get(verify, TREE)


@pytest.mark.parametrize(("verify", "recover"), PAIRS)
@pytest.mark.parametrize("shape", [ODD, GROUPED])
def test_steps(verify: str, recover: str, shape: HeadShape) -> None:
    """Rows accept different lengths, some nothing; every next verification reads what was committed."""
    generator = torch.Generator().manual_seed(1)
    tree = tree_for(verify)
    verifier, recoverer, layer = make(verify, recover, tree.depth + 1)
    state = random_state(4, shape, generator)
    truth = state.double()
    for _ in range(6):
        inputs = node_inputs(4, tree.nodes, shape, generator)
        out, record = step(verifier, recoverer, layer, state, inputs, tree)
        assert_close(out, reference_verify(truth.clone(), inputs, shared(tree)).out, "verify")
        ends = torch.randint(-1, tree.nodes, (4,), generator=generator).tolist()
        path, length = paths([tree] * 4, ends, padding=tree.nodes - 1)
        recoverer.commit(state, record, path, length)
        truth = reference_commit(truth, inputs, path, length)
    recoverer.flush(state)
    known, _ = recoverer.pending()
    assert known is None or not bool(known.valid.any())
    assert_close(state, truth, "commit")


@pytest.mark.parametrize(("verify", "recover"), PAIRS)
def test_rows_that_accept_nothing_keep_their_bits(verify: str, recover: str) -> None:
    """Neither a finished row nor a padded one writes its state, though it holds NaN in all it computed."""
    generator = torch.Generator().manual_seed(2)
    tree = tree_for(verify)
    verifier, recoverer, layer = make(verify, recover, tree.depth + 1)
    state = random_state(5, GROUPED, generator)
    state[1, 0, 0, :2] = torch.tensor([-0.0, torch.nan])
    state[3] = torch.nan
    inputs = node_inputs(5, tree.nodes, GROUPED, generator)
    for part in inputs:
        part[[1, 3]] = torch.nan
    before = state.clone()
    _, record = step(verifier, recoverer, layer, state, inputs, tree)
    path, length = paths([tree] * 5, [0, -1, tree.nodes - 1, -1, -1], padding=tree.nodes - 1)
    recoverer.commit(state, record, path, length)
    recoverer.flush(state)
    assert same_bits(state[[1, 3, 4]], before[[1, 3, 4]])
    assert_close(state[[0, 2]], reference_commit(before.double(), inputs, path, length)[[0, 2]], "commit")
    after = state.clone()
    _, record = step(verifier, recoverer, layer, state, inputs, tree)
    recoverer.commit(state, record, path, torch.zeros_like(length))
    recoverer.flush(state)
    assert same_bits(state, after)


@pytest.mark.parametrize("recover", ["factors", "factors_deferred", "factors_lazy", "replay_cached", "snapshot"])
def test_rejected_nodes_are_never_read(recover: str) -> None:
    """A path is padded with valid nodes, and those may hold anything: node 7 holds NaN."""
    generator = torch.Generator().manual_seed(3)
    inputs, state = node_inputs(2, 8, GROUPED, generator), random_state(2, GROUPED, generator)
    truth = reference_verify(state.double(), inputs, shared(TREE))
    assert truth.factors is not None and truth.states is not None
    path, length = paths([TREE] * 2, [3, 5], padding=7)
    wanted = reference_commit(state.double(), inputs, path, length)
    factors = Factors(inputs.k.clone(), truth.factors.u.float(), truth.factors.decay)
    states, gated = truth.states.float(), NodeInputs(*(x.clone() for x in inputs))
    for part in (*factors, states, *gated):
        part[:, 7] = torch.nan
    recoverer = get_recover(recover, longest=path.shape[1])
    recoverer.commit(state, Record(factors=factors, states=(states,), gated=gated), path, length)
    recoverer.flush(state)
    assert_close(state, wanted, "commit")


@pytest.mark.parametrize("nodes", [1, 2, 15, 16, 17, 63, 64, 65, 128])
def test_sizes(nodes: int) -> None:
    generator = torch.Generator().manual_seed(nodes)
    tree = random_tree(nodes, generator, reach=2)
    inputs = node_inputs(2, nodes, PLAIN, generator)
    state = random_state(2, PLAIN, generator)
    truth = reference_verify(state.double(), inputs, shared(tree))
    assert truth.states is not None
    ends = [nodes - 1, nodes // 2]
    path, length = paths([tree] * 2, ends)
    for recover in ("factors", "factors_deferred", "factors_lazy", "replay_cached", "replay_tokens"):
        held = state.clone()
        verifier, recoverer, layer = make("tree", recover, path.shape[1])
        _, record = step(verifier, recoverer, layer, held, inputs, tree)
        recoverer.commit(held, record, path, length)
        recoverer.flush(held)
        for row, end in enumerate(ends):
            assert_close(held[row], truth.states[row, end], "commit")


@pytest.mark.parametrize("recover", ["factors", "factors_deferred", "factors_lazy"])
def test_large_sums_of_decay(recover: str) -> None:
    """A wipe-out within the path, and ordinary decay after it: the small differences of large sums count."""
    generator = torch.Generator().manual_seed(4)
    tree = chain(63)
    inputs = node_inputs(1, 64, PLAIN, generator)
    for g in (torch.where(torch.arange(64)[:, None] < 40, -640.0, inputs.g * 1e-2), inputs.g * 0, inputs.g * 0 - 80):
        spread = inputs._replace(g=g.expand_as(inputs.g))
        state = random_state(1, PLAIN, generator)
        path, length = paths([tree], [62])
        wanted = reference_commit(state.double(), spread, path, length)
        verifier, recoverer, layer = make("tree", recover, 64)
        _, record = step(verifier, recoverer, layer, state, spread, tree)
        recoverer.commit(state, record, path, length)
        recoverer.flush(state)
        assert_close(state, wanted, "commit")


def test_known_factors_go_in_with_the_path() -> None:
    """G counts from the last fold, so the known go in with the path; a row that accepts nothing keeps them pending."""
    generator = torch.Generator().manual_seed(7)
    line, tree = chain(3), TREE
    before, inputs = (node_inputs(3, nodes, GROUPED, generator) for nodes in (4, 8))
    state = random_state(3, GROUPED, generator)
    verifier = get_verify("tree")
    first = verifier.verify(state, before, shared(line)).factors
    assert first is not None
    valid = torch.tensor([[True, True, True, False], [False] * 4, [True, False, False, False]])
    known = Known(first, valid)
    second = verifier.verify(state, inputs, shared(tree), known).factors
    assert second is not None
    path, length = paths([tree] * 3, [6, 5, -1], padding=7)
    wanted = reference_commit(state.double(), before, torch.arange(4).repeat(3, 1), valid.sum(1))
    wanted = reference_commit(wanted, inputs, path, length)
    held = state.clone()
    commit_factors(held, second, path, length, known)
    assert_close(held[:2], wanted[:2], "commit")
    assert same_bits(held[2], state[2])


@pytest.mark.parametrize("recover", ["factors", "factors_deferred", "factors_lazy", "snapshot", "replay_cached"])
def test_layers_stack(recover: str) -> None:
    """One commit over stacked layers is the commit of every layer."""
    generator = torch.Generator().manual_seed(8)
    layers, batch = 3, 2
    states = torch.stack([random_state(batch, GROUPED, generator) for _ in range(layers)])
    truths = states.double()
    verifier, together, _ = make("chain", recover, 6)
    for _ in range(4):
        inputs = [node_inputs(batch, 6, GROUPED, generator) for _ in range(layers)]
        known, fold = together.pending()
        found = []
        for i in range(layers):
            start, stop = i * batch, (i + 1) * batch
            part = None if known is None else known.rows(start, stop)
            folds = fold[start:stop] if isinstance(fold, torch.Tensor) else fold
            found.append(verifier.verify(states[i], inputs[i], shared(chain(5)), part, folds))
        stored = tuple(output.states for output in found if output.states is not None)
        record = Record(
            factors=stack_factors([output.factors for output in found if output.factors is not None]),
            states=stored or None,
            gated=NodeInputs(*(torch.cat(parts) for parts in zip(*inputs, strict=True))),
        )
        path, length = paths([chain(5)] * batch, torch.randint(-1, 6, (batch,), generator=generator).tolist())
        together.commit(states.flatten(0, 1), record, path, length)
        truths = torch.stack([reference_commit(truths[i], inputs[i], path, length) for i in range(layers)])
    together.flush(states.flatten(0, 1))
    assert_close(states, truths, "commit")


def test_names() -> None:
    with pytest.raises(SpeclaError, match=r"engine.recover=copy: give one of in_place, replay_tokens, "):
        get_recover("copy")
    with pytest.raises(SpeclaError, match=r"engine.recover=replay_tokens needs the layer's projections"):
        get_recover("replay_tokens")
    for name, needs in pairs.NEEDS.items():
        assert get_recover(name, regenerate=Layer().regenerate).needs == needs


def test_token_replay_of_a_layer() -> None:
    """With a real convolution, the path's inputs come back from the layer's input and the window."""
    generator = torch.Generator().manual_seed(10)
    weight, window = torch.randn(48, 4, generator=generator), torch.randn(2, 3, 48, generator=generator)
    gates = torch.randn(48, 2, generator=generator)

    def regenerate(x: Tensor, before: Tensor) -> NodeInputs:
        mixed, _ = conv_sequence(x, before, weight, None)
        q, k, v = mixed.view(*x.shape[:2], 3, 2, 8).unbind(2)
        unit = torch.nn.functional.normalize
        return NodeInputs(unit(q, dim=-1), unit(k, dim=-1), v, -(x @ gates).abs(), (x @ gates).sigmoid())

    x = torch.randn(2, 8, 48, generator=generator)
    state = random_state(2, HeadShape(2, 2, 8, 8), generator)
    path, length = paths([TREE] * 2, [7, 4], padding=1)
    wanted = state.double()
    for row in range(2):
        nodes = path[row, : int(length[row])]
        inputs = regenerate(x[row : row + 1, nodes], window[row : row + 1])
        along = torch.arange(len(nodes))[None]
        wanted[row] = reference_commit(wanted[row : row + 1], inputs, along, length[row : row + 1])[0]
    recoverer = get_recover("replay_tokens", regenerate=regenerate)
    recoverer.commit(state, Record(x=x, window=window), path, length)
    assert_close(state, wanted, "commit")
