"""Token replay: the accepted tokens' factors are generated again, then run one by one. The paper's baseline."""

from collections.abc import Callable

from torch import Tensor

from specla.ops.recover.base import Record, RecoverStrategy, accepted
from specla.ops.rows import take_nodes
from specla.ops.step import read_step, write_step
from specla.ops.types import NodeInputs

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

    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor) -> None:
        assert record.x is not None and record.window is not None, "replay_tokens: no layer input, or no window"
        chosen = accepted(path, length, state.shape[0])
        inputs = self.regenerate(take_nodes(record.x, chosen.nodes), record.window)
        for place in range(chosen.valid.shape[1]):
            token = NodeInputs(*(x[:, place : place + 1] for x in inputs))
            _, u = read_step(state, token)
            write_step(state, token, u, chosen.valid[:, place])
