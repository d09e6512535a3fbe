"""Heavy-light chains in waves; only the states at which chains branch off are stored (paper, section 4.3)."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from specla.ops.known import start_state
from specla.ops.types import Bank, Fold, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.base import VerifyStrategy
from specla.ops.verify.walk import Walk, walk_factors
from specla.topology import DraftTree


class _Step(NamedTuple):
    """One depth of one wave: the chains of the wave that reach this deep advance by a node, all together."""

    chains: int
    kept: tuple[tuple[int, int], ...]
    """(place among the advancing chains, slot) of every state to store."""
    writes: bool
    """Whether anything reads the states after these nodes: a longer chain of the wave, or a later wave."""


class _Schedule(NamedTuple):
    """A heavy-light plan laid out for batches: nodes by wave, then depth within the wave, longest chains first."""

    order: Tensor
    inverse: Tensor
    starts: tuple[Tensor, ...]
    """For every wave, the slots that its chains start from; none for the first."""
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
        fold: Fold = None,
        bank: Bank | None = None,
    ) -> VerifyOutput:
        if state.is_cuda:
            from specla.ops.kernels.walk import Pending, verify_hybrid

            return verify_hybrid(state, inputs, tree, Pending(known, fold), bank=bank)
        state, since = start_state(state, known, fold)
        schedule = _schedule(tree.tree, tree.parents.device)
        walk = Walk(inputs, [step.chains for wave in schedule.waves for step in wave], schedule.order)
        committed = walk.start(state)
        stored = committed.new_empty(schedule.slots, *committed.shape)
        for i, wave in enumerate(schedule.waves):
            # The first wave is the root's chain, which starts from the committed state and must not write it.
            ours = i > 0
            parents = stored.index_select(0, schedule.starts[i]).flatten(0, 1) if ours else committed
            for step in wave:
                parents = parents[: step.chains * walk.rows]
                walk.read(parents)
                if not step.writes:
                    break
                parents = walk.write(parents, parents if ours else None)
                ours = True
                for place, slot in step.kept:
                    stored[slot] = parents[place * walk.rows : (place + 1) * walk.rows]
        out, u = walk.finish(schedule.inverse)
        return VerifyOutput(out, walk_factors(inputs, u, tree.path_sums, since), None)


@lru_cache(maxsize=256)
def _schedule(tree: DraftTree, device: torch.device) -> _Schedule:
    plan = tree.plan
    slot_of = {node: slot for slot, node in enumerate(plan.boundaries)}
    order: list[int] = []
    starts, waves = [], []
    for wave in plan.waves:
        # Longest first: the chains that go on are then a prefix, and no lane idles to the end of the wave.
        chains = sorted((plan.chains[i] for i in wave), key=len, reverse=True)
        slots = [slot_of[tree.parents[chain[0]]] for chain in chains if chain[0] > 0]
        starts.append(torch.tensor(slots, dtype=torch.int64, device=device))
        steps = []
        for depth in range(len(chains[0])):
            nodes = [chain[depth] for chain in chains if len(chain) > depth]
            kept = tuple((place, slot_of[node]) for place, node in enumerate(nodes) if node in slot_of)
            steps.append(_Step(len(nodes), kept, bool(kept) or depth + 1 < len(chains[0])))
            order.extend(nodes)
        waves.append(tuple(steps))
    forward = torch.tensor(order, device=device)
    return _Schedule(forward, forward.argsort(), tuple(starts), tuple(waves), len(slot_of))
