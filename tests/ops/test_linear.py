"""A packed product is the plain one, whatever runs it."""

import pytest
import torch

from specla.ops.linear import Linear, Norm, PackedLinear, Stream
from tests.tolerances import assert_close

ROWS = [(1, 1), (1, 5), (2, 16), (2, 17)]
"""Batch and nodes: one row, a few, the most that a kernel takes, and one more row each."""
HIDDEN, INNER = 96, 200


def drawn(*shape: int, device: str, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers, the same everywhere."""
    generator = torch.Generator().manual_seed(sum(shape))
    return (scale * torch.randn(*shape, generator=generator)).to(device, dtype)


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("cpu", torch.float32),
        pytest.param("cuda", torch.bfloat16, marks=pytest.mark.gpu),
        pytest.param("cuda", torch.float16, marks=pytest.mark.gpu),
    ],
)
@pytest.mark.parametrize("rows", ROWS)
@torch.inference_mode()
def test_a_packed_product_is_the_plain_one(rows: tuple[int, int], device: str, dtype: torch.dtype) -> None:
    """Through an MLP: into it, its gate, and back into the stream, whose sums of squares the next norm takes."""
    entry = f"product_{str(dtype).removeprefix('torch.')}"
    wide = drawn(2 * INNER, HIDDEN, device=device, dtype=dtype, scale=HIDDEN**-0.5)
    narrow = drawn(HIDDEN, INNER, device=device, dtype=dtype, scale=INNER**-0.5)
    norm = Norm(1 + drawn(HIDDEN, device=device, dtype=dtype, scale=0.1), 1e-5)
    stream = Stream(drawn(*rows, HIDDEN, device=device, dtype=dtype))
    into, back = PackedLinear(wide), PackedLinear(narrow)
    gated = into.gated(stream, norm)
    assert_close(gated, Linear(wide).gated(stream, norm), entry)
    added = back.added(gated, stream)
    assert_close(added.hidden, Linear(narrow).added(gated, stream).hidden, entry)
    found, wanted = into.after_norm(added, norm), Linear(wide).after_norm(Stream(added.hidden), norm)
    assert_close(found[0], wanted[0], entry)
    assert_close(found[1], wanted[1], entry.replace("product", "norm"))
    assert_close(back(gated), Linear(narrow)(gated), entry)
