"""Recovery: one strategy a file, behind `RecoverStrategy`."""

from specla.errors import SpeclaError
from specla.ops import pairs
from specla.ops.recover.base import Record, RecoverStrategy
from specla.ops.recover.factors import CommitFactors, commit_factors
from specla.ops.recover.factors_deferred import DeferredFactors
from specla.ops.recover.factors_lazy import RING, LazyFactors
from specla.ops.recover.replay_cached import ReplayCached
from specla.ops.recover.replay_tokens import Regenerate, ReplayTokens
from specla.ops.recover.snapshot import Snapshot

__all__ = ["RING", "Record", "RecoverStrategy", "Regenerate", "commit_factors", "get_recover"]


def get_recover(
    name: str, *, regenerate: Regenerate | None = None, ring: int = RING, longest: int = 1
) -> RecoverStrategy:
    """The recovery called `name`.

    Args:
        name: a key of `pairs.NEEDS`. Raises SpeclaError for another.
        regenerate: for `replay_tokens`, which must have it: one layer's projections, convolution and gates.
        ring: places of the ring of `factors_lazy`.
        longest: the most nodes that a step commits, D + 1, for `factors_lazy`.
    """
    pairs.known_name("recover", name, pairs.NEEDS)
    if name == "replay_tokens":
        if regenerate is None:
            raise SpeclaError("engine.recover=replay_tokens needs the layer's projections to generate its inputs again")
        return ReplayTokens(regenerate)
    if name == "factors_lazy":
        return LazyFactors(ring, longest)
    plain: dict[str, type[RecoverStrategy]] = {
        "replay_cached": ReplayCached,
        "snapshot": Snapshot,
        # With one node a step there is no path to gather: the commit is the decode step's own update, over all layers.
        "in_place": CommitFactors,
        "factors": CommitFactors,
        "factors_deferred": DeferredFactors,
    }
    return plain[name]()
