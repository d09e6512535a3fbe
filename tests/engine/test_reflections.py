"""Whether write strengths may exceed 1 is the model's to say: whatever verifies and commits hears of it."""

import pytest
import torch

from specla.engine.recovery import EngineRecovery
from specla.models.state import DecodeState
from specla.ops.types import TreeTensors
from specla.ops.verify import Auto, VerifyStrategy
from specla.ops.verify.tree import TreeMask
from specla.topology import kary
from tests.models.cases import tiny_model, tokens


@pytest.mark.parametrize("reflects", [False, True])
@torch.inference_mode()
def test_strategies_hear_of_it(reflects: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through `auto` as well, which may have verified for another model before."""
    heard = []
    solve = TreeMask._solve
    monkeypatch.setattr(TreeMask, "_solve", lambda mask, *given: heard.append(mask.reflects) or solve(mask, *given))
    model, tree = tiny_model(allow_neg_eigval=reflects), kary(2, 6)
    auto, mask = Auto(), TreeMask()
    strategies: tuple[VerifyStrategy, ...] = (auto, mask)
    for strategy in strategies:
        strategy.reflects = not reflects
        state = DecodeState.empty(model.config, 1, model.dtype, model.device)
        recovery = EngineRecovery("factors", model, state, tree.depth + 1)
        assert recovery.strategy.reflects == reflects
        model.forward_nodes(tokens(1, tree.nodes), TreeTensors.from_tree(tree), recovery.layers(), strategy)
    assert heard == [reflects] * 2 * model.config.num_hidden_layers
