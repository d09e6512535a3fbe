"""The typed settings of one cell: a dataclass for every config group, and the root that holds them.

They are the schemas that Hydra composes into, so a key that is not here does not exist. None means that a choice does
not use the dial. Which names and ranges make sense is checked in `validate`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specla.models.config import GatedDeltaNetConfig

IS_PATH = {"path": True}
"""Metadata of a field that holds a path: what is typed for it is taken as it is, as far as Hydra's grammar allows."""

Alpha = float | tuple[float, ...] | tuple[tuple[float, ...], ...]
"""A share accepted: one, or one a depth (the last serves deeper levels), or for every depth one a sibling rank."""


@dataclass(frozen=True)
class ModelSettings:
    """The target model."""

    name: str = ""
    path: str | None = field(default=None, metadata=IS_PATH)
    """A folder in the format of Hugging Face, or `asset:NAME` for a bundled one."""
    weights: str = "checkpoint"
    """checkpoint, or random for timing a shape."""
    hidden_size: int = 0
    num_hidden_layers: int = 0
    num_heads: int = 0
    num_v_heads: int = 0
    """Value heads; a multiple of num_heads, whose q and k they share in groups."""
    head_dim: int = 0
    expand_v: float = 1.0
    """The size of a value head over that of a key head."""
    intermediate_size: int = 0
    vocab_size: int = 0
    use_gate: bool = True
    conv_bias: bool = False
    allow_neg_eigval: bool = False
    tie_word_embeddings: bool = False
    norm_eps: float = 1e-6


@dataclass(frozen=True)
class DrafterSettings:
    """Who drafts."""

    name: str = ""
    # A container of containers is beyond the schema's types, so `validate` checks the shape.
    alpha: Any = None
    """Of the oracle: see `Alpha`."""
    cost: str | None = None
    """Of the oracle: none, or aligned to run the real drafter's work and override its tokens."""
    profile: str | None = field(default=None, metadata=IS_PATH)
    """Of the oracle: a file of alpha[d, r] measured on a real pair, in place of alpha."""
    max_ngram: int | None = None
    min_ngram: int | None = None
    path: str | None = field(default=None, metadata=IS_PATH)
    """Of the aligned drafter: a folder, or `asset:NAME`."""
    vocabulary: int | None = None
    """Of the aligned drafter: how many of the most frequent tokens are drafted from; None is as it was trained."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", _as_alpha(self.alpha))


@dataclass(frozen=True)
class TopologySettings:
    """The shape of a draft."""

    name: str = ""
    length: int | None = None
    """D: levels of drafts."""
    nodes: int | None = None
    """T: nodes, root included."""
    branching: int | None = None
    """Children of a node."""
    parents: tuple[int, ...] | None = None
    margin: float | None = None
    """A draft is kept while its cumulative log probability is within this of the best one."""

    def __post_init__(self) -> None:
        if self.parents is not None:
            object.__setattr__(self, "parents", tuple(self.parents))


@dataclass(frozen=True)
class EngineSettings:
    """Who decodes, and how."""

    name: str = ""
    verify: str | None = None
    recover: str | None = None
    """`auto` picks the first that the verification lists."""
    adaptive: bool | None = None
    """Pick how deep to draft, or plain decoding, from what was accepted lately."""
    ring: int | None = None
    """Of factors_lazy: committed tokens a row keeps as factors."""


@dataclass(frozen=True)
class WorkloadSettings:
    """What is decoded."""

    name: str = ""
    path: str | None = field(default=None, metadata=IS_PATH)
    """A file of prompts."""
    dataset: str | None = None
    """A data set of the Hugging Face hub."""
    subset: str | None = None
    split: str | None = None
    column: str | None = None
    """The column of `path` or `dataset` that holds the prompt."""
    turns: str | None = None
    """Of conversations: first, the first user turn alone, or all, up to the last one."""
    categories: tuple[str, ...] | None = None
    """Which categories of prompts; None takes all."""
    batch: int = 1
    prompts: int | None = None
    """How many prompts, a whole number of batches; None takes all."""
    prompt_tokens: int | None = None
    """A longer prompt keeps its last tokens; None keeps all."""
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))


@dataclass(frozen=True)
class MeasureSettings:
    """How often it is measured."""

    name: str = ""
    repeats: int = 5
    """Timed repeats; an interval needs five."""
    warmup: int = 1
    """Repeats before those, not kept."""
    sample_ms: float | None = None
    """Of kernel timings: how long one sample lasts at least, launches being repeated."""
    calibration: int | None = None
    """Of topology=auto: prompts, none of those measured, that its tree is chosen on."""
    accepted: int | None = None
    """Of `ablate recover` and `defer`: drafts accepted; None takes the deepest path."""


@dataclass(frozen=True)
class SamplingSettings:
    """How a token is picked; temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True)
