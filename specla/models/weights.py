"""Weights held against a network's, and read: that they are what is wanted is known before any is."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from specla.errors import SpeclaError, first_line
from specla.models.shards import Stored, misnamed, opened, require_floats


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
    require_floats({name: stored for name, stored in found.items() if name in expected})
    missing = len(expected) - sum(name in expected for name in found)
    unknown = sorted(name for name in found if name not in expected)
    if missing:
        first = next(name for name in expected if name not in found)
        raise SpeclaError(
            f"{folder}: no weight {first!r} ({missing} missing){misnamed(first, unknown)}; config.json does not fit "
            f"the weights{hint}"
        )
    if unknown:
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
        with opened(file, "pt") as tensors:
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
