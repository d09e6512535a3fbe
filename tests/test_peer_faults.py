"""Fourteen faults that users of other engines met, a test each; the sixth is in tests/ops/kernels.

Every docstring says what was changed, on trial, to see the test fail.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch

from specla.bench.counting import counts
from specla.bench.plan import plan
from specla.bench.settings import to_plain
from specla.bench.summary import build_cell
from specla.best_tree import alpha_levels, best_picks, fastest
from specla.engine.adaptive import Adaptive, outcome_of
from specla.engine.decode import Decoding, Prefilled, prefill
from specla.engine.device_recovery import PENDING, DeviceRecovery
from specla.engine.recovery import Recovery
from specla.models.state import DecodeState, make_bank
from specla.ops.conv import commit_window
from specla.ops.reference import reference_commit
from specla.ops.sampling import Sampling
from specla.ops.types import HeadShape, Moving, NodeInputs
from specla.ops.verify.auto import Auto, Case, DispatchTable
from specla.topology import chain, kary
from tests.engine.texts import (
    GREEDY,
    LIMIT,
    PAIRS,
    SAMPLED,
    SPECULATIVE,
    SPINE,
    ar_texts,
    decoding,
    finish,
    full_recompute,
    lively_model,
    oracle,
)
from tests.factory import decode_record
from tests.models.cases import prompts
from tests.ops.cases import PLAIN, node_inputs, paths, random_state, same_bits, shared
from tests.ops.steps import make, step
from tests.tolerances import RELATIVE_RMS, assert_close, relative_rms

each_pair = pytest.mark.parametrize("pair", PAIRS, ids=["-".join(pair) for pair in PAIRS])
ALWAYS_SECOND = [[0.0, 1.0]]
"""Of `SPINE`: the child that goes on, every time."""


@cache
def started(sampling: Sampling = GREEDY) -> tuple[Prefilled, list[list[int]]]:
    """Three rows after their prompts, and AR's texts."""
    start = prefill(lively_model(), prompts(5, 9, 3), sampling)
    return start, ar_texts(lively_model(), start, sampling, LIMIT + 16)


