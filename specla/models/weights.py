"""Weights held against a network's, and read: that they are what is wanted is known before any is."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from specla.errors import SpeclaError, first_line
from specla.models.shards import Stored, opened


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
