"""Verification: one strategy a file, behind `VerifyStrategy`."""

from specla.ops import pairs
from specla.ops.verify.ar import Autoregressive
from specla.ops.verify.auto import Auto, DispatchTable, measure_dispatch
from specla.ops.verify.base import VerifyStrategy
from specla.ops.verify.chain import Chain
from specla.ops.verify.hybrid import Hybrid
from specla.ops.verify.naive_batched import NaiveBatched
from specla.ops.verify.parent_pointer import ParentPointer
from specla.ops.verify.sequential_replay import SequentialReplay
from specla.ops.verify.tree import TreeMask

__all__ = ["STRATEGIES", "Auto", "DispatchTable", "VerifyStrategy", "get_verify", "measure_dispatch"]

STRATEGIES: dict[str, type[VerifyStrategy]] = {
    strategy.name: strategy
    for strategy in (
        Autoregressive,
        SequentialReplay,
        NaiveBatched,
        ParentPointer,
        Chain,
        TreeMask,
        Hybrid,
        Auto,
    )
}


def get_verify(name: str, needs: frozenset[str] | None = None) -> VerifyStrategy:
    """The verification called `name`, making what recovery `needs` (`get_recover(...).needs`).

    Raises SpeclaError for an unknown name, or where the strategy cannot make what is needed.
    """
    pairs.known_name("verify", name, pairs.RECOVERS_WITH)
    return STRATEGIES[name](needs)
