"""What decoding on a device holds, from shapes alone: checked before anything is allocated or captured."""

from dataclasses import dataclass

from specla.errors import SpeclaError
from specla.models.config import GatedDeltaNetConfig
from specla.models.cost import ModelCost

SLACK_BYTES = 512 << 20
"""For graphs, compiled kernels and what the allocator cannot use."""


@dataclass(frozen=True)
class Demand:
    """Of one method.

    Attributes:
        batch: rows.
        nodes: of every tree that a cycle may verify.
        pending: places of a ring of factors; 0 without one.
        snapshots: whether every node's state is stored.
    """

    batch: int
    nodes: tuple[int, ...]
    pending: int = 0
    snapshots: bool = False


def needed_bytes(config: GatedDeltaNetConfig, dtype: object, demand: Demand) -> int:
    """Bytes beside the weights: states, banks and rings of factors, and what a cycle leaves behind in its graph."""
    cost, layers = ModelCost.of(config, dtype), config.num_hidden_layers
    window = cost.item_bytes * config.conv_dim
    # A node's factors in float64 decays, and its convolution inputs.
    factors = cost.factor_bytes + layers * (4 * config.num_v_heads + window)
    fixed = cost.state_bytes + cost.window_bytes + demand.pending * factors
    products = 2 * config.conv_dim + 2 * config.value_dim + 4 * config.hidden_size + 3 * config.intermediate_size
    # Graphs keep what every layer computed; logits are float32 at most once more.
    node = factors + layers * (cost.item_bytes * products + 8 * config.value_dim) + 4 * config.vocab_size
    stored = cost.state_bytes if demand.snapshots else 0
    return SLACK_BYTES + demand.batch * (fixed + sum(demand.nodes) * (node + stored))


def require(config: GatedDeltaNetConfig, dtype: object, demand: Demand, free_bytes: int) -> None:
    """Raise SpeclaError where the memory that is free does not hold a method, saying what would fit."""
    needed = needed_bytes(config, dtype, demand)
    if needed <= free_bytes:
        return
    one = needed_bytes(config, dtype, Demand(1, demand.nodes, demand.pending, demand.snapshots)) - SLACK_BYTES
    fits = max(0, (free_bytes - SLACK_BYTES) // one)
    what = f"workload.batch={demand.batch} with {max(demand.nodes)} nodes"
    advice = f"workload.batch={fits} would fit" if fits else "use a smaller tree or model"
    raise SpeclaError(
        f"{what} takes {needed / 2**30:.1f} GiB beside the weights, and {free_bytes / 2**30:.1f} GiB are free: {advice}"
    )
