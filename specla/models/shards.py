"""Weight files: which ones a checkpoint has, and what their headers say. No torch.

Safetensors alone, which hold no code. Names, shapes and dtypes come from the files' headers, whose sizes the library
holds against the file's own, so that nothing is allocated for a checkpoint that does not fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from specla.errors import SpeclaError, first_line
from specla.models.json_file import read_object
from specla.models.plain_file import size_of

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
        SpeclaError: one is missing or no plain file, or the index is damaged or leads out of the folder.
    """
    names = sorted(set(_weight_map(folder).values())) or [SINGLE]
    files = [folder / name for name in names]
    for file in files:
        if size_of(file) is None:
            raise SpeclaError(f"{folder}: {file.name} is missing{_instead(folder)}")
    if (folder / SINGLE).exists() and folder / SINGLE not in files:
        raise SpeclaError(f"{folder}: has {SINGLE} and the shards of {INDEX}; remove the one that is not meant")
    return files


def _instead(folder: Path) -> str:
    """What to say of a folder that lacks the weights that were looked for: what is there, and what that may be."""
    there = sorted(file.name for suffix in ("*.safetensors", "*.bin", "*.pt", "*.pth") for file in folder.glob(suffix))
    if not there or (folder / INDEX).exists():
        return "; is the checkpoint complete, and in safetensors form?"
    named = (
        f", but {', '.join(there)[:200]} is there" if len(there) == 1 else f", but {', '.join(there)[:200]} are there"
    )
    if any(name.startswith("adapter") for name in there):
        return f"{named}: an adapter is no model; merge it into its model and save that"
    if not any(name.endswith(".safetensors") for name in there):
        return f"{named}: save the model again with safe_serialization=True"
    return f"{named}; save the model whole, without a variant in its name"


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
    for name in set(found) | set(found.values()):
        if not _can_be_name(name):
            raise SpeclaError(f"{index}: damaged, {name[:200]!r} is no name; get the checkpoint again")
    for name in set(found.values()):
        # A link in the folder is followed, as caches of the hub are made of them; a path is not.
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise SpeclaError(f"{index}: names {name[:200]!r}, outside of the checkpoint's folder; do not trust it")
    return found


def _can_be_name(name: str) -> bool:
    """Whether a file or a tensor can be called this: no half of a character, which JSON may hold, and no NUL."""
    return bool(name) and "\0" not in name and not any("\ud800" <= character <= "\udfff" for character in name)


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
        with opened(file, "np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (no iterator)
                part = tensors.get_slice(name)
                if name in found:
                    other = found[name].file.name
                    raise SpeclaError(f"{file}: weight {name!r} is in {other} as well; get the checkpoint again")
                found[name] = Stored(file, part.get_dtype(), tuple(part.get_shape()))
    return found


def require_floats(found: Mapping[str, Stored]) -> None:
    """Raise SpeclaError for weights of a dtype that is not run."""
    for name, stored in found.items():
        if stored.dtype not in FLOATS:
            raise SpeclaError(
                f"{stored.file}: weight {name!r} is {stored.dtype}; specla runs {', '.join(FLOATS)}, and no quantised "
                "weights"
            )


def misnamed(first: str, found: Sequence[str]) -> str:
    """What to say of tensors' names that no such network has, where it lacks the weight `first`: a prefix off or more.

    Args:
        first: a name that is missing.
        found: names that are there and unknown.
    """
    if not found:
        return ""
    told = f", but {found[0][:200]!r}" + (f" and {len(found) - 1} more of no such network" if len(found) > 1 else "")
    for name in found:
        if first.endswith(f".{name}"):
            return f"{told}: the names lack {first.removesuffix(name)!r}; save the whole model, not a part of it"
        if name.endswith(f".{first}"):
            return f"{told}: the names begin with {name.removesuffix(first)!r}; save the model itself"
    return told


@contextmanager
def opened(file: Path, framework: str) -> Iterator[Any]:
    """A safetensors file, its header read and held against its size.

    Args:
        file: to be opened.
        framework: whose tensors it gives: `pt`, or `np` where only headers are looked at.

    Raises:
        SpeclaError: it is damaged, or no safetensors file.
    """
    try:
        with file.open("rb") as content:
            start = content.read(4)
        if start.startswith(_PICKLES):
            raise SpeclaError(
                f"{file}: is a file of torch.save under another name, which can run code and is never read; save the "
                "model again with safe_serialization=True"
            )
        with safe_open(file, framework=framework) as tensors:
            yield tensors
    except (SafetensorError, OSError) as damage:
        reason = first_line(damage)[:200]
        raise SpeclaError(f"{file}: cannot be read, perhaps cut short ({reason}); get the file again") from None
