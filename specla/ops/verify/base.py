"""The one contract of verification."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from specla.errors import SpeclaError
from specla.ops import pairs
from specla.ops.types import Bank, Fold, HeadShape, Known, NodeInputs, TreeTensors, VerifyOutput
from specla.topology import DraftTree


class VerifyStrategy(ABC):
    """Runs the nodes of a tree on a committed state, for one layer. No gradients.

    A node sees its ancestors alone, whatever the others hold: one whose k, v, g or b is not finite loses itself and its
    descendants, whose outputs and factors are then not finite either, and changes no bit of any other (`ops.lost`).

    Args:
        needs: what recovery reads, as in `pairs.NEEDS`; None for what the strategy makes without extra cost.
    """

    name: ClassVar[str]
    per_row: ClassVar[bool] = False
    """Whether rows may have trees of their own."""
    reflects: bool = False
    """Whether write strengths may exceed 1, as `allow_neg_eigval` lets them: a layer says so before it verifies.

    Then errors need not fade, and the tree mask takes more digits in what it writes, at some cost.
    """

    def __init__(self, needs: frozenset[str] | None = None) -> None:
        missing = (needs or frozenset()) - pairs.makes(self.name) - {"inputs", "gated"}
        if missing:
            raise SpeclaError(
                f"engine.verify={self.name} makes no {', '.join(sorted(missing))}: "
                f"recover with {', '.join(pairs.RECOVERS_WITH[self.name])}"
            )
        self.needs = needs

    @property
    def makes(self) -> frozenset[str]:
        """Which of `factors` and `states` it can make."""
        return pairs.makes(self.name)

    def supports(self, tree: DraftTree) -> str | None:
        """Why it cannot run this tree, or None."""
        return pairs.unsupported(self.name, tree)

    def mixes(self, tree: TreeTensors, batch: int, shape: HeadShape) -> bool:
        """Whether this walks down a chain and leaves factors alone: a GPU has a kernel from projections to them."""
        return False

    @abstractmethod
    def verify(
        self,
        state: Tensor,
        inputs: NodeInputs,
        tree: TreeTensors,
        known: Known | None = None,
        fold: Fold = None,
        bank: Bank | None = None,
    ) -> VerifyOutput:
        """The output of every node, and what recovery needs.

        Args:
            state: [B, HV, V, K] float32, contiguous. Rows with fold[b] take their known factors in, in place; a row
                with nothing to take in keeps its bits. Nothing else is written.
            inputs: of the T nodes, float32, bfloat16 or float16; the arithmetic is float32.
            tree: that `supports` accepts.
            known: committed factors that the state does not hold.
            fold: rows, see `Fold`. After a fold G counts from zero, else from the last fold.
            bank: on a GPU, where the factors go instead of into new memory. The kernel in front must then not write the
                state, which is read before that one has ended.

        Returns:
            float32 outputs, factors whose u and decay may be views, states.
        """