@pytest.fixture
def nan_in_new_memory() -> Iterator[None]:
    """What torch allocates without filling it holds NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@each_pair
def test_01_zero_accepted_drafts_write_nothing_through_slot_minus_one(pair: tuple[str, str]) -> None:
    """A step that accepts no draft commits its root alone, one of a finished row nothing, and no neighbour's memory.

    Tried with: `recover.base.accepted` whose `places < length` is `places <= length`, and `commit_window` likewise.
    """
    generator = torch.Generator().manual_seed(1)
    tree = {"ar": chain(0), "chain": chain(3)}.get(pair[0], kary(2, 7))
    verifier, recoverer, layer = make(*pair, tree.depth + 1)
    memory = random_state(6, PLAIN, generator)
    before, state = memory.clone(), memory[1:5]
    inputs = node_inputs(4, tree.nodes, PLAIN, generator)
    _, record = step(verifier, recoverer, layer, state, inputs, tree)
    window, raw = torch.randn(4, 3, 5, generator=generator), torch.randn(4, tree.nodes, 5, generator=generator)
    moving = Moving(window.clone(), raw)
    path, length = paths([tree] * 4, [0, -1, 0, -1], padding=tree.nodes - 1)
    recoverer.commit(state, record, path, length, moving)
    recoverer.flush(state)
    assert same_bits(memory[[0, 2, 4, 5]], before[[0, 2, 4, 5]])
    assert_close(state, reference_commit(before[1:5].double(), inputs, path, length), "commit")
    assert torch.equal(moving.window[[1, 3]], window[[1, 3]])
    assert torch.equal(moving.window[[0, 2]], torch.cat((window[[0, 2], 1:], raw[[0, 2], :1]), dim=1))


@pytest.mark.parametrize("pair", [("ar", "factors_lazy"), ("tree", "factors_deferred"), ("hybrid", "replay_cached")])
def test_02_rows_that_have_ended_write_no_state(pair: tuple[str, str]) -> None:
    """A batch goes on with rows that have ended as padding: their state, window and length stay as they are.

    Tried with: `Decoding._commit` without its `masked_fill`.
    """
    start, texts = started()
    tree = chain(0) if pair[0] == "ar" else SPINE
    end = next(token for token in texts[0][2:] if token not in texts[1][:12] + texts[2][:12])
    made = decoding(lively_model(), start, oracle(lively_model(), texts), tree, pair, 12, GREEDY, [end])
    while not made.finished[0]:
        made.step()
    ended = made.flush().clone()
    finish(made)
    after = made.flush()
    assert same_bits(after.recurrent[:, 0], ended.recurrent[:, 0])
    assert torch.equal(after.window[:, 0], ended.window[:, 0])
    assert int(after.lengths[0]) == int(ended.lengths[0]) < int(after.lengths[1])


@pytest.mark.parametrize("pair", SPECULATIVE, ids=["-".join(pair) for pair in SPECULATIVE])
def test_03_the_convolutions_window_is_rolled_back(pair: tuple[str, str]) -> None:
    """After steps that accept some drafts and reject others, the window is that of the emitted text.

    Tried with: `move_window` that returns at once.
    """
    start, texts = started()
    model, tree = lively_model(), chain(4) if pair[0] == "chain" else kary(2, 8)
    made = decoding(model, start, oracle(model, texts, [[0.6, 0.2]]), tree, pair, LIMIT, GREEDY)
    for _ in range(4):
        made.step()
    assert window_error(made) < RELATIVE_RMS["model"]


def window_error(made: Decoding) -> float:
    """Of the windows, against those of a prefill of prompt and text, relative."""
    state, worst = made.flush(), 0.0
    start, _ = started()
    for row, prompt in enumerate(start.prompts):
        committed = [*prompt, *made.emitted[row][:-1]]
        with torch.inference_mode():
            _, fresh = lively_model().prefill(torch.tensor([committed]))
        worst = max(worst, relative_rms(state.window[:, row], fresh.window[:, 0]))
    return worst


def test_04_window_and_state_have_indices_of_their_own() -> None:
    """Five and more accepted nodes, none beside the next: the window holds the inputs of the last three of them.

    Tried with: `commit_window` that takes places of the path for nodes.
    """
    raw = torch.arange(13.0)[None, :, None]
    window = torch.tensor([-3.0, -2.0, -1.0])[None, :, None]
    for end in (0, 2, 4, 6, 8, 10, 12):
        path, length = paths([SPINE], [end], padding=1)
        wanted = [-3.0, -2.0, -1.0, *SPINE.path(end)][-3:]
        assert commit_window(window, raw, path, length).flatten().tolist() == wanted
    start, texts = started()
    model = lively_model()
    made = decoding(model, start, oracle(model, texts, ALWAYS_SECOND), SPINE, ("tree", "factors"), LIMIT, GREEDY)
    assert min(made.step().accepted) == SPINE.depth == 6
    assert window_error(made) < RELATIVE_RMS["model"]


@pytest.mark.parametrize("recover", ["factors", "factors_deferred", "factors_lazy"])
def test_05_factors_keep_their_digits_over_long_texts(recover: str) -> None:
    """768 tokens of slow decay from a bfloat16 model: within the drift bound, which factors in 16 bits are past.

    Tried with: `u.bfloat16().float()` in `path_factors`.
    """
    exact = _error_after(recover, lambda u: u)
    rounded = _error_after(recover, lambda u: u.bfloat16().float())
    assert exact < 0.05 * RELATIVE_RMS["drift"] and rounded > 2 * RELATIVE_RMS["drift"]


def _error_after(recover: str, kept) -> float:  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(5)
    shape, tokens, tree = HeadShape(1, 1, 32, 32), 768, chain(7)
    inputs = node_inputs(1, tokens, shape, generator, torch.bfloat16)
    inputs = inputs._replace(g=inputs.g * 1e-3)
    state = random_state(1, shape, generator)
    path, length = torch.arange(8)[None], torch.tensor([8])
    truth = reference_commit(state.double(), inputs, torch.arange(tokens)[None], torch.tensor([tokens]))
    verifier, recoverer, layer = make("tree", recover, 8, ring=16)
    for done in range(0, tokens, 8):
        ahead = NodeInputs(*(x[:, done : done + 8] for x in inputs))
        _, record = step(verifier, recoverer, layer, state, ahead, tree)
        assert record.factors is not None and record.factors.u.dtype == torch.float32
        factors = record.factors._replace(u=kept(record.factors.u))
        recoverer.commit(state, record._replace(factors=factors), path, length)
    recoverer.flush(state)
    return relative_rms(state, truth)


@pytest.mark.parametrize("recover", PENDING)
def test_07_what_a_step_writes_is_not_what_it_reads(recover: str) -> None:
    """A verification takes pending factors in and makes new ones in one launch, whose programs end in any order.

    Tried with: `DeviceRecovery.layers` that hands out the bank's own memory as known factors.
    """
    model, longest = lively_model(head_dim=16), 4
    state = DecodeState.empty(model.config, 2, model.dtype, model.device)
    device = DeviceRecovery(Recovery(recover, 8), model, state, longest)
    bank = make_bank(model.config, (model.config.num_hidden_layers, 2, 7), state.window)
    for layer in device.layers(bank):
        assert layer.known is not None and layer.bank is not None
        read = {x.untyped_storage().data_ptr() for x in layer.known.factors}
        written = {x.untyped_storage().data_ptr() for x in layer.bank}
        assert not read & written
    # The torch forms: factors that are pending stay what they were while the next ones are made.
    generator = torch.Generator().manual_seed(7)
    verifier, recoverer, layer_of = make("tree", "factors_deferred" if recover == "in_place" else recover, 3)
    held, tree = random_state(1, PLAIN, generator), chain(2)
    _, record = step(verifier, recoverer, layer_of, held, node_inputs(1, 3, PLAIN, generator), tree)
    recoverer.commit(held, record, *paths([tree], [2]))
    known, fold = recoverer.pending()
    assert known is not None
    kept = [x.clone() for x in known.factors]
    verifier.verify(held, node_inputs(1, 3, PLAIN, generator), shared(tree), known, fold)
    assert all(torch.equal(x, y) for x, y in zip(known.factors, kept, strict=True))


@each_pair
@pytest.mark.usefixtures("nan_in_new_memory")
def test_08_memory_that_nobody_filled_is_never_read(pair: tuple[str, str]) -> None:
    """Everything that is allocated holds NaN, and the text is AR's.

    Tried with: `torch.empty` in `DecodeState.empty`.
    """
    assert bool(torch.empty(2).isnan().all())
    _, texts = started()
    tree = {"ar": chain(0), "chain": chain(4)}.get(pair[0], kary(2, 8))
    model = lively_model()
    start = prefill(model, prompts(5, 9, 3), GREEDY)
    if pair[0] == "ar":
        assert [text[:8] for text in ar_texts(model, start, GREEDY, 8)] == [text[:8] for text in texts]
        return
    made = decoding(model, start, oracle(model, texts, [[0.6, 0.2]]), tree, pair, 8, GREEDY)
    finish(made)
    assert made.emitted == [text[:8] for text in texts]


def test_09_drafts_cost_factors_and_not_states() -> None:
    """At 128 x 128 heads a node leaves under 2.5 % of a state, whatever recovers from factors; snapshots leave all.

    Tried with: states kept by `chain` where factors alone are needed.
    """
    generator = torch.Generator().manual_seed(9)
    shape, tree = HeadShape(1, 1, 128, 128), chain(15)
    inputs, state = node_inputs(1, 16, shape, generator, torch.bfloat16), random_state(1, shape, generator)
    for verify, recover in PAIRS:
        if verify == "ar":
            continue
        verifier, recoverer, layer = make(verify, recover, 16)
        _, record = step(verifier, recoverer, layer, state.clone(), inputs, tree)
        kept = [*(record.factors or ()), *(record.states or ())]
        share = sum(x.nbytes for x in kept) / 16 / state.nbytes
        assert share >= 1 if recover == "snapshot" else share < 0.025, (verify, recover, share)


def test_10_a_slow_speculation_says_why_and_stops() -> None:
    """A cell that is slower than AR shows where its time goes and what was accepted; an adaptive one stops drafting.

    Tried with: `Adaptive.rates` that leaves times out.
    """
    cell = build_cell(decode_record(speedup=0.7, alpha=(0.1, 0.1)))
    assert cell["speedup"]["median"] == pytest.approx(0.7)  # type: ignore[index]
    split = cell["split_us"]
    assert split is not None and set(split) == {"draft", "verify", "accept", "commit"}
    assert cell["tau"] is not None and cell["tau"] < 1.2 and cell["alpha"] == pytest.approx([0.1, 0.1], abs=0.01)
    assert cell["draft_efficiency"] is not None and cell["mbu"] is not None
    adaptive = Adaptive(chain(4))
    for _ in range(300):
        depth = adaptive.choose().depth
        # A large batch: a step costs as much as its nodes.
        adaptive.observe(outcome_of(depth, depth, [1 if depth else 0, 0, 0, 0], 1.0 + depth))
    assert adaptive.steps[0] > 0.9 * 300 and "no drafts in 9" in adaptive.told


@pytest.mark.parametrize("pair", [("chain", "factors"), ("tree", "factors_lazy"), ("hybrid", "factors_deferred")])
def test_11_temperature_counts_while_speculating(pair: tuple[str, str]) -> None:
    """Sampled drafts verify to AR's sampled text, which is not the greedy one, nor that of another seed.

    Tried with: `accept` that is given `Sampling()`.
    """
    model, tree = lively_model(), chain(4) if pair[0] == "chain" else kary(2, 8)
    found = []
    for sampling in (GREEDY, SAMPLED, Sampling(0.8, 0.95, seed=2)):
        start, texts = started(sampling)
        made = decoding(model, start, oracle(model, texts, 0.7), tree, pair, LIMIT, sampling)
        finish(made)
        assert made.emitted == [text[:LIMIT] for text in texts]
        # AR goes through the same loop: a text written without it says that the loop has not dropped the temperature.
        assert made.emitted[0][:10] == full_recompute(model, start.prompts[0], sampling, 0, 10)
        found.append(made.emitted)
    assert found[0] != found[1] != found[2] != found[0]


def test_12_nothing_counts_behind_the_end_of_text() -> None:
    """A perfect drafter accepts four drafts in the step in which the second one ends the text: two of them count.

    Tried with: `Counter.add` with `step.accepted[row]` as it is.
    """
    start, texts = started()
    text = texts[0]
    place = next(place for place in (7, 6, 8, 11) if text.index(text[place]) == place and (place - 1) % 5)
    made = decoding(lively_model(), start, oracle(lively_model(), texts), eos=[text[place]], sampling=GREEDY)
    steps = finish(made)
    tally = counts([("", ((one, 0) for one in steps))])
    assert made.emitted[0] == text[: place + 1]
    assert tally.emitted == place and tally.steps == -(-place // 5)
    assert tally.accepted == place - place // 5
    assert sum(tally.accepted_at) == tally.accepted < sum(one.accepted[0] for one in steps)


def test_13_the_baseline_is_as_strong_as_the_method() -> None:
    """AR is the same engine with the method's model, sampling, workload and measure, and no other choice of its own.

    Tried with: `fla-generate` as the engine of `_add_ar`.
    """
    planned = plan("bench e2e", ["sampling.temperature=0.8", "workload.batch=4", "dtype=bfloat16", "threads=1"])
    method, ar = sorted(planned.cells, key=lambda cell: cell.method.verify == "ar")
    own, other = to_plain(method.settings), to_plain(ar.settings)
    differing = {key for key in own if own[key] != other[key]}
    assert differing <= {"engine", "drafter", "topology"}
    assert ar.settings.engine.name == "specla" and ar.method.verify == "ar" and ar.tree.nodes == 1


def test_14_a_tree_that_is_slower_is_not_taken() -> None:
    """Where a chain of as many nodes is faster, `auto` walks it; and a tree is grown only where it pays.

    Tried with: `max` for `min` in `Auto._choose`, and `<` for `>` in `fastest`.
    """
    times = {Case(True, 8, 4): {"chain": 20.0, "tree": 25.0, "hybrid": 30.0}, Case(False, 8, 4): {"tree": 26.0}}
    auto = Auto(table=DispatchTable("cpu", PLAIN, times))
    strategy, why = auto.choose(chain(7), 4, PLAIN)
    assert strategy.name == "chain" and "it took 20.0 us (tree 25.0, hybrid 30.0)" in why
    # Second choices are hardly ever right, and a node costs a tenth of a step.
    alpha = alpha_levels([[0.8, 0.01]], 6)
    seconds = np.array([[1 + nodes / 10 for _ in range(7)] for nodes in range(13)])
    best = fastest(best_picks(alpha, seconds))
    assert best.depth == best.nodes - 1 >= 3
