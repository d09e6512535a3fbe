"""The aligned drafter on a device: the drafts of the one on the host, and AR's own text whatever it drafts."""

import pytest
import torch

from specla.drafters.aligned import AlignedDrafter
from specla.drafters.device import DeviceOracle
from specla.drafters.device_aligned import DeviceAligned
from specla.drafters.network import AlignedNetwork
from specla.engine.decode import Decoding, Prefilled, StopRule, prefill
from specla.engine.device import DeviceDecoding, How
from specla.engine.recovery import Recovery
from specla.errors import SpeclaError
from specla.models.drafter import DrafterConfig
from specla.models.drafter_checkpoint import random_drafter
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops.kernels.choose import Places, Room, place_best
from specla.ops.sampling import Sampling
from specla.ops.verify import get_verify
from specla.topology import DraftTree, chain, explicit, kary
from tests.engine.texts import GREEDY, SAMPLED, ar_texts, lively_model, oracle
from tests.models.cases import prompts
from tests.ops.kernels.replays import replays

LIMIT = 8
TREES = [chain(3), kary(2, 7), explicit([-1, 0, 0, 2, 2, 4])]


def started(device: torch.device, sampling: Sampling, vocabulary: int = 97) -> tuple[GatedDeltaNetLM, Prefilled]:
    """A model on the device, and two rows after prompts of different lengths."""
    make = lively_model if device.type == "cpu" else lively_model.__wrapped__
    model = make(head_dim=16, vocab_size=vocabulary).to(device)
    model = model if device.type == "cpu" else model.prepare()
    with torch.inference_mode():
        return model, prefill(model, prompts(5, 3, vocabulary=vocabulary), sampling, [4, 7])


def network(model: GatedDeltaNetLM, vocabulary: int | None = None) -> AlignedNetwork:
    """Untrained."""
    return AlignedNetwork(model, random_drafter(DrafterConfig.of(model.config), model.dtype, model.device), vocabulary)


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
@pytest.mark.parametrize("vocabulary", [None, 9], ids=["all tokens", "few tokens"])
def test_drafts_are_those_of_the_host(tree: DraftTree, vocabulary: int | None, device: torch.device) -> None:
    model, start = started(device, GREEDY)
    net = network(model, vocabulary)
    host = AlignedDrafter(net, GREEDY, start.rows)
    decoding = Decoding(model, start, tree, host, get_verify("tree"), "factors", StopRule(LIMIT))
    how = How(get_verify("tree"), Recovery("factors"), GREEDY, StopRule(LIMIT))
    there = DeviceAligned(net, GREEDY, 2, [tree.depth])
    engine = DeviceDecoding(model, 2, (tree,), there, how, replays(device))
    engine.begin(start)
    while not decoding.done:
        with torch.inference_mode():
            drafted = there.draft(engine.cycles[tree.depth].tensors, engine.texts).tokens
            expected = host.draft(tree).tokens
        going = [row for row, ended in enumerate(decoding.finished) if not ended]
        assert [drafted[row].tolist() for row in going] == [expected[row] for row in going]
        decoding.step()
        engine.advance()
    assert engine.emitted == decoding.emitted


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_the_text_is_that_of_ar(sampling: Sampling, device: torch.device) -> None:
    model, start = started(device, sampling)
    texts = ar_texts(model, start, sampling, LIMIT + 8)
    how = How(get_verify("tree"), Recovery("factors_deferred"), sampling, StopRule(LIMIT))
    worker = DeviceAligned(network(model), sampling, 2, [2, 0])
    paid = DeviceOracle(oracle(model, texts, 0.7), LIMIT + 8, device, model.config.vocab_size, worker)
    for drafter in (DeviceAligned(network(model), sampling, 2, [2, 0]), paid):
        engine = DeviceDecoding(model, 2, (chain(0), chain(2)), drafter, how, replays(device))
        engine.begin(start)
        cycle = 0
        while not all(engine.finished):
            engine.advance(1, 0 if cycle == 1 else 2)
            cycle += 1
        assert engine.emitted == [text[:LIMIT] for text in texts]


@pytest.mark.parametrize("reduced", [False, True], ids=["all tokens", "few tokens"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_best_tokens_of_a_vocabulary_in_parts(count: int, reduced: bool, device: torch.device) -> None:
    logits = torch.randn(2, 3, 9001, generator=torch.Generator().manual_seed(count)).to(device)
    rows = torch.zeros(2, dtype=torch.int64, device=device)
    places = Places(rows, rows, rows[None, :1].expand(1, 3).contiguous())
    # Backwards, and the second node's last one nowhere.
    columns = torch.arange(3 * count, device=device).flip(0)
    columns[2 * count - 1] = -1
    ids = torch.randperm(20_000, device=device)[:9001].sort().values if reduced else None
    tokens = torch.full((2, 4 * count), -7, device=device)
    place_best(logits, GREEDY, places, count, Room(tokens, columns, ids))
    best = logits.topk(count, dim=-1).indices.flatten(1)
    best = best if ids is None else ids[best]
    expected = torch.full_like(tokens, -7)
    for place, column in enumerate(columns.tolist()):
        if column >= 0:
            expected[:, column] = best[:, place]
    assert torch.equal(tokens, expected)


def test_room_that_a_kernel_cannot_write_is_refused(device: torch.device) -> None:
    logits, rows = torch.randn(2, 1, 50, device=device), torch.zeros(2, dtype=torch.int64, device=device)
    places, columns = Places(rows, rows, rows[None, :1]), torch.arange(2, device=device)
    with pytest.raises(SpeclaError, match=r"room for drafted tokens with strides \(1, 2\)"):
        place_best(logits, GREEDY, places, 2, Room(rows.new_zeros(2, 2).t(), columns))
    with pytest.raises(SpeclaError, match="their columns with a stride of 2"):
        place_best(logits, GREEDY, places, 2, Room(rows.new_zeros(2, 2), torch.arange(4, device=device)[::2]))
    with pytest.raises(SpeclaError, match="0 ranks"):
        place_best(logits, GREEDY, places, 0, Room(rows.new_zeros(2, 2), columns[:0]))
