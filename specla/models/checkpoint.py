"""Checkpoint folders as flash-linear-attention and Hugging Face write them: config.json, and safetensors or shards."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from torch import Tensor

from specla.errors import SpeclaError, first_line
from specla.models.config import GatedDeltaNetConfig
from specla.models.folder import local_folder, read_config
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.look import early_skips, left_out
from specla.models.shapes import EMBEDDINGS, HEAD, ModelShapes, require_fit
from specla.models.shards import FLOATS, Stored, stored_tensors, weight_files
from specla.models.weights import read_tensors, require_finite

SHARD_SIZE = "15MB"
# Their exponentials decide how long the state remembers: they stay float32 in every dtype, on disk and in memory.
_ALWAYS_FLOAT32 = ("A_log", "dt_bias")


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


def load_model(folder: Path, dtype: torch.dtype, device: torch.device | str = "cpu") -> GatedDeltaNetLM:
    """Load a checkpoint, ready for inference.

    Raises:
        SpeclaError: a file is missing or damaged, or weights do not fit the configuration or are not finite.
    """
    config, found = read_config(folder), stored_tensors(folder)
    for name in early_skips(config, found):
        del found[name]
    head = found.pop(HEAD) if config.tie_word_embeddings and HEAD in found else None
    require_fit(ModelShapes(config), found, folder, left_out(folder))
    cast: dict[str, Tensor] = {}
    for name, tensor in read_tensors(found):
        cast[name] = _cast(name, tensor, dtype).to(device)
        require_finite(name, tensor, cast[name], str(folder))
    if head is not None:
        _require_tied(head, dict(read_tensors({EMBEDDINGS: found[EMBEDDINGS]}))[EMBEDDINGS], folder)
    # Every weight is there by now, so that the model is no larger than its files.
    with torch.device("meta"):
        model = GatedDeltaNetLM(config)
    if config.tie_word_embeddings:
        cast[HEAD] = cast[EMBEDDINGS]
    model.load_state_dict(cast, assign=True)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embeddings.weight
    return model.prepare()


def _require_tied(head: Stored, embeddings: Tensor, folder: Path) -> None:
    ((_, weight),) = read_tensors({HEAD: head})
    if head.dtype not in FLOATS or weight.shape != embeddings.shape or not torch.equal(weight, embeddings):
        raise SpeclaError(
            f"{folder}: tie_word_embeddings=true, but {HEAD} is not {EMBEDDINGS}; correct config.json or the weights"
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
