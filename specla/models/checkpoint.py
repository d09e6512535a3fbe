"""Checkpoint folders as flash-linear-attention and Hugging Face write them: config.json, and safetensors or shards."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from torch import Tensor

from specla.errors import SpeclaError, first_line
from specla.models.config import DEFAULTS, GatedDeltaNetConfig
from specla.models.folder import local_folder, read_config
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.json_file import read_object
from specla.models.weights import (
    FLOATS,
    Stored,
    read_tensors,
    require_finite,
    require_fit,
    shapes_of,
    stored_tensors,
    unread_files,
    weight_files,
)

SHARD_SIZE = "15MB"
# Their exponentials decide how long the state remembers: they stay float32 in every dtype, on disk and in memory.
_ALWAYS_FLOAT32 = ("A_log", "dt_bias")
_EMBEDDINGS, _HEAD = "model.embeddings.weight", "lm_head.weight"
_LAYER = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,9})\.(.+)")
# Keys that decide the shapes of weights and that not every config.json has.
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_heads", "head_dim", "expand_v")


def resolve_folder(path: str, dial: str = "model.path") -> Path:
    """The folder of a checkpoint, fetched where it names a repository of the hub.

    Args:
        path: as for `local_folder`.
        dial: what the path was given for, for messages.

    Raises:
        SpeclaError: nothing is there.
    """
    if folder := local_folder(path, dial):
        return folder
    try:
        patterns = ["*.json", "*.safetensors", "*.model", "*.txt"]
        return Path(snapshot_download(path, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as problem:
        reason = first_line(problem)
        raise SpeclaError(f"{dial}={path}: no such folder, and the hub did not give it ({reason})") from None


def checkpoint_notes(folder: Path) -> list[str]:
    """What of a checkpoint that can be loaded is left unread, a line each."""
    config, found, notes = read_config(folder), stored_tensors(folder), []
    if unused := _early_skips(config, found):
        notes.append(
            f"{folder}: attn.D of {len(unused)} layers is not read: early versions of flash-linear-attention stored it "
            "and never used it"
        )
    if unread := unread_files(folder):
        notes.append(f"{folder}: {', '.join(unread)[:200]} not read: no index names it")
    if "auto_map" in read_object(folder / "config.json"):
        notes.append(f"{folder}: the code that auto_map of config.json names is never run")
    return notes


def load_model(folder: Path, dtype: torch.dtype, device: torch.device | str = "cpu") -> GatedDeltaNetLM:
    """Load a checkpoint, ready for inference.

    Raises:
        SpeclaError: a file is missing or damaged, or weights do not fit the configuration or are not finite.
    """
    config, found = read_config(folder), stored_tensors(folder)
    for name in _early_skips(config, found):
        del found[name]
    head = found.pop(_HEAD) if config.tie_word_embeddings and _HEAD in found else None
    require_fit(ModelShapes(config, str(folder / "config.json")), found, folder, _left_out(folder))
    cast: dict[str, Tensor] = {}
    for name, tensor in read_tensors(found):
        cast[name] = _cast(name, tensor, dtype).to(device)
        require_finite(name, tensor, cast[name], str(folder))
    if head is not None:
        _require_tied(head, dict(read_tensors({_EMBEDDINGS: found[_EMBEDDINGS]}))[_EMBEDDINGS], folder)
    # Every weight is there by now, so that the model is no larger than its files.
    with torch.device("meta"):
        model = GatedDeltaNetLM(config)
    if config.tie_word_embeddings:
        cast[_HEAD] = cast[_EMBEDDINGS]
    model.load_state_dict(cast, assign=True)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embeddings.weight
    return model.prepare()


class ModelShapes(Mapping[str, tuple[int, ...]]):
    """The shapes of a model's weights by name, tied ones once; made of one layer, however many a config asks for."""

    def __init__(self, config: GatedDeltaNetConfig, where: str) -> None:
        self._layers = config.num_hidden_layers
        shapes = shapes_of(lambda: GatedDeltaNetLM(replace(config, num_hidden_layers=1)), where)
        if config.tie_word_embeddings:
            del shapes[_HEAD]
        first = "model.layers.0."
        self._layer = {name.removeprefix(first): shape for name, shape in shapes.items() if name.startswith(first)}
        self._around = {name: shape for name, shape in shapes.items() if not name.startswith(first)}

    def __getitem__(self, name: str) -> tuple[int, ...]:
        layer = _LAYER.fullmatch(name)
        if layer is None:
            return self._around[name]
        if int(layer[1]) >= self._layers:
            raise KeyError(name)
        return self._layer[layer[2]]

    def __iter__(self) -> Iterator[str]:
        yield from self._around
        for layer in range(self._layers):
            yield from (f"model.layers.{layer}.{name}" for name in self._layer)

    def __len__(self) -> int:
        return len(self._around) + self._layers * len(self._layer)


