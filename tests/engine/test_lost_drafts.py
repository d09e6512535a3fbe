"""A token whose embedding is NaN, drafted in every step and never accepted: the text is AR's own."""

from functools import cache

import pytest
import torch

from specla.drafters.base import Draft
from specla.drafters.oracle import OracleDrafter
from specla.engine.decode import Prefilled, prefill
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.topology import DraftTree, chain, kary
from tests.engine.texts import GREEDY, LIMIT, SPECULATIVE, ar_texts, decoding, finish
from tests.models.cases import prompts, tiny_model


class Spoiled(OracleDrafter):
    """An oracle's drafts with a token in place of every second child and of the last node."""

    token = 0

    def draft(self, tree: DraftTree) -> Draft:
        drawn = super().draft(tree)
        spoiled = {child for children in drawn.tree.children for child in children[1:]} | {drawn.tree.nodes - 1}
        spoiled |= {node for node in range(drawn.tree.nodes) if spoiled & set(drawn.tree.path(node))}
        tokens = [[self.token if node in spoiled else at for node, at in enumerate(row)] for row in drawn.tokens]
        return Draft(tokens, drawn.tree, drawn.trees, drawn.shaped)


@cache
def spoiled_model() -> tuple[GatedDeltaNetLM, Prefilled, list[list[int]], int]:
    """A model with a NaN embedding, two prompts, AR's texts, and the token, which none of them holds."""
    model, ids = tiny_model(num_v_heads=4), prompts(5, 3)
    start = prefill(model, ids, GREEDY)
    texts = ar_texts(model, start, GREEDY, LIMIT + 8)
    token = next(t for t in range(97) if all(t not in text for text in (*texts, *ids)))
    model.model.embeddings.weight[token] = torch.nan
    return model, start, texts, token


@pytest.mark.parametrize("pair", SPECULATIVE, ids=["-".join(pair) for pair in SPECULATIVE])
def test_rejected_nan_drafts_change_nothing(pair: tuple[str, str]) -> None:
    model, start, texts, token = spoiled_model()
    drafter = Spoiled(1.0, texts, model.config.vocab_size, 0)
    drafter.token = token
    tree = chain(3) if pair[0] == "chain" else kary(2, 10)
    made = decoding(model, start, drafter, tree, pair, sampling=GREEDY)
    steps = finish(made)
    assert made.emitted == [text[:LIMIT] for text in texts]
    assert max(a for step in steps for a in step.accepted) >= 1
    assert made.flush().recurrent.isfinite().all()


def test_an_accepted_nan_shows() -> None:
    """A text with that token has no finite state any more: nothing was replaced that counts."""
    model, _, _, token = spoiled_model()
    wanted, state = model.prefill(torch.tensor([[1, token, 2]]))
    assert wanted.isnan().any() and not bool(state.recurrent.isfinite().all())
