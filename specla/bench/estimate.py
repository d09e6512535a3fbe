"""What a plan will take, before anything runs: rough seconds and memory, from the shapes alone."""

from dataclasses import dataclass, replace
from functools import lru_cache

from specla.bench.cells import Cell
from specla.bench.choice import COSTED
from specla.bench.footprint import BANDWIDTH_BYTES, CHUNK, Decode, Footprint
from specla.bench.identity import seen_config
from specla.bench.normalise import END_TO_END, KERNEL_COMMANDS
from specla.bench.settings import Settings, WorkloadSettings, model_config
from specla.bench.workloads.base import load_prompts
from specla.bench.workloads.sources import on_hub
from specla.engine.memory import Demand, needed_bytes
from specla.errors import SMALLER, SMALLER_ROW, SpeclaError
from specla.models.config import GatedDeltaNetConfig
from specla.models.cost import ModelCost
from specla.topology import chain


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


UNSEEN_TOKENS = 512
"""Of a prompt that is not on this machine, where no limit is set."""

_TIMED_STEPS = 400
"""That topology=auto times on each of its prompts, in tokens: trees, passes, and what a step emits."""


DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True)
class Estimate:
    """Of one cell: seconds on the clock, gate and warm-up included, and bytes held at its fullest."""

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
    operation = cell.command in KERNEL_COMMANDS
    cost = ModelCost.of((model_config if operation else seen_config)(cell.settings.model), dtype)
    batch, nodes = workload.batch, cell.tree.nodes
    traffic = cost.step(batch, nodes)
    layers = cost.config.num_hidden_layers
    if operation:
        return _estimate_operation(cell, cost, rates)
    walked = nodes if cell.method.verify in _WALKS else 1
    step = traffic.total_bytes / rates.bytes_s + cost.step_flops(batch, nodes) / rates.flops_s
    step += layers * (rates.layer_us + walked * rates.node_us) * 1e-6
    items = batches(cell)
    prompt = longest_prompt(cell.settings)
    # A prompt is run twice, for its state and by the gate, chunk by chunk.
    chunk = cost.step_flops(batch, min(prompt, CHUNK)) / rates.flops_s + layers * rates.layer_us * 1e-6
    steps = items * (workload.max_new_tokens or 1) / (1.0 if cell.method.verify == "ar" else _TOKENS_A_STEP)
    passes: float = 1 + cell.settings.measure.warmup + cell.settings.measure.repeats
    if cell.is_open:
        # Its tree is chosen first, on prompts of its own: a wide tree's decode, and windows of steps of all sizes.
        calibration = cell.settings.measure.calibration or 0
        timed = min(calibration, COSTED) * _TIMED_STEPS / (workload.max_new_tokens or 1)
        passes += (calibration + timed) / (items * batch)
    return Estimate(passes * steps * step + 2 * items * -(-prompt // CHUNK) * chunk, _memory(cell, cost, device, dtype))


def does_not_fit(cell: Cell, device: str, dtype: str, available_bytes: int) -> str:
    """Why a cell cannot be measured in so much memory, and what could be; empty where it fits.

    Args:
        cell: to be measured.
        device: `cpu`, `cuda` or `cuda:N`.
        dtype: that the model will have.
        available_bytes: of the device, or what this process may still take of the machine's.
    """
    wanted = estimate(cell, device, dtype).memory_bytes
    if wanted <= available_bytes:
        return ""
    sizes = f"takes about {wanted / 2**30:.1f} GiB, and {max(0, available_bytes) / 2**30:.1f} GiB are free on {device}"
    return f"{DOES_NOT_FIT}: {sizes}: {smaller(cell, device, dtype, available_bytes)}"


def smaller(cell: Cell, device: str, dtype: str, available_bytes: int, below: int | None = None) -> str:
    """Advice where memory is short: the largest batch, under `below` or the cell's own, that fits.

    Of a single row, the longest chain.
    """
    if cell.settings.workload.batch == 1 and cell.command not in KERNEL_COMMANDS:
        return _shorter(cell, device, dtype, available_bytes)
    fits, too_many = 0, below or cell.settings.workload.batch
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        workload = replace(cell.settings.workload, batch=middle)
        one = replace(cell, settings=replace(cell.settings, workload=workload))
        if estimate(one, device, dtype).memory_bytes <= available_bytes:
            fits = middle
        else:
            too_many = middle
    return f"workload.batch={fits} would fit" if fits else SMALLER


def _shorter(cell: Cell, device: str, dtype: str, available_bytes: int) -> str:
    """Advice for one row: a chain of at most half the nodes, as of a batch that failed."""
    for nodes in range(cell.tree.nodes // 2, 1, -1):
        if estimate(replace(cell, tree=chain(nodes - 1)), device, dtype).memory_bytes <= available_bytes:
            return f"topology=chain topology.length={nodes - 1} would fit"
    return SMALLER_ROW


def _memory(cell: Cell, cost: ModelCost, device: str, dtype: str) -> int:
    """What a decode holds: weights, the target's and the drafter's, prompts after their prefill, and its own peak."""
    workload, drafter = cell.settings.workload, cell.settings.drafter
    drafts = drafter.name == "aligned" or drafter.cost == "aligned"
    vocabulary = cost.config.vocab_size
    decode = Decode(
        batch=workload.batch,
        tree=cell.tree,
        verify=cell.method.verify,
        recover=cell.method.recover,
        ring=cell.settings.engine.ring or 0,
        prompt=longest_prompt(cell.settings),
        items=batches(cell),
        sampled=cell.settings.sampling.temperature > 0,
        drafted=(drafter.vocabulary or vocabulary) if drafts else 0,
    )
    weights = cost.weight_bytes
    if drafts:
        # A layer of its own, what brings two hidden states together, and the head's rows of the tokens it knows.
        own = replace(cost.config, num_hidden_layers=1, vocab_size=drafter.vocabulary or 1, tie_word_embeddings=True)
        weights += ModelCost(own, cost.item_bytes).weight_bytes + 2 * cost.item_bytes * cost.config.hidden_size**2
    footprint = Footprint(cost)
    if device.startswith("cuda"):
        demand = Demand(workload.batch, (1, cell.tree.nodes), decode.ring, cell.method.recover == "snapshot")
        own_bytes = needed_bytes(cost.config, dtype, demand)
        return weights + footprint.prompt_bytes(decode) + max(own_bytes, BANDWIDTH_BYTES["cuda"])
    # On a CPU in float32 the products' weights are kept a second time, in the layout that is fastest at a few rows.
    least = BANDWIDTH_BYTES["cpu"] if cell.command == END_TO_END else 0
    return weights * (2 if dtype == "float32" else 1) + footprint.peak_bytes(decode, least)


def batches(cell: Cell) -> int:
    """Batches of prompts that a decode goes through; of a data set that is not on this machine, one where all are."""
    workload = cell.settings.workload
    if cell.command != END_TO_END:
        return 1
    count = _lengths(workload)[0] if workload.prompts is None else workload.prompts
    return max(1, count // workload.batch)


def longest_prompt(settings: Settings) -> int:
    """Tokens of a cell's longest prompt, from its length in bytes where it lies on this machine."""
    limit = settings.workload.prompt_tokens
    count, length = _lengths(settings.workload)
    if not count:
        return limit or UNSEEN_TOKENS
    # A model of random weights reads bytes; no tokenizer of text makes more tokens than one of two bytes.
    tokens = length if settings.model.weights == "random" else -(-length // 2)
    return tokens if limit is None else min(limit, tokens)


@lru_cache(maxsize=64)
def _lengths(workload: WorkloadSettings) -> tuple[int, int]:
    """How many prompts there are, and the bytes of the longest; zeros where they cannot be seen."""
    if on_hub(workload):
        return 0, 0
    try:
        lengths = [len(prompt.text.encode()) for prompt in load_prompts(workload)]
    except (SpeclaError, OSError):
        # Whoever reads them for good says what is wrong.
        return 0, 0
    return len(lengths), max(lengths)


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
