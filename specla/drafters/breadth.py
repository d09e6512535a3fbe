"""How wide the levels may get of trees that a drafter shapes, before anything is drafted."""

from typing import NamedTuple

from specla.topology import MAX_NODES, DraftTree


class Breadth(NamedTuple):
    """The most nodes of a row that a level may run: new ones, and those that have run and may be their ancestors."""

    ran: int
    width: int


def breadths(nodes: int, depth: int, branching: int) -> list[Breadth]:
    """Of every level that runs drafts: of the first depth - 1 of them, for trees of `nodes`, root included.

    A draft that stays in a level has its ancestors beside it, one in each level above.
    """
    found, ran, width = [], 0, 1
    for level in range(1, depth):
        ran = min(ran + (width if level > 1 else 0), nodes - 2)
        width = min(width * branching, nodes - level)
        found.append(Breadth(ran, width))
    return found


def too_wide(tree: DraftTree, branching: int) -> str | None:
    """Why a tree of this size cannot be shaped on a device, or None."""
    most = max((sum(level) for level in breadths(tree.nodes, tree.depth, branching)), default=0)
    if most <= MAX_NODES:
        return None
    return (
        f"topology.nodes={tree.nodes}: to shape such trees on a GPU takes levels of {most} nodes, and its kernels take "
        f"up to {MAX_NODES}: give fewer nodes ({MAX_NODES // 2} always do) or a smaller topology.length"
    )
