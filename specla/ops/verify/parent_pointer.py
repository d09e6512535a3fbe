"""Every node's state stored, its parent's reloaded: how SGLang verifies trees."""

import torch
from torch import Tensor

from specla.ops.known import start_state
from specla.ops.types import Bank, Fold, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.base import VerifyStrategy
from specla.ops.verify.walk import Walk


class ParentPointer(VerifyStrategy):
    """A walk over the nodes of any tree that reads its parent's state from memory and writes its own there."""

    name = "parent_pointer"
    per_row = True

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
            from specla.ops.kernels.parent_pointer import verify_by_parents

            return verify_by_parents(state, inputs, tree)
        walk = Walk(inputs, [1] * tree.nodes)
        # Nodes first, the committed state before them: parent p stands at place p + 1, and -1 is no special case.
        states = state.new_empty(tree.nodes + 1, *state.shape)
        states[0] = state
        rows = torch.arange(state.shape[0], device=state.device)
        for node in range(tree.nodes):
            parent = states[tree.tree.parents[node] + 1] if tree.shared else states[tree.parents[:, node] + 1, rows]
            walk.read(walk.start(parent))
            walk.write(walk.start(parent), walk.start(states[node + 1]))
        out, _ = walk.finish()
        return VerifyOutput(out, None, states[1:].transpose(0, 1))
