"""The prefill op reused, a row per root-to-leaf path with its own copy of the state: the paper's second baseline."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from specla.ops.known import start_state
from specla.ops.types import Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.base import VerifyStrategy
from specla.topology import DraftTree


class _Paths(NamedTuple):
    nodes: Tensor
    """[P, L] int64: the nodes of all P root-to-leaf paths. Past its end a path repeats the root, where nobody looks."""
    place_of: Tensor
    """[T] int64: a place among the P x L that computes this node."""


class NaiveBatched(VerifyStrategy):
    """Shared prefixes are computed once per path, and the copies of the state are part of the work."""

    name = "naive_batched"

    def verify(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        known: Known | None = None,
        fold: Tensor | None = None,
    ) -> VerifyOutput:
        from specla.ops.chunk import chunk_outputs

        state, _ = start_state(state, known, fold)
        paths = _paths(tree.tree, tree.parents.device)
        count, length = paths.nodes.shape
        batch = state.shape[0]
        places = paths.nodes.flatten()
        q, k, v, g, beta = (x.index_select(1, places).view(batch * count, length, *x.shape[2:]) for x in inputs)
        copies = state.repeat_interleave(count, dim=0)
        out = chunk_outputs(q, k, v, g, beta, copies).reshape(batch, count * length, *v.shape[2:])
        out = out.index_select(1, paths.place_of)
        return VerifyOutput(out, None, None)


@lru_cache(maxsize=256)
def _paths(tree: DraftTree, device: torch.device) -> _Paths:
    place_of = [0] * tree.nodes
    for place, node in enumerate(tree.leaf_paths.flatten().tolist()):
        if node >= 0:
            place_of[node] = place
    nodes = torch.tensor(tree.leaf_paths.tolist(), device=device)
    return _Paths(nodes.clamp(min=0), torch.tensor(place_of, device=device))
