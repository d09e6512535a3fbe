"""Checkpoint folders as flash-linear-attention and Hugging Face write them: config.json, and safetensors or shards."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specla.errors import SpeclaError, first_line
from specla.models.config import GatedDeltaNetConfig
from specla.models.gated_deltanet import GatedDeltaNetLM

SHARD_SIZE = "15MB"
ASSETS = Path(__file__).resolve().parent.parent / "assets"
# Their exponentials decide how long the state remembers: they stay float32 in every dtype, on disk and in memory.
_ALWAYS_FLOAT32 = ("A_log", "dt_bias")


def resolve_folder(path: str, dial: str = "model.path") -> Path:
    """The folder of a checkpoint.

    Args:
        path: a folder, `asset:NAME` for a bundled model, or the name of a hub repository (`owner/name`), fetched then.
        dial: what the path was given for, for messages.

    Raises:
        SpeclaError: nothing is there.
    """
    if path.startswith("asset:"):
        folder = ASSETS / path.removeprefix("asset:")
        if not folder.is_dir():
            names = ", ".join(sorted(p.name for p in ASSETS.iterdir() if (p / "config.json").exists()))
            raise SpeclaError(f"{dial}={path}: no such bundled model; there are: {names}")
        return folder
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise SpeclaError(f"{dial}={path}: is a file; name the folder that holds config.json")
    if not on_hub(path):
        raise SpeclaError(f"{dial}={path}: no such folder")
    try:
        patterns = ["*.json", "*.safetensors", "*.model", "*.txt"]
        return Path(snapshot_download(path, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as problem:
        reason = first_line(problem)
        raise SpeclaError(f"{dial}={path}: no such folder, and the hub did not give it ({reason})") from None


def on_hub(path: str) -> bool:
    """Whether a path names a hub repository, which `resolve_folder` would ask for."""
    named = path.count("/") == 1 and not path.startswith((".", "/", "~", "asset:"))
    return named and not Path(path).exists()


def read_config(folder: Path) -> GatedDeltaNetConfig:
    """The configuration in `folder/config.json`."""
    file = folder / "config.json"
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpeclaError(f"{folder}: no config.json; name the folder of a gated delta net checkpoint") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as damage:
        raise SpeclaError(f"{file}: not valid JSON ({damage})") from None
    if not isinstance(raw, dict):
        raise SpeclaError(f"{file}: a JSON object was expected")
    return GatedDeltaNetConfig.from_hf(raw, str(file))


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, the shards of its index where it has one."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = sorted(set(weight_map.values()))
            files = [folder / name for name in names]
        except (ValueError, KeyError, TypeError, AttributeError) as damage:
            raise SpeclaError(f"{index}: damaged ({type(damage).__name__}); get the checkpoint again") from None
        for name in names:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise SpeclaError(f"{index}: names {name!r}, outside of the checkpoint's folder; do not trust it")
    else:
        files = [folder / "model.safetensors"]
    for file in files:
        if not file.exists():
            raise SpeclaError(f"{folder}: {file.name} is missing; is the checkpoint complete, and in safetensors form?")
    return files


def load_model(folder: Path, dtype: torch.dtype, device: torch.device | str = "cpu") -> GatedDeltaNetLM:
    """Load a checkpoint, ready for inference.

    Raises:
        SpeclaError: a file is missing or truncated, or weights do not fit the configuration.
    """
    config = read_config(folder)
    weights: dict[str, Tensor] = {}
    for file in weight_files(folder):
        try:
            with safe_open(file, framework="pt") as tensors:
                weights.update({name: tensors.get_tensor(name) for name in tensors.keys()})  # noqa: SIM118 (no iterator)
        except (SafetensorError, OSError) as damage:
            raise SpeclaError(f"{file}: cannot be read, perhaps cut short ({damage})") from None
    if config.tie_word_embeddings and "model.embeddings.weight" in weights:
        weights["lm_head.weight"] = weights["model.embeddings.weight"]
    # Before the model is built: a nonsensical number of layers would take for ever.
    last = f"model.layers.{config.num_hidden_layers - 1}.attn_norm.weight"
    if last not in weights:
        raise SpeclaError(f"{folder}: no weight {last!r}; config.json does not fit the weights")
    with torch.device("meta"):
        model = GatedDeltaNetLM(config)
    _check_weights(model, weights, folder)
    cast = {name: _cast(name, tensor, dtype).to(device) for name, tensor in weights.items()}
    if config.tie_word_embeddings:
        cast["lm_head.weight"] = cast["model.embeddings.weight"]
    model.load_state_dict(cast, assign=True)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embeddings.weight
    return model.prepare()


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


def _check_weights(model: GatedDeltaNetLM, weights: dict[str, Tensor], folder: Path) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    missing, unknown = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing:
        raise SpeclaError(
            f"{folder}: no weight {missing[0]!r} ({len(missing)} missing); config.json does not fit the weights"
        )
    if unknown:
        raise SpeclaError(
            f"{folder}: unexpected weight {unknown[0]!r} ({len(unknown)} in all); is this a gated delta net?"
        )
    for name, shape in expected.items():
        if tuple(weights[name].shape) != shape:
            found = tuple(weights[name].shape)
            raise SpeclaError(f"{folder}: weight {name!r} has shape {found}, config.json asks for {shape}")
