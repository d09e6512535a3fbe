"""Cells that a device could run, and must not: what it would measure is not what the equations say."""

from specla.bench.cells import Cell
from specla.bench.identity import seen_config

REFLECTED_NODES = 64
"""Of a tree whose nodes may all reflect the state."""


def reflecting_obstacle(cell: Cell, device: str) -> str:
    """Why the tree mask's kernels cannot keep a state within the drift bound (`specla.ops.reference`), or nothing."""
    large = cell.tree.nodes > REFLECTED_NODES and cell.method.verify in ("tree", "auto")
    if not (large and device.startswith("cuda") and seen_config(cell.settings.model).allow_neg_eigval):
        return ""
    return (
        f"{cell.tree.nodes} nodes under a tree mask, of a model with allow_neg_eigval, drift from the recurrence on a "
        f"GPU: give up to {REFLECTED_NODES}, or engine.verify=hybrid"
    )
