"""The prefill op reused, a row per root-to-leaf path with its own copy of the state: the paper's second baseline."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from specla.ops.known import start_state
from specla.ops.lost import contained
from specla.ops.types import Bank, Fold, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.base import VerifyStrategy
from specla.topology import DraftTree


class _Paths(NamedTuple):
    nodes: Tensor
    """[P, L] int64: the nodes of all P root-to-leaf paths. Past its end a path repeats the root, where nobody looks."""
    place_of: Tensor
    """[T] int64: a place among the P x L that computes this node."""


class NaiveBatched(VerifyStrategy):
    """Shared prefixes are computed once per path, and the copies of the state are part of the work.

    On a GPU the op is flash-linear-attention's `fused_recurrent_gated_delta_rule`, which its own layer runs for up to
    64 tokens in inference; the chunk kernel that it takes for more is not used here, and only a path of 64 drafts would
    be so long.
    """

    name = "naive_batched"

    def verify(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        known: Known | None = None,
        fold: Fold = None,
        bank: Bank | None = None,
    ) -> VerifyOutput:
        state, _ = start_state(state, known, fold)
        if state.is_cuda:
            # flash-linear-attention's kernel walks down every path: nothing comes from further down.
            return self._run(state, inputs, tree)
        return contained(lambda nodes: self._run(state, nodes, tree), inputs, tree)

    @staticmethod
    def _run(state: Tensor, inputs: NodeInputs, tree: TreeTensors) -> VerifyOutput:
        paths = _paths(tree.tree, tree.parents.device)
        count, length = paths.nodes.shape
        batch = state.shape[0]
        places = paths.nodes.flatten()
        q, k, v, g, beta = (x.index_select(1, places).view(batch * count, length, *x.shape[2:]) for x in inputs)
        copies = state.repeat_interleave(count, dim=0)
        prefill = prefill_fla if state.is_cuda else prefill_torch
        out = prefill(NodeInputs(q, k, v, g, beta), copies)
        out = out.reshape(batch, count * length, *out.shape[2:]).index_select(1, paths.place_of)
        return VerifyOutput(out.float(), None, None)


def prefill_torch(inputs: NodeInputs, state: Tensor) -> Tensor:
    """The chunk op: inputs of N paths of L nodes on their own state [N, HV, V, K] -> outputs [N, L, HV, V] float32."""
    from specla.ops.chunk import chunk_outputs

    return chunk_outputs(*inputs, state)


def prefill_fla(inputs: NodeInputs, state: Tensor) -> Tensor:
    """The same by flash-linear-attention's kernel -> [N, L, HV, V] float32.

    It neither waits for the host nor times configurations, so a CUDA graph can hold it.
    """
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    q, k, v, g, beta = inputs
    # It returns v's dtype, computing in float32 whatever comes in: rounding is left to the layer, as everywhere.
    out: Tensor = fused_recurrent_gated_delta_rule(
        q, k, v.float(), g=g, beta=beta, scale=1.0, initial_state=state, output_final_state=False, state_v_first=True
    )[0]
    return out


@lru_cache(maxsize=256)
def _paths(tree: DraftTree, device: torch.device) -> _Paths:
    place_of = [0] * tree.nodes
    for place, node in enumerate(tree.leaf_paths.flatten().tolist()):
        if node >= 0:
            place_of[node] = place
    nodes = torch.tensor(tree.leaf_paths.tolist(), device=device)
    return _Paths(nodes.clamp(min=0), torch.tensor(place_of, device=device))
