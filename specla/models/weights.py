"""Weight files: which ones a checkpoint has, what they hold, and that they hold what is wanted, before any is read.

Safetensors alone, which hold no code. Names, shapes and dtypes come from the files' headers, whose sizes the library
holds against the file's own, so that nothing is allocated for a checkpoint that does not fit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from specla.errors import SpeclaError, first_line
from specla.models.json_file import read_object

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
FLOATS = ("F64", "F32", "F16", "BF16")
"""Dtypes of weights, as safetensors names them; all others are of quantised checkpoints."""
# How a zip file, which torch.save writes, and Python's pickles begin.
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@dataclass(frozen=True)
class Stored:
    """Where a tensor is and what it is: `dtype` as safetensors names it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, the shards of its index where it has one.

    Raises:
        SpeclaError: one is missing, or the index is damaged or leads out of the folder.
    """
    names = sorted(set(_weight_map(folder).values())) or [SINGLE]
    files = [folder / name for name in names]
    if (folder / SINGLE).exists() and folder / SINGLE not in files:
        raise SpeclaError(f"{folder}: has {SINGLE} and the shards of {INDEX}; remove the one that is not meant")
    for file in files:
        if not file.is_file():
            raise SpeclaError(f"{folder}: {file.name} is missing; is the checkpoint complete, and in safetensors form?")
    return files


def unread_files(folder: Path) -> list[str]:
    """Names of files like a checkpoint's weights that are not among them."""
    read = {file.name for file in weight_files(folder)}
    return sorted({file.name for file in folder.glob("model*.safetensors")} - read)


def _weight_map(folder: Path) -> dict[str, str]:
    """By name of a tensor, the file that the index says it is in; empty where there is no index."""
    index = folder / INDEX
    try:
        found = read_object(index).get("weight_map")
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict) or not found or not all(isinstance(name, str) for name in found.values()):
        raise SpeclaError(f"{index}: damaged, no weight_map from tensors to files; get the checkpoint again")
    for name in set(found.values()):
        # A link in the folder is followed, as caches of the hub are made of them; a path is not.
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise SpeclaError(f"{index}: names {name[:200]!r}, outside of the checkpoint's folder; do not trust it")
    return found


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """The tensors of a checkpoint's files by name; their headers are read and nothing else.

    Raises:
        SpeclaError: a file is missing, damaged or no safetensors file, a tensor is there twice, or not where the index
            says.
    """
    found = headers(weight_files(folder))
    said = _weight_map(folder)
    for name in sorted(said.keys() | found.keys()) if said else ():
        where = found[name].file if name in found else None
        if name not in said or where != folder / said[name]:
            told = f"in {said[name]}" if name in said else "nowhere"
            real = f"in {where.name}" if where else "in none of its files"
            raise SpeclaError(
                f"{folder / INDEX}: weight {name!r} is {told}, but it is {real}; get the checkpoint again"
            )
    return found


def headers(files: Sequence[Path]) -> dict[str, Stored]:
    """The tensors of safetensors files by name. Raises SpeclaError for a damaged file and for one tensor in two."""
    found: dict[str, Stored] = {}
    for file in files:
        with _opened(file) as tensors:
            for name in tensors.keys():  # noqa: SIM118 (no iterator)
                part = tensors.get_slice(name)
                if name in found:
                    other = found[name].file.name
                    raise SpeclaError(f"{file}: weight {name!r} is in {other} as well; get the checkpoint again")
                found[name] = Stored(file, part.get_dtype(), tuple(part.get_shape()))
    return found


def shapes_of(make: Callable[[], nn.Module], where: str) -> dict[str, tuple[int, ...]]:
    """The shapes of a network's weights by name; nothing is allocated.

    Args:
        make: the network.
        where: its configuration, for messages.

    Raises:
        SpeclaError: there can be no such network.
    """
    try:
        with torch.device("meta"):
            net = make()
    except (RuntimeError, TypeError, ValueError, OverflowError, SpeclaError) as error:
        raise SpeclaError(f"{where}: no such network ({first_line(error)[:200]})") from None
    return {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}


def require_fit(
    expected: Mapping[str, tuple[int, ...]], found: Mapping[str, Stored], folder: Path, hint: str = ""
) -> None:
    """Hold what files hold against what a configuration asks for.

    Args:
        expected: shapes by name; may have far more names than can be gone through.
        found: in the files.
        folder: of both, for messages.
        hint: what else to say where they differ.

    Raises:
        SpeclaError: a weight is missing, of another shape, of a dtype that is not run, or is unknown.
    """
    for name, stored in found.items():
        if name in expected and stored.dtype not in FLOATS:
            raise SpeclaError(
                f"{stored.file}: weight {name!r} is {stored.dtype}; specla runs {', '.join(FLOATS)}, and no quantised "
                "weights"
            )
    missing = len(expected) - sum(name in expected for name in found)
    if missing:
        first = next(name for name in expected if name not in found)
        raise SpeclaError(
            f"{folder}: no weight {first!r} ({missing} missing); config.json does not fit the weights{hint}"
        )
    if unknown := sorted(name for name in found if name not in expected):
        raise SpeclaError(
            f"{folder}: unexpected weight {unknown[0][:200]!r} ({len(unknown)} in all); config.json does not fit the "
            f"weights{hint}"
        )
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise SpeclaError(
                f"{folder}: weight {name!r} has shape {found[name].shape}, config.json asks for {shape}{hint}"
            )


def read_tensors(found: Mapping[str, Stored]) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of all that were found, file by file."""
    for file in dict.fromkeys(stored.file for stored in found.values()):
        with _opened(file) as tensors:
            for name in (name for name, stored in found.items() if stored.file == file):
                yield name, tensors.get_tensor(name)


def require_finite(name: str, stored: Tensor, cast: Tensor, where: str) -> None:
    """Raise SpeclaError for a weight with NaN or infinity in it, as stored or in the dtype that it was cast to."""
    if is_finite(cast):
        return
    if is_finite(stored):
        dtype = str(cast.dtype).removeprefix("torch.")
        raise SpeclaError(f"{where}: weight {name!r} is beyond what {dtype} holds; give a dtype with a wider range")
    raise SpeclaError(f"{where}: weight {name!r} holds NaN or infinity; get the checkpoint again")


def is_finite(tensor: Tensor) -> bool:
    """Whether all of a tensor's numbers are finite: in one pass, which makes nothing of the tensor's size."""
    return not tensor.numel() or bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with file.open("rb") as content:
            start = content.read(4)
        if start.startswith(_PICKLES):
            raise SpeclaError(
                f"{file}: is a file of torch.save under another name, which can run code and is never read; save the "
                "model again with safe_serialization=True"
            )
        with safe_open(file, framework="pt") as tensors:
            yield tensors
    except (SafetensorError, OSError) as damage:
        raise SpeclaError(f"{file}: cannot be read, perhaps cut short ({first_line(damage)[:200]})") from None
