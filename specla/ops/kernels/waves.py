"""Chains of a tree laid out for launches of the walk: a wave each, as tables on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from specla.topology import DraftTree


@dataclass(frozen=True)
class Wave:
    """The chains of one launch, int32 on the device.

    Attributes:
        nodes: [chains, L].
        keeps: [chains, L], the slot that a node's state is stored in, or -1.
        lengths: [chains].
        starts: [chains], the slot a chain starts from; -1 is the committed state.
        parents: [chains], the node it starts from; -1 likewise.
    """

    nodes: Tensor
    keeps: Tensor
    lengths: Tensor
    starts: Tensor
    parents: Tensor

    @classmethod
    def of(
        cls, chains: Sequence[Sequence[int]], tree: DraftTree, slot_of: dict[int, int], device: torch.device
    ) -> "Wave":
        """Some chains of `tree`; `slot_of` gives the nodes whose states are stored."""
        longest = max(map(len, chains))
        parents = [tree.parents[nodes[0]] for nodes in chains]
        rows = [[*nodes, *[nodes[-1]] * (longest - len(nodes))] for nodes in chains]
        keeps = [[slot_of.get(node, -1) for node in row] for row in rows]
        tables = (rows, keeps, [len(nodes) for nodes in chains], [slot_of.get(p, -1) for p in parents], parents)
        return cls(*(torch.tensor(table, dtype=torch.int32, device=device) for table in tables))


@lru_cache(maxsize=256)
def hybrid_waves(tree: DraftTree, device: torch.device) -> tuple[tuple[Wave, ...], int]:
    """The heavy-light plan as launches, and how many boundary states it stores."""
    plan = tree.plan
    slot_of = {node: slot for slot, node in enumerate(plan.boundaries)}
    waves = ([plan.chains[i] for i in wave] for wave in plan.waves)
    return tuple(Wave.of(chains, tree, slot_of, device) for chains in waves), len(slot_of)
