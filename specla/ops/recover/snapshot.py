"""A dense state per draft, of which recovery picks one: what most engines do."""

import torch
from torch import Tensor

from specla.ops.recover.base import Record, RecoverStrategy, accepted
from specla.ops.rows import take_nodes


class Snapshot(RecoverStrategy):
    """Copies the accepted node's state over the committed one."""

    name = "snapshot"

    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor) -> None:
        assert record.states is not None, "snapshot: verification left no states"
        chosen = accepted(path, length, state.shape[0])
        if state.device.type == "cpu":
            # The host can read the index: one copy a row, and none of a row that commits nothing.
            ends = torch.where(chosen.rows, chosen.nodes[:, -1], -1).expand(state.shape[0]).tolist()
            for row, node in enumerate(ends):
                if node >= 0:
                    state[row] = record.states[row, node]
            return
        picked = take_nodes(record.states, chosen.nodes[:, -1:])[:, 0]
        torch.where(chosen.rows[:, None, None, None], picked, state, out=state)
