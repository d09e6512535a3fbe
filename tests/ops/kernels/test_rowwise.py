"""The norm before a product and the gate after it, against the torch forms that they replace."""

import pytest
import torch
import torch.nn.functional as F

from specla.errors import SpeclaError
from specla.ops.kernels import rowwise
from tests.tolerances import assert_close


def apart(*shape: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Normal numbers in rows with NaN between them."""
    generator = torch.Generator().manual_seed(sum(shape))
    wide = torch.full((*shape[:-1], shape[-1] + 24), torch.nan, dtype=dtype)
    wide[..., 8:-16] = torch.randn(*shape, generator=generator)
    return wide.to(device)[..., 8:-16]


@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 3, 200), (5, 1030)])
def test_a_norm(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    x = apart(*shape, dtype=dtype, device=device)
    weight = 1 + apart(shape[-1], dtype=dtype, device=device) / 8
    wanted = F.rms_norm(x.float(), weight.shape, weight.float(), 1e-5).to(dtype)
    assert_close(rowwise.rms_norm(x, weight, 1e-5), wanted, f"norm_{str(dtype).removeprefix('torch.')}")


@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 3, 400), (3, 2060)])
def test_a_gate(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    pair = 4 * apart(*shape, dtype=dtype, device=device)
    gate, up = pair.chunk(2, dim=-1)
    found = rowwise.silu_gate(pair)
    assert_close(found, F.silu(gate) * up, f"product_{str(dtype).removeprefix('torch.')}")


def test_what_a_kernel_cannot_take_is_said(device: torch.device) -> None:
    x = torch.randn(2, 5, device=device)
    for call in (lambda: rowwise.silu_gate(x), lambda: rowwise.rms_norm(x, x[0, :4], 1e-5)):
        with pytest.raises(SpeclaError, match=r"gate and up of \(2, 5\)|the norm's weight of \(4,\)"):
            call()
