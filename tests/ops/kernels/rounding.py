"""How a kernel's outputs are held against the torch form that it replaces."""

import torch
from torch import Tensor

from tests.tolerances import assert_close

MOSTLY = 0.99


def assert_same(found: Tensor, wanted: Tensor, entry: str, roundings: int = 1) -> None:
    """Float32 by the table; 16 bits to the last place.

    Both forms compute in float32, in another order, and round. Only a value within some 1e-7 of the middle between two
    neighbours can round to either, which is one unit in the last place, and is rare. `roundings` counts those between
    input and output, since a flipped one moves what follows by its unit. Near zero, where the terms of a sum cancel,
    float32's own error exceeds a 16-bit unit: it is allowed on top.
    """
    assert found.dtype == wanted.dtype and found.shape == wanted.shape and found.is_contiguous()
    found, wanted = found.cpu(), wanted.cpu()
    if found.dtype == torch.float32:
        assert_close(found, wanted.double(), entry)
        return
    unit = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double(), wanted.double(), rtol=roundings * unit, atol=2**-21)
    assert (found == wanted).float().mean() >= MOSTLY or (found != wanted).sum() <= 1
