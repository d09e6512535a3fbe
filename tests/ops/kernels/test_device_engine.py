"""Decoding by cycles on a device: AR's own text with every pair, in graphs on a GPU, interpreted on a CPU."""

from dataclasses import replace

import pytest
import torch

from specla.drafters.device import DeviceDrafter, DeviceOracle, NoDrafts
from specla.engine.decode import Prefilled, StopRule, prefill
from specla.engine.device import DeviceDecoding, How, window
from specla.engine.recovery import Recovery
from specla.errors import SpeclaError
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops import pairs
from specla.ops.sampling import Sampling
from specla.ops.verify import get_verify
from specla.topology import DraftTree, chain, kary
from tests.engine.texts import GREEDY, PAIRS, SAMPLED, SPINE, ar_texts, lively_model, off_from, oracle
from tests.models.cases import prompts
from tests.ops.kernels.replays import replays

LIMIT = 9
INTERPRETED = [
    ("ar", "in_place"),
    ("ar", "factors_lazy"),
    ("chain", "snapshot"),
    ("tree", "factors"),
    ("tree", "factors_deferred"),
    ("hybrid", "factors_lazy"),
    ("tree", "replay_tokens"),
]
"""The interpreter takes some seconds for each; a GPU runs all pairs."""
ALL = [pytest.param(pair, marks=() if pair in INTERPRETED else pytest.mark.gpu, id="-".join(pair)) for pair in PAIRS]


def started(device: torch.device, sampling: Sampling) -> tuple[GatedDeltaNetLM, Prefilled, list[list[int]]]:
    """A model on the device, two rows after their prompts, and AR's texts."""
    # Kernels take sizes of heads from 16 up. A second model where it moves: the first is shared.
    make = lively_model if device.type == "cpu" else lively_model.__wrapped__
    model = make(head_dim=16).to(device)
    model = model if device.type == "cpu" else model.prepare()
    with torch.inference_mode():
        start = prefill(model, prompts(5, 3), sampling, [4, 7])
        return model, start, ar_texts(model, start, sampling, LIMIT + 16)


def engine(
    model: GatedDeltaNetLM,
    start: Prefilled,
    drafter: DeviceDrafter,
    trees: tuple[DraftTree, ...],
    pair: tuple[str, str],
    eos: tuple[int, ...] = (),
) -> DeviceDecoding:
    """That begins on `start`."""
    verify = get_verify(pair[0], pairs.NEEDS[pair[1]])
    how = How(verify, Recovery(pair[1], 8), start.sampling, StopRule(LIMIT, frozenset(eos)))
    decoding = DeviceDecoding(model, len(start.roots), trees, drafter, how, replays(model.device))
    decoding.begin(start)
    return decoding


def finish(decoding: DeviceDecoding) -> int:
    """Cycles to the end of every row."""
    cycles = 0
    while not all(decoding.finished):
        decoding.advance()
        cycles += 1
    return cycles


def device_oracle(model: GatedDeltaNetLM, texts: list[list[int]], alpha: object = 1.0) -> DeviceOracle:
    """That knows these texts."""
    return DeviceOracle(oracle(model, texts, alpha), LIMIT + 16, model.device, model.config.vocab_size)


@pytest.mark.parametrize("pair", ALL)
def test_every_pair_emits_the_text_of_ar(pair: tuple[str, str], device: torch.device) -> None:
    model, start, texts = started(device, GREEDY)
    expected = [text[:LIMIT] for text in texts]
    tree = chain(0) if pair[0] == "ar" else chain(3) if pair[0] == "chain" else kary(2, 7)
    drafter = NoDrafts() if pair[0] == "ar" else device_oracle(model, texts, 0.7)
    decoding = engine(model, start, drafter, (tree,), pair)
    cycles = finish(decoding)
    assert decoding.emitted == expected
    assert cycles == LIMIT - 1 if pair[0] == "ar" else cycles < LIMIT - 1
    # Once more in the same memory, past its end: nothing of the first time is left, and nothing moves any more.
    decoding.begin(start)
    decoding.advance(cycles + 2)
    assert decoding.emitted == expected and all(decoding.finished)
    steps = decoding.steps(cycles)
    for row, text in enumerate(expected):
        assert [token for step in steps for token in step.emitted[row]] == text[1:]
    assert window(decoding.log.kept) <= cycles


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("recover", ["factors", "factors_deferred", "factors_lazy"])
def test_trees_of_several_depths_share_one_state(sampling: Sampling, recover: str, device: torch.device) -> None:
    model, start, texts = started(device, sampling)
    trees = (chain(0), chain(2), SPINE)
    decoding = engine(model, start, device_oracle(model, texts, [[0.0, 1.0]]), trees, ("tree", recover))
    depths = [0, SPINE.depth, 2, 0, 0, 2, SPINE.depth, 0, 2]
    for depth in depths:
        decoding.advance(1, depth)
    assert decoding.emitted == [text[:LIMIT] for text in texts]
    steps = decoding.steps(len(depths), depths)
    assert [step.tree.depth for step in steps] == depths


def test_rows_end_at_their_own_end_of_text(device: torch.device) -> None:
    model, start, texts = started(device, GREEDY)
    end = texts[0][3]
    decoding = engine(model, start, device_oracle(model, texts), (chain(4),), ("tree", "factors_deferred"), (end,))
    finish(decoding)
    stop = StopRule(LIMIT, frozenset({end}))
    assert decoding.emitted == [stop.cut(text, 0)[0] for text in texts]


def test_a_row_off_its_trace_goes_on_and_finds_back(device: torch.device) -> None:
    model, start, texts = started(device, GREEDY)
    wrong = off_from(texts, [3, 60], model.config.vocab_size)
    drafter = device_oracle(model, wrong)
    decoding = engine(model, start, drafter, (chain(4),), ("tree", "factors"))
    decoding.advance(2)
    before = decoding.steps(2)
    assert before[0].accepted[0] < 4 == before[0].accepted[1]
    settled = decoding.settled()
    with torch.inference_mode():
        assert ar_texts(model, replace(settled), GREEDY, 4)[0] == texts[0][len(decoding.emitted[0]) - 1 :][:4]
    finish(decoding)
    assert decoding.emitted == [text[:LIMIT] for text in texts]


def test_a_ring_that_is_too_small_is_refused(device: torch.device) -> None:
    model, _, texts = started(device, GREEDY)
    how = How(get_verify("tree"), Recovery("factors_lazy", 3), GREEDY, StopRule(LIMIT))
    with pytest.raises(SpeclaError, match=r"engine.ring=3: a step commits up to 5 tokens"):
        DeviceDecoding(model, 2, (chain(4),), device_oracle(model, texts), how)
