"""State-resident serial verification of a chain (paper, section 4.1)."""

from torch import Tensor

from specla.ops.known import start_state
from specla.ops.types import Bank, Fold, HeadShape, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.base import VerifyStrategy
from specla.ops.verify.walk import Walk, walk_factors

FACTORS = frozenset({"factors"})


class Chain(VerifyStrategy):
    """One walk with the state live: the committed state is read once and never written.

    With "states" in `needs` the state after every node is stored as well, as vLLM does.
    """

    name = "chain"

    def mixes(self, tree: TreeTensors, batch: int, shape: HeadShape) -> bool:
        """Where factors are all that is needed."""
        return self.needs == FACTORS and tree.shared and tree.tree.is_chain

    def verify(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        known: Known | None = None,
        fold: Fold = None,
        bank: Bank | None = None,
    ) -> VerifyOutput:
        keeps = self.needs is not None and "states" in self.needs
        if state.is_cuda:
            from specla.ops.kernels.walk import Pending, verify_chain

            return verify_chain(state, inputs, tree, Pending(known, fold), keeps, bank=bank)
        state, since = start_state(state, known, fold)
        walk = Walk(inputs, [1] * tree.nodes)
        states = None
        if keeps:
            states = state.new_empty(state.shape[0], tree.nodes, *state.shape[1:])
        parent, live = walk.start(state), None
        for node in range(tree.nodes):
            walk.read(parent)
            if states is None and node == tree.nodes - 1:
                break
            # Node 0 moves to memory of its own, in which the walk goes on.
            parent = live = walk.write(parent, live)
            if states is not None:
                states[:, node] = live.view_as(state)
        out, u = walk.finish()
        return VerifyOutput(out, walk_factors(inputs, u, tree.path_sums, since), states)
