"""Which verification goes with which recovery, and on which trees. No torch: the planner reads it too."""

from specla.errors import SpeclaError
from specla.topology import DraftTree

NEEDS: dict[str, frozenset[str]] = {
    "in_place": frozenset({"factors"}),
    "replay_tokens": frozenset({"inputs"}),
    "replay_cached": frozenset({"gated"}),
    "snapshot": frozenset({"states"}),
    "factors": frozenset({"factors"}),
    "factors_deferred": frozenset({"factors"}),
    "factors_lazy": frozenset({"factors"}),
}
"""What every recovery reads: the layer's `inputs`, the `gated` k, v, g and beta, or what verification made."""

_REPLAYS = ("replay_tokens", "replay_cached")
_FACTORS = ("factors", "factors_deferred", "factors_lazy")

RECOVERS_WITH: dict[str, tuple[str, ...]] = {
    "ar": ("in_place", "factors_lazy"),
    "sequential_replay": (*_REPLAYS, "snapshot"),
    "naive_batched": _REPLAYS,
    "parent_pointer": ("snapshot",),
    "chain": (*_REPLAYS, "snapshot", *_FACTORS),
    "tree": (*_REPLAYS, *_FACTORS),
    "hybrid": (*_REPLAYS, *_FACTORS),
    "auto": (*_REPLAYS, *_FACTORS),
}
"""For every verification, the recoveries it goes with (design section 3)."""


def makes(verify: str) -> frozenset[str]:
    """Which of `factors` and `states` a verification can make."""
    needed = frozenset().union(*(NEEDS[recover] for recover in RECOVERS_WITH[verify]))
    return needed & {"factors", "states"}


def unsupported(verify: str, tree: DraftTree) -> str | None:
    """Why a verification cannot run this tree, or None."""
    if verify == "ar" and tree.nodes > 1:
        return f"ar drafts nothing, and {tree.name} has {tree.nodes - 1} drafts"
    if verify == "chain" and not tree.is_chain:
        return f"chain verifies chains alone, and {tree.name} has {len(tree.leaves)} leaves"
    return None


def known_name(dial: str, name: str, names: dict[str, frozenset[str]] | dict[str, tuple[str, ...]]) -> None:
    """Raises SpeclaError for a name that is not one of `names`."""
    if name not in names:
        raise SpeclaError(f"engine.{dial}={name}: give one of {', '.join(names)}")
