"""Autoregressive decoding: the tree is its root."""

from torch import Tensor

from specla.ops.known import start_state
from specla.ops.step import read_step
from specla.ops.types import Bank, Factors, Fold, HeadShape, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify.base import VerifyStrategy


class Autoregressive(VerifyStrategy):
    """One decode step that reads the state and does not write it."""

    name = "ar"
    per_row = True

    def mixes(self, tree: TreeTensors, batch: int, shape: HeadShape) -> bool:
        """Always."""
        return True

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
            from specla.ops.kernels.walk import Pending, verify_chain

            return verify_chain(state, inputs, tree, Pending(known, fold), bank=bank)
        state, since = start_state(state, known, fold)
        out, u = read_step(state, inputs)
        decay = inputs.g.double()
        if since is not None:
            decay += since[:, None]
        return VerifyOutput(out[:, None], Factors(inputs.k, u[:, None], decay), None)
