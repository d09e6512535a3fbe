"""A trained drafter as a folder: config.json, which names its target, and one safetensors file.

config.json is written last into a folder beside the wanted one, which then takes its name: a folder that is there is
whole. It holds the digest of the weights, so that damage is told from another file.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from specla.errors import SpeclaError
from specla.models.config import MOST
from specla.models.drafter import AlignedNet, DrafterConfig
from specla.models.json_file import read_object
from specla.models.plain_file import size_of
from specla.models.shapes import require_fit
from specla.models.shards import headers
from specla.models.weights import read_tensors, require_finite, shapes_of
from specla.models.whole_folder import whole_folder

KIND, FORMAT = "specla-aligned-drafter", 1
WEIGHTS = "drafter.safetensors"
_ORDER = "vocabulary_order"
_Kind = TypeVar("_Kind", int, float, str)
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
    weights = {name: _cast(name, tensor.detach(), torch.bfloat16) for name, tensor in net.state_dict().items()}
    with whole_folder(folder) as partial:
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
    sizes = {entry.name: _value(raw, entry.name, int, folder) for entry in _fields() if entry.name != "norm_eps"}
    config = DrafterConfig(**sizes, norm_eps=_value(raw, "norm_eps", float, folder))
    count, made_for = _value(raw, "draft_vocabulary", int, folder), _value(raw, "target_sha256", str, folder)
    digest = _value(raw, "weights_sha256", str, folder)
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
    if not 1 <= count <= vocab_size:
        raise SpeclaError(f"{folder}: its draft vocabulary does not fit {vocab_size} tokens; train the drafter again")
    _require_file(folder / WEIGHTS, digest)
    net, order = _filled(config, folder, dtype, device)
    return TrainedDrafter(net, order, count)


def require_order(order: Any, vocab_size: int, where: str) -> None:
    """Raise SpeclaError unless this is every token once, [vocabulary] of whole numbers."""
    whole = isinstance(order, Tensor) and order.shape == (vocab_size,) and not order.is_floating_point()
    if not whole or not torch.equal(order.long().sort().values, torch.arange(vocab_size, device=order.device)):
        raise SpeclaError(f"{where}: its order of tokens is not every one of the {vocab_size} once; train it again")


def drafter_digest(folder: Path) -> str:
    """sha256 of a drafter's config.json, which holds that of its weights."""
    _read_config(folder)
    return _sha256(folder / "config.json")


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        raw = read_object(file)
    except FileNotFoundError:
        raise SpeclaError(
            f"drafter.path={folder}: no config.json there; name a folder that `specla train drafter` finished"
        ) from None
    if raw.get("kind") != KIND:
        raise SpeclaError(f"{file}: is not that of an aligned drafter; train one with `specla train drafter`")
    if raw.get("format") != FORMAT:
        raise SpeclaError(f"{file}: format {raw.get('format')!r}, this version reads {FORMAT}; train the drafter again")
    return raw


def _fields() -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(DrafterConfig)


def _value(raw: Mapping[str, Any], name: str, kind: type[_Kind], folder: Path) -> _Kind:
    """A value of config.json, of this type and of no other that could be taken for it."""
    value: Any = raw.get(name)
    # JSON writes 1.0 as it likes, and true is an integer in Python alone.
    fits = not isinstance(value, bool) and isinstance(value, (kind, int) if kind is float else kind)
    if not fits or (kind is not str and abs(value) > MOST):
        raise SpeclaError(f"{folder}/config.json: no usable value of {name}; train the drafter again")
    return kind(value)


def _require_file(file: Path, digest: str) -> None:
    if size_of(file) is None:
        raise SpeclaError(f"{file}: is missing; the folder is incomplete, train the drafter again")
    if _sha256(file) != digest:
        raise SpeclaError(f"{file}: is not the file that config.json was written with, perhaps cut short; get it again")


def _filled(
    config: DrafterConfig, folder: Path, dtype: torch.dtype, device: torch.device | str
) -> tuple[AlignedNet, Tensor]:
    """The network with its weights, and the order of tokens, once the file's header fits the configuration."""
    expected = shapes_of(lambda: AlignedNet(config), f"{folder}/config.json")
    found = headers([folder / WEIGHTS])
    order = found.pop(_ORDER, None)
    if order is None:
        raise SpeclaError(f"{folder / WEIGHTS}: no {_ORDER!r} in it; train the drafter again")
    require_fit(expected, found, folder)
    if order.shape != (config.vocab_size,):
        raise SpeclaError(f"{folder / WEIGHTS}: {_ORDER!r} has shape {order.shape}, not ({config.vocab_size},)")
    cast: dict[str, Tensor] = {}
    for name, tensor in read_tensors(found):
        cast[name] = _cast(name, tensor, dtype).to(device)
        require_finite(name, tensor, cast[name], str(folder))
    ((_, tokens),) = read_tensors({_ORDER: order})
    require_order(tokens, config.vocab_size, str(folder / WEIGHTS))
    with torch.device("meta"):
        net = AlignedNet(config)
    net.load_state_dict(cast, assign=True)
    return net, tokens.long().to(device)


def _cast(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(torch.float32 if name.rsplit(".", 1)[-1] in _ALWAYS_FLOAT32 else dtype).contiguous().cpu()


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
