"""Heavy-light chains in waves; only the states at which chains branch off are stored (paper, section 4.3)."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from specla.ops.known import start_state
from specla.ops.types import Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.base import VerifyStrategy
from specla.ops.verify.walk import Walk, walk_factors
from specla.topology import DraftTree


class _Step(NamedTuple):
    """One depth of one wave: the chains of the wave that reach this deep advance by a node, all together."""

    chains: int
    kept: tuple[tuple[int, int], ...]
    """(place among the advancing chains, slot) of every state to store; slot 0 is the committed state."""
    writes: bool
    """Whether anything reads the states after these nodes: a longer chain of the wave, or a later wave."""


class _Schedule(NamedTuple):
    """A heavy-light plan laid out for batches: nodes by wave, then depth within the wave, longest chains first."""

    order: Tensor
    inverse: Tensor
    starts: tuple[Tensor, ...]
    """For every wave, the slots that its chains start from."""
    waves: tuple[tuple[_Step, ...], ...]
    slots: int


class Hybrid(VerifyStrategy):
    """All chains of a wave advance together, each with its state live."""

    name = "hybrid"

    def verify(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        known: Known | None = None,
        fold: Tensor | None = None,
    ) -> VerifyOutput:
        state, since = start_state(state, known, fold)
        schedule = _schedule(tree.tree, tree.parents.device)
        walk = Walk(inputs, [step.chains for wave in schedule.waves for step in wave], schedule.order)
        committed = walk.start(state)
        stored = committed.new_empty(schedule.slots, *committed.shape)
        if schedule.slots > 1:
            stored[0] = committed
        for i, wave in enumerate(schedule.waves):
            # Chains of later waves start in copies of their own; the first moves to memory of its own as it first writes.
            live = stored.index_select(0, schedule.starts[i]).flatten(0, 1) if i else None
            parents = committed if live is None else live
            for step in wave:
                parents = parents[: step.chains * walk.rows]
                walk.read(parents)
                if not step.writes:
                    break
                parents = walk.write(parents, None if live is None else parents)
                live = parents
                for place, slot in step.kept:
                    stored[slot] = parents[place * walk.rows : (place + 1) * walk.rows]
        out, u = walk.finish(schedule.inverse)
        return VerifyOutput(out, walk_factors(inputs, u, tree.path_sums, since), None)


@lru_cache(maxsize=256)
def _schedule(tree: DraftTree, device: torch.device) -> _Schedule:
    plan = tree.plan
    slot_of = {-1: 0} | {node: slot for slot, node in enumerate(plan.boundaries, start=1)}
    order: list[int] = []
    starts, waves = [], []
    for wave in plan.waves:
        # Longest first: the chains that go on are then a prefix, and no lane idles to the end of the wave.
        chains = sorted((plan.chains[i] for i in wave), key=len, reverse=True)
        parents = [slot_of[tree.parents[chain[0]]] for chain in chains]
        starts.append(torch.tensor(parents, device=device))
        steps = []
        for depth in range(len(chains[0])):
            nodes = [chain[depth] for chain in chains if len(chain) > depth]
            kept = tuple((place, slot_of[node]) for place, node in enumerate(nodes) if node in slot_of)
            steps.append(_Step(len(nodes), kept, bool(kept) or depth + 1 < len(chains[0])))
            order.extend(nodes)
        waves.append(tuple(steps))
    forward = torch.tensor(order, device=device)
    return _Schedule(forward, forward.argsort(), tuple(starts), tuple(waves), len(slot_of))
