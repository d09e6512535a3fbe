"""The accepted tokens run again from their cached k, v, g and b, in one pass over the state."""

import torch
from torch import Tensor

from specla.ops.conv import move_window
from specla.ops.recover.base import Record, RecoverStrategy, accepted
from specla.ops.rows import settled, take_nodes
from specla.ops.types import Moving, NodeInputs
from specla.ops.verify.walk import Walk


class ReplayCached(RecoverStrategy):
    """Walks the path with the state live: read once, written once."""

    name = "replay_cached"

    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor, moving: Moving | None = None) -> None:
        assert record.gated is not None, "replay_cached: no cached inputs"
        if state.is_cuda:
            from specla.ops.kernels.launch import Taken
            from specla.ops.kernels.replay import replay

            replay(state, record.gated, Taken(path, length), moving)
            return
        chosen = accepted(path, length, state.shape[0])
        q, k, v, g, beta = (take_nodes(x, chosen.nodes) for x in record.gated)
        # Past its end a path decays nothing and writes nothing.
        past = ~chosen.valid[..., None]
        walk = Walk(NodeInputs(q, k, v, g.masked_fill(past, 0.0), beta.masked_fill(past, 0.0)), [1] * past.shape[1])
        walk.read(walk.start(state))
        live = walk.write(walk.start(state), None)
        for _ in range(1, past.shape[1]):
            walk.read(live)
            walk.write(live, live)
        if settled(chosen.rows, True):
            state.copy_(live.view_as(state))
        else:
            torch.where(chosen.rows[:, None, None, None], live.view_as(state), state, out=state)
        move_window(moving, path, length)
