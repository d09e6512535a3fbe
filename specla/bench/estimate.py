"""What a plan will take, before anything runs: rough seconds and memory, from the shapes alone."""

from dataclasses import dataclass, replace

from specla.bench.cells import Cell
from specla.bench.choice import COSTED
from specla.bench.normalise import KERNEL_COMMANDS
from specla.bench.settings import model_config
from specla.models.config import GatedDeltaNetConfig
from specla.models.cost import ModelCost


@dataclass(frozen=True)
class Rates:
    """What a device of its kind does in round numbers; an estimate is good to a factor of two or three.

    Attributes:
        bytes_s: memory bandwidth that matrix products reach.
        flops_s: of matrix products.
        layer_us: overhead of one layer of one step.
        node_us: overhead of one node in one layer, where a strategy walks node by node.
        prepare_s: what an operation takes before it is timed: inputs, compilation, a captured graph.
    """

    bytes_s: float
    flops_s: float
    layer_us: float
    node_us: float
    prepare_s: float = 0.0


RATES = {"cpu": Rates(12e9, 6e10, 350.0, 60.0), "cuda": Rates(3.5e12, 4e14, 40.0, 4.0, 0.4)}
_WALKS = ("sequential_replay", "parent_pointer", "chain")
_REPLAYS = ("replay_tokens", "replay_cached")
MIXER_BYTES = 512 << 20
"""Of token mixers that an ablation makes, but for one: beyond it layers share them in turn, which no cache holds."""
_TOKENS_A_STEP = 2.0
"""Of speculation, where the acceptance is not known before it is measured."""


_TIMED_STEPS = 400
"""That topology=auto times on each of its prompts, in tokens: trees, passes, and what a step emits."""


@dataclass(frozen=True)
class Estimate:
    """Of one cell: seconds on the clock, gate and warm-up included, and bytes held by weights and states."""

    seconds: float
    memory_bytes: int


def estimate(cell: Cell, device: str, dtype: str) -> Estimate:
    """A cell's cost on a device of this kind.

    Args:
        cell: to be measured.
        device: `cpu` or `cuda`.
        dtype: that the model will have.
    """
    rates, workload = RATES[device.partition(":")[0]], cell.settings.workload
    cost = ModelCost.of(model_config(cell.settings.model), dtype)
    batch, nodes = workload.batch, cell.tree.nodes
    traffic = cost.step(batch, nodes)
    layers = cost.config.num_hidden_layers
    if cell.command in KERNEL_COMMANDS:
        return _estimate_operation(cell, cost, rates)
    walked = nodes if cell.method.verify in _WALKS else 1
    step = traffic.total_bytes / rates.bytes_s + cost.step_flops(batch, nodes) / rates.flops_s
    step += layers * (rates.layer_us + walked * rates.node_us) * 1e-6
    items = max(1, (workload.prompts or batch) // batch)
    steps = items * (workload.max_new_tokens or 1) / (1.0 if cell.method.verify == "ar" else _TOKENS_A_STEP)
    passes: float = 1 + cell.settings.measure.warmup + cell.settings.measure.repeats
    states = nodes + 1 if cell.method.recover == "snapshot" else 1
    # On a CPU in float32 the products' weights are kept a second time, in the layout that is fastest at a few rows.
    packed = cost.weight_bytes if device == "cpu" and dtype == "float32" else 0
    if cell.is_open:
        # Its tree is chosen first, on prompts of its own: a wide tree's decode, and windows of steps of all sizes.
        calibration = cell.settings.measure.calibration or 0
        timed = min(calibration, COSTED) * _TIMED_STEPS / (workload.max_new_tokens or 1)
        passes += (calibration + timed) / (items * batch)
    ring = batch * (cell.settings.engine.ring or 0) * cost.factor_bytes
    return Estimate(passes * steps * step, cost.held_bytes(batch, states + 1) + ring + packed)


def _estimate_operation(cell: Cell, cost: ModelCost, rates: Rates) -> Estimate:
    """Samples of `sample_ms`, or of one call in every layer where that takes longer, after two such passes.

    Baselines that are no cells are left out.
    """
    batch, nodes, measure = cell.settings.workload.batch, cell.tree.nodes, cell.settings.measure
    verified = 0 if cell.command == "ablate recover" else nodes if cell.method.verify in _WALKS else 1
    committed = 0
    if cell.command != "ablate verify":
        committed = accepted_drafts(cell) + 1 if cell.method.recover in _REPLAYS else 1
    walked = verified + committed
    layers, moved = cost.config.num_hidden_layers, 2 * batch * cost.state_bytes
    once = walked * (moved / rates.bytes_s + layers * rates.node_us * 1e-6) + layers * rates.layer_us * 1e-6
    sample = max((measure.sample_ms or 0.0) * 1e-3, once) + 2 * once
    # Verification by itself drops the dense states of a layer before it makes those of the next.
    held = cost.one_layer if cell.command == "ablate verify" else cost
    kept = (nodes + 1) * held.state_bytes if cell.method.recover == "snapshot" else cost.state_bytes
    mixers = ModelCost(mixers_alone(cost.config, cost.item_bytes), cost.item_bytes)
    memory = batch * (kept + 2 * cost.state_bytes) + 2 * mixers.weight_bytes
    return Estimate(rates.prepare_s + (measure.warmup + measure.repeats) * sample, memory)


def mixers_alone(config: GatedDeltaNetConfig, item_bytes: int) -> GatedDeltaNetConfig:
    """A model of the same token mixers and hardly anything else: of all layers, or as many as MIXER_BYTES holds."""
    one = replace(config, num_hidden_layers=1, vocab_size=1, intermediate_size=1)
    layers = min(config.num_hidden_layers, max(1, MIXER_BYTES // (one.parameters * item_bytes)))
    return replace(one, num_hidden_layers=layers)


def accepted_drafts(cell: Cell) -> int:
    """Drafts that one commit of an ablation takes."""
    accepted = cell.settings.measure.accepted
    return cell.tree.depth if accepted is None else accepted
