"""A trained drafter as a folder: config.json, which names its target, and one safetensors file.

config.json is written last into a folder beside the wanted one, which then takes its name: a folder that is there is
whole. It holds the digest of the weights, so that damage is told from another file.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specla.errors import SpeclaError
from specla.models.drafter import AlignedNet, DrafterConfig

KIND, FORMAT = "specla-aligned-drafter", 1
WEIGHTS = "drafter.safetensors"
_ORDER = "vocabulary_order"
# Their exponentials decide how long the state remembers.
_ALWAYS_FLOAT32 = ("A_log", "dt_bias")


@dataclass(frozen=True)
class TrainedDrafter:
    """A drafter from its folder.

    Attributes:
        net: not packed yet.
        order: [vocabulary] int64, tokens by how often the target writes them, the most frequent first.
        draft_vocabulary: how many of them are drafted from, unless a user says otherwise.
    """

    net: AlignedNet
    order: Tensor
    draft_vocabulary: int


def save_drafter(net: AlignedNet, folder: Path, target_digest: str, order: Tensor, draft_vocabulary: int) -> None:
    """Write a drafter's folder, in bfloat16; one that is there already is replaced.

    Args:
        net: not packed or packed.
        folder: to be written.
        target_digest: sha256 of the target's weights, as `weights_digest` gives it.
        order: [vocabulary] int64, see `TrainedDrafter`.
        draft_vocabulary: see `TrainedDrafter`.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    weights = {name: _cast(name, tensor.detach(), torch.bfloat16) for name, tensor in net.state_dict().items()}
    save_file({**weights, _ORDER: order.to(torch.int32).cpu()}, partial / WEIGHTS)
    config = {
        "kind": KIND,
        "format": FORMAT,
        "target_sha256": target_digest,
        **dataclasses.asdict(net.config),
        "draft_vocabulary": draft_vocabulary,
        "weights_sha256": _sha256(partial / WEIGHTS),
    }
    (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(partial, folder)


def random_drafter(
    config: DrafterConfig, dtype: torch.dtype, device: torch.device | str = "cpu", seed: int = 0
) -> TrainedDrafter:
    """A drafter of this shape with random weights: its drafts are worth nothing, its work takes as long as any."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = AlignedNet(config)
    for name, parameter in net.named_parameters():
        parameter.data = _cast(name, parameter.data, dtype).to(device)
    return TrainedDrafter(net, torch.arange(config.vocab_size, device=device), config.vocab_size)


def load_drafter(
    folder: Path, target_digest: str, vocab_size: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> TrainedDrafter:
    """Load a drafter for a target.

    Args:
        folder: written by `save_drafter`.
        target_digest: of the target it is to draft for.
        vocab_size: that target's.

    Raises:
        SpeclaError: the folder is incomplete or damaged, or its drafter belongs to another target.
    """
    raw = _read_config(folder)
    try:
        sizes = [entry.name for entry in dataclasses.fields(DrafterConfig) if entry.name != "norm_eps"]
        config = DrafterConfig(**{name: int(raw[name]) for name in sizes}, norm_eps=float(raw["norm_eps"]))
        count, made_for, digest = int(raw["draft_vocabulary"]), str(raw["target_sha256"]), str(raw["weights_sha256"])
    except (KeyError, TypeError, ValueError, OverflowError) as missing:
        raise SpeclaError(f"{folder}/config.json: no usable value ({missing}); train the drafter again") from None
    if config.vocab_size != vocab_size:
        raise SpeclaError(
            f"{folder}: drafts from {config.vocab_size} tokens, the target has {vocab_size}; give the drafter that was "
            "trained for this target, or train one with `specla train drafter`"
        )
    if made_for != target_digest:
        raise SpeclaError(
            f"{folder}: was trained for another target (weights {made_for[:12]}, these are {target_digest[:12]}); "
            "train one for this target with `specla train drafter`"
        )
    weights = _read_weights(folder / WEIGHTS, digest)
    order = weights.pop(_ORDER).long().to(device)
    net = _filled(config, weights, folder, dtype, device)
    if not 1 <= count <= vocab_size or order.shape != (vocab_size,):
        raise SpeclaError(f"{folder}: its draft vocabulary does not fit {vocab_size} tokens; train the drafter again")
    return TrainedDrafter(net, order, count)


def drafter_digest(folder: Path) -> str:
    """sha256 of a drafter's config.json, which holds that of its weights."""
    _read_config(folder)
    return _sha256(folder / "config.json")


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise SpeclaError(
            f"drafter.path={folder}: no config.json there; name a folder that `specla train drafter` finished"
        ) from None
    except ValueError as damage:
        raise SpeclaError(f"{file}: not valid JSON ({damage}); train the drafter again") from None
    if not isinstance(raw, dict) or raw.get("kind") != KIND:
        raise SpeclaError(f"{file}: is not that of an aligned drafter; train one with `specla train drafter`")
    if raw.get("format") != FORMAT:
        raise SpeclaError(f"{file}: format {raw.get('format')!r}, this version reads {FORMAT}; train the drafter again")
    return raw


def _read_weights(file: Path, digest: str) -> dict[str, Tensor]:
    if not file.is_file():
        raise SpeclaError(f"{file}: is missing; the folder is incomplete, train the drafter again")
    if _sha256(file) != digest:
        raise SpeclaError(f"{file}: is not the file that config.json was written with, perhaps cut short; get it again")
    try:
        with safe_open(file, framework="pt") as tensors:
            weights = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118 (no iterator)
    except (SafetensorError, OSError) as damage:
        raise SpeclaError(f"{file}: cannot be read ({damage}); train the drafter again") from None
    if _ORDER not in weights:
        raise SpeclaError(f"{file}: no {_ORDER!r} in it; train the drafter again")
    return weights


def _filled(
    config: DrafterConfig, weights: dict[str, Tensor], folder: Path, dtype: torch.dtype, device: torch.device | str
) -> AlignedNet:
    try:
        with torch.device("meta"):
            net = AlignedNet(config)
    except (RuntimeError, TypeError, ValueError, SpeclaError) as error:
        told = str(error).splitlines()[0]
        raise SpeclaError(f"{folder}/config.json: no such network ({told}); train the drafter again") from None
    expected = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if expected != found:
        wrong = next(name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name))
        raise SpeclaError(
            f"{folder}: weight {wrong!r} has shape {found.get(wrong)}, config.json asks for {expected.get(wrong)}"
        )
    net.load_state_dict({name: _cast(name, tensor, dtype).to(device) for name, tensor in weights.items()}, assign=True)
    return net


def _cast(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(torch.float32 if name.rsplit(".", 1)[-1] in _ALWAYS_FLOAT32 else dtype).contiguous().cpu()


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
