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
        chosen, rows = accepted(path, length, state.shape[0]), state.shape[0]
        commits, ends = chosen.rows.expand(rows), chosen.nodes[:, -1:].expand(rows, -1)
        batch = record.states[0].shape[0]
        layers = zip(record.states, state.split(batch), ends.split(batch), commits.split(batch), strict=True)
        for states, part, end, commit in layers:
            if state.device.type != "cpu":
                torch.where(commit[:, None, None, None], take_nodes(states, end)[:, 0], part, out=part)
                continue
            # The host can read the index: one copy a row, and none of a row that commits nothing.
            for row, ((node,), goes_on) in enumerate(zip(end.tolist(), commit.tolist(), strict=True)):
                if goes_on:
                    part[row] = states[row, node]