def _early_skips(config: GatedDeltaNetConfig, found: Mapping[str, Stored]) -> list[str]:
    """Names of attn.D, a number a head in every layer, which the first layers of flash-linear-attention held unused."""
    names = [name for name, stored in found.items() if name.endswith(".attn.D") and stored.shape == (config.num_heads,)]
    layers = {layer[1] for name in names if (layer := _LAYER.fullmatch(name)) is not None and layer[2] == "attn.D"}
    whole = len(names) == len(layers) == config.num_hidden_layers
    return names if whole and all(int(layer) < config.num_hidden_layers for layer in layers) else []


def _left_out(folder: Path) -> str:
    """What to say where weights do not fit: the sizes that config.json leaves out, and their defaults."""
    raw = read_object(folder / "config.json")
    taken = ", ".join(f"{name} ({DEFAULTS[name]} by default)" for name in _SIZES if name not in raw)
    return f"; it leaves out {taken}: add what differs" if taken else ""


def _require_tied(head: Stored, embeddings: Tensor, folder: Path) -> None:
    ((_, weight),) = read_tensors({_HEAD: head})
    if head.dtype not in FLOATS or weight.shape != embeddings.shape or not torch.equal(weight, embeddings):
        raise SpeclaError(
            f"{folder}: tie_word_embeddings=true, but {_HEAD} is not {_EMBEDDINGS}; correct config.json or the weights"
        )


def random_model(
    config: GatedDeltaNetConfig, dtype: torch.dtype, device: torch.device | str = "cpu", seed: int = 0
) -> GatedDeltaNetLM:
    """A model of this shape with random weights, ready for inference.

    What a layer adds to the residual stream is scaled down by the square root of how often something is added, as GPT-2
    is initialised, and untied embeddings have unit variance. With plain weights rounding grows with every layer: at 24
    layers in bfloat16 it decided a fifth of the tokens, and no gate could have told an error from it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GatedDeltaNetLM(config)
    for block in model.blocks:
        for projection in (block.attn.o_proj, block.mlp.down_proj):
            projection.weight.data *= (2 * config.num_hidden_layers) ** -0.5
    if not config.tie_word_embeddings:
        model.model.embeddings.weight.data /= config.initializer_range
    for name, parameter in model.named_parameters():
        parameter.data = _cast(name, parameter.data, dtype).to(device)
    return model.prepare()


def save_model(model: GatedDeltaNetLM, folder: Path, dtype: torch.dtype, shard_size: str = SHARD_SIZE) -> None:
    """Write config.json and safetensors (in shards of at most `shard_size`) that flash-linear-attention can read."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {**model.config.to_hf(), "torch_dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    # Clones: the packed projections of a model in use are parts of one tensor.
    weights = {name: _cast(name, tensor.detach(), dtype).cpu().clone() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    save_torch_state_dict(weights, folder, max_shard_size=shard_size)


def weights_digest(folder: Path) -> str:
    """sha256 over the weight files and the configuration, for fingerprints."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for file in weight_files(folder):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def _cast(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(torch.float32 if name.rsplit(".", 1)[-1] in _ALWAYS_FLOAT32 else dtype).contiguous()