class BaselineSettings:
    """A user's own way of verifying, to be compared with: `function` of `module`."""

    module: str | None = None
    function: str | None = None


@dataclass(frozen=True)
class Settings:
    """One cell, whole."""

    device: str = "auto"
    dtype: str = "auto"
    seed: int = 0
    threads: int | None = None
    """Threads that torch may use; None takes all cores."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    baseline: BaselineSettings = field(default_factory=BaselineSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    drafter: DrafterSettings = field(default_factory=DrafterSettings)
    topology: TopologySettings = field(default_factory=TopologySettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    workload: WorkloadSettings = field(default_factory=WorkloadSettings)
    measure: MeasureSettings = field(default_factory=MeasureSettings)


@dataclass(frozen=True)
class Schema(Settings):
    """What Hydra composes: the settings, and what only the planner reads."""

    sections: dict[str, list[str]] = field(default_factory=dict)
    """Of an experiment: sweeps of their own, each a list of words; the name becomes the cells' group."""


GROUPS = ("model", "drafter", "topology", "engine", "workload", "measure")
"""The config groups that every cell has, in the order in which they are written."""


def dials() -> dict[str, dataclasses.Field[Any]]:
    """Every dial by its dotted key, in order."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for outer in dataclasses.fields(Settings):
        if isinstance(outer.type, type) and dataclasses.is_dataclass(outer.type):
            found.update({f"{outer.name}.{inner.name}": inner for inner in dataclasses.fields(outer.type)})
        else:
            found[outer.name] = outer
    return found


def paths(schema: Mapping[str, dataclasses.Field[Any]]) -> frozenset[str]:
    """Which of these fields, by key, hold a path."""
    return frozenset(key for key, entry in schema.items() if entry.metadata.get("path"))


def get(settings: Settings, key: str) -> Any:
    """The value of the dial with this dotted key."""
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


def put(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """The settings with other values by dotted key."""
    changed: dict[str, Any] = {}
    for key, value in values.items():
        head, _, rest = key.partition(".")
        if rest:
            changed[head] = dataclasses.replace(changed.get(head, getattr(settings, head)), **{rest: value})
        else:
            changed[head] = value
    return dataclasses.replace(settings, **changed)


def to_plain(settings: Settings) -> dict[str, Any]:
    """Nested dictionaries and lists, for YAML and JSON."""
    return {str(key): _plain(value) for key, value in dataclasses.asdict(settings).items()}


def model_config(settings: ModelSettings) -> GatedDeltaNetConfig:
    """The shape that the settings describe."""
    shared = GatedDeltaNetConfig.__dataclass_fields__.keys() & settings.__dataclass_fields__.keys()
    return GatedDeltaNetConfig(**{name: getattr(settings, name) for name in shared})


def config_hash(settings: Settings, *more: str) -> str:
    """Sixty-four hexadecimal digits of the settings and of what else decides what a cell means."""
    text = json.dumps([to_plain(settings), *more], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _as_alpha(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_as_alpha(inner) for inner in value)
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
