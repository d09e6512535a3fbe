"""AR's texts, the models that write them, and decodes to hold against them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from specla.drafters.base import Drafter, NoDrafter
from specla.drafters.oracle import OracleDrafter
from specla.engine.decode import Decoding, Prefilled, Step, StopRule
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops import pairs
from specla.ops.sampling import Sampling, choose
from specla.ops.verify import get_verify
from specla.topology import DraftTree, chain, explicit
from tests.models.cases import tiny_model

GREEDY, SAMPLED = Sampling(), Sampling(0.8, 0.95, seed=1)
LIMIT = 24
PAIRS = [(verify, recover) for verify, recovers in pairs.RECOVERS_WITH.items() for recover in recovers]
SPECULATIVE = [(verify, recover) for verify, recover in PAIRS if verify != "ar"]
SPINE = explicit([-1, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10])
"""Two children a node, the second of which goes on: a path down is not a run of neighbouring nodes."""


@cache
def lively_model(**changes: Any) -> GatedDeltaNetLM:
    """Random weights and grouped value heads; its texts do not run in circles. Shared: do not change it."""
    return tiny_model(**{"num_v_heads": 4, "conv_bias": True, **changes})


def decoding(
    model: GatedDeltaNetLM,
    start: Prefilled,
    drafter: Drafter,
    tree: DraftTree = chain(4),  # noqa: B008 (a tree is frozen)
    pair: tuple[str, str] = ("tree", "factors"),
    limit: int = LIMIT,
    sampling: Sampling = SAMPLED,
    eos: Sequence[int] = (),
) -> Decoding:
    """A decode of this pair; its trees are chains where it can do no others."""
    verify, recover = pair
    strategy = get_verify(verify, pairs.NEEDS[recover])
    start = replace(start, sampling=sampling)
    return Decoding(model, start, tree, drafter, strategy, recover, StopRule(limit, frozenset(eos)))


def finish(decoding: Decoding) -> list[Step]:
    """Decode to the end of every row."""
    steps = []
    while not decoding.done:
        steps.append(decoding.step())
    return steps


def ar_texts(model: GatedDeltaNetLM, start: Prefilled, sampling: Sampling, limit: int) -> list[list[int]]:
    """AR's tokens, the prefill's first; no token ends a text."""
    ar = decoding(model, start, NoDrafter(), chain(0), ("ar", "in_place"), limit, sampling)
    finish(ar)
    return ar.emitted


def oracle(model: GatedDeltaNetLM, texts: list[list[int]], alpha: object = 1.0, seed: int = 0) -> OracleDrafter:
    """An oracle that knows these texts."""
    return OracleDrafter(alpha, texts, model.config.vocab_size, seed)  # type: ignore[arg-type]


def off_from(texts: list[list[int]], places: Sequence[int], vocabulary: int) -> list[list[int]]:
    """The texts with every token of row r wrong from places[r] on: an oracle that follows them is wrong there."""
    rows = zip(texts, places, strict=True)
    return [[*text[:place], *((token + 1) % vocabulary for token in text[place:])] for text, place in rows]


def full_recompute(model: GatedDeltaNetLM, prompt: list[int], sampling: Sampling, row: int, limit: int) -> list[int]:
    """AR with no state at all: the whole text is run again for every token."""
    text, emitted = list(prompt), list[int]()
    with torch.inference_mode():
        while len(emitted) < limit:
            logits = model.logits(model(torch.tensor([text]))[:, -1])
            emitted.append(int(choose(logits, sampling, torch.tensor([row]), torch.tensor([len(text)]))))
            text.append(emitted[-1])
    return emitted
