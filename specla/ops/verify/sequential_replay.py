"""The decode step once per node, the state from and to memory each time: the paper's first baseline."""

import torch
from torch import Tensor

from specla.ops.known import start_state
from specla.ops.step import read_step, write_step
from specla.ops.types import Bank, Fold, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.base import VerifyStrategy


class SequentialReplay(VerifyStrategy):
    """Every node loads its parent's state, takes a whole decode step and stores its own state.

    With "states" in `needs` the stored states are handed to recovery, else they live as long as a child may need them.
    """

    name = "sequential_replay"

    def verify(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        known: Known | None = None,
        fold: Fold = None,
        bank: Bank | None = None,
    ) -> VerifyOutput:
        committed, _ = start_state(state, known, fold)
        keeps = self.needs is not None and "states" in self.needs
        if state.is_cuda:
            from specla.ops.kernels.walk import verify_sequentially

            output = verify_sequentially(committed, inputs, tree)
            return output._replace(factors=None, states=output.states if keeps else None)
        shape = tree.tree
        stored: dict[int, Tensor] = {-1: committed}
        outputs = []
        for node, parent in enumerate(shape.parents):
            token = NodeInputs(*(x[:, node : node + 1] for x in inputs))
            stored[node] = stored[parent].clone()
            out, u = read_step(stored[node], token)
            write_step(stored[node], token, u)
            outputs.append(out)
            if not keeps and parent >= 0 and shape.children[parent][-1] == node:
                del stored[parent]
        states = torch.stack([stored[node] for node in range(shape.nodes)], dim=1) if keeps else None
        return VerifyOutput(torch.stack(outputs, dim=1), None, states)
