"""Token replay: the accepted tokens' factors are generated again, then run one by one. The paper's baseline."""

from collections.abc import Callable

import torch
from torch import Tensor

from specla.ops.conv import move_window
from specla.ops.recover.base import Record, RecoverStrategy, accepted
from specla.ops.rows import take_nodes
from specla.ops.step import read_step, write_step
from specla.ops.types import Moving, NodeInputs

Regenerate = Callable[[Tensor, Tensor], NodeInputs]
"""(x [B, L, hidden] along the path, window [B, W-1, C]) -> projections, convolution and gates of one layer, again."""


class ReplayTokens(RecoverStrategy):
    """Projections, convolution and gates in one batch, then the decode step token by token, each storing the state.

    Args:
        regenerate: of one layer.
    """

    name = "replay_tokens"

    def __init__(self, regenerate: Regenerate) -> None:
        self.regenerate = regenerate

    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor, moving: Moving | None = None) -> None:
        assert record.x is not None and record.window is not None, "replay_tokens: no layer input, or no window"
        chosen = accepted(path, length, state.shape[0])
        inputs = self.regenerate(take_nodes(record.x, chosen.nodes), record.window)
        if state.is_cuda:
            from specla.ops.kernels.launch import Taken
            from specla.ops.kernels.replay import replay

            # The regenerated tokens stand in the order of the path.
            tokens = torch.arange(path.shape[1], device=path.device).expand(state.shape[0], -1)
            for place in range(path.shape[1]):
                # The window goes along in the first launch, in which every row that commits takes part.
                replay(state, inputs, Taken(tokens, length, path), moving if place == 0 else None, (place, 1))
            return
        for place in range(chosen.valid.shape[1]):
            token = NodeInputs(*(x[:, place : place + 1] for x in inputs))
            _, u = read_step(state, token)
            write_step(state, token, u, chosen.valid[:, place])
        move_window(moving, path, length)
