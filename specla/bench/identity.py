"""Which model a cell decoded: what its config.json and the digest of its weights say. No torch.

The name of the option that it was reached by is only a name: two checkpoints under one option are two models, and one
checkpoint under two names is one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from specla.bench.normalise import KERNEL_COMMANDS
from specla.bench.settings import ModelSettings, model_config
from specla.errors import SpeclaError
from specla.models.config import GatedDeltaNetConfig
from specla.models.folder import local_folder, read_config
from specla.models.json_file import read_object

DIGEST_LETTERS = 12
_UNITS = ((1e9, "B"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class ModelInfo:
    """A model's identity, and what a reader calls it.

    Attributes:
        name: in config.json, else of the checkpoint's folder; of random weights the option's.
        weights: the first twelve hexadecimal digits of the digest of config.json and weights, or 'random seed N'; empty
            where no weights were looked at.
        layers: of the network.
        hidden: channels between layers.
        heads: of queries and keys.
        value_heads: that share them.
        head_dim: of a key.
        value_head_dim: of a value.
        intermediate: channels of the feed-forward layer.
        vocab: tokens.
        parameters: weights, tied embeddings counted once.
    """

    name: str
    weights: str
    layers: int
    hidden: int
    heads: int
    value_heads: int
    head_dim: int
    value_head_dim: int
    intermediate: int
    vocab: int
    parameters: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Everything but the name and the weights."""
        heads = (self.heads, self.value_heads, self.head_dim, self.value_head_dim)
        return (self.layers, self.hidden, *heads, self.intermediate, self.vocab, self.parameters)

    @property
    def is_random(self) -> bool:
        """Whether its weights were drawn, not trained."""
        return self.weights.startswith("random")

    @property
    def label(self) -> str:
        """'gdn-mini (9.5 M)', 'gdn-1.3b (1.4 B, random weights)'."""
        return f"{self.name} ({_count(self.parameters)}{', random weights' * self.is_random})"

    @classmethod
    def of(cls, config: GatedDeltaNetConfig, name: str, weights: str) -> "ModelInfo":
        """The identity of a model of this shape."""
        return cls(
            name=name,
            weights=weights,
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=config.num_heads,
            value_heads=config.num_v_heads,
            head_dim=config.head_dim,
            value_head_dim=config.head_v_dim,
            intermediate=config.intermediate_size,
            vocab=config.vocab_size,
            parameters=config.parameters,
        )


def option_info(settings: ModelSettings, weights: str) -> ModelInfo:
    """Of a model that has the shape of its settings: with random weights, or none at all."""
    return ModelInfo.of(model_config(settings), settings.name, weights)


def checkpoint_info(folder: Path, digest: str) -> ModelInfo:
    """Of a checkpoint.

    Args:
        folder: with its config.json.
        digest: of its weights; empty where they were not read.

    Raises:
        SpeclaError: config.json is missing or damaged.
    """
    config = read_config(folder)
    name = _own_name(read_object(folder / "config.json")) or folder.resolve().name
    return ModelInfo.of(config, name, digest[:DIGEST_LETTERS])


def _own_name(raw: Mapping[str, Any]) -> str:
    """The last part of the name that transformers keeps in a config.json; empty where it is no name."""
    name = raw.get("_name_or_path")
    last = Path(name).name if isinstance(name, str) else ""
    return "" if last in (".", "..") else last


def seen_info(settings: ModelSettings, seed: int, command: str) -> ModelInfo | None:
    """What can be told without torch and without reading weights, for a dry run.

    None where the checkpoint is not here, or is none: the run then says so.
    """
    if command in KERNEL_COMMANDS:
        return option_info(settings, "")
    if settings.weights == "random":
        return option_info(settings, f"random seed {seed}")
    try:
        folder = local_folder(settings.path) if settings.path else None
        return None if folder is None else checkpoint_info(folder, "")
    except SpeclaError:
        return None


@lru_cache(maxsize=64)
def seen_config(settings: ModelSettings) -> GatedDeltaNetConfig:
    """The shape of a model without reading weights: its checkpoint's where that is here, else that of its option."""
    if settings.weights == "random" or not settings.path:
        return model_config(settings)
    try:
        folder = local_folder(settings.path)
        return model_config(settings) if folder is None else read_config(folder)
    except SpeclaError:
        # Whoever loads it says what is wrong.
        return model_config(settings)


def _count(parameters: int) -> str:
    """'1.4 B', '9.5 M'."""
    for unit, letter in _UNITS:
        if parameters >= unit:
            return f"{parameters / unit:.1f} {letter}"
    return str(parameters)
