"""A dense state per draft, of which recovery picks one: what most engines do."""

from torch import Tensor

from specla.ops.conv import move_window
from specla.ops.recover.base import Record, RecoverStrategy, accepted
from specla.ops.rows import repeat_rows
from specla.ops.types import Moving


class Snapshot(RecoverStrategy):
    """Copies the accepted node's state over the committed one."""

    name = "snapshot"

    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor, moving: Moving | None = None) -> None:
        assert record.states is not None, "snapshot: verification left no states"
        if state.is_cuda:
            _pick(state, record.states, path, length, moving)
            return
        chosen, rows = accepted(path, length, state.shape[0]), state.shape[0]
        commits, ends = chosen.rows.expand(rows), chosen.nodes[:, -1:].expand(rows, -1)
        batch = record.states[0].shape[0]
        layers = zip(record.states, state.split(batch), ends.split(batch), commits.split(batch), strict=True)
        for states, part, end, commit in layers:
            # The host can read the index: one copy a row, and none of a row that commits nothing.
            for row, ((node,), goes_on) in enumerate(zip(end.tolist(), commit.tolist(), strict=True)):
                if goes_on:
                    part[row] = states[row, node]
        move_window(moving, path, length)


def _pick(state: Tensor, states: tuple[Tensor, ...], path: Tensor, length: Tensor, moving: Moving | None) -> None:
    """A launch for each layer, since their states lie apart."""
    from specla.ops.kernels.launch import Taken
    from specla.ops.kernels.pick import pick_state

    batch = states[0].shape[0]
    paths, lengths = (repeat_rows(x, len(states) * batch) for x in (path, length))
    # A single row is that of all.
    paths, lengths = (x.expand(len(states) * batch, *x.shape[1:]).split(batch) for x in (paths, lengths))
    windows: list[Moving | None] = [None] * len(states)
    if moving is not None:
        windows = [Moving(*parts) for parts in zip(*(x.split(batch) for x in moving), strict=True)]
    for part, of_layer, along, ends, window in zip(state.split(batch), states, paths, lengths, windows, strict=True):
        pick_state(part, of_layer, Taken(along, ends), window)
