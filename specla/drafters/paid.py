"""An oracle whose drafts cost what a real drafter's do: the work is done, and its tokens are thrown away."""

from collections.abc import Sequence

from torch import Tensor

from specla.drafters.base import Draft, Drafter, Verified
from specla.drafters.oracle import OracleDrafter
from specla.topology import DraftTree


class PaidOracle(Drafter):
    """Drafts as its oracle, after its worker has.

    Args:
        oracle: whose drafts are verified.
        worker: whose time is paid.
    """

    name = "oracle"
    synthetic = True

    def __init__(self, oracle: OracleDrafter, worker: Drafter) -> None:
        self.oracle, self.worker = oracle, worker

    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Start both."""
        self.worker.begin(prompts, roots)
        self.oracle.begin(prompts, roots)

    def prime(self, hidden: Tensor) -> None:
        """For the worker."""
        self.worker.prime(hidden)

    def draft(self, tree: DraftTree) -> Draft:
        """The worker drafts, the oracle is believed."""
        self.worker.draft(tree)
        return self.oracle.draft(tree)

    def verified(self, step: Verified) -> None:
        """For the worker."""
        self.worker.verified(step)

    def observe(self, emitted: Sequence[Sequence[int]]) -> None:
        """For both."""
        self.worker.observe(emitted)
        self.oracle.observe(emitted)

    def rows_off_trace(self) -> list[int]:
        """The oracle's."""
        return self.oracle.rows_off_trace()

    def retrace(self, row: int, tokens: Sequence[int]) -> None:
        """For the oracle."""
        self.oracle.retrace(row, tokens)
