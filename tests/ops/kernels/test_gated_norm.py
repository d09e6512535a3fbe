"""The gated RMS norm, against the torch form that it replaces."""

import pytest
import torch

from specla.ops import norm
from specla.ops.kernels import grid
from specla.ops.kernels.gated_norm import gated_rms_norm
from tests.ops.kernels.rounding import assert_same

EPSILON = 1e-5


def check(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device, activation: str | None = "swish"
) -> None:
    """Outputs as strategies return them, in their layout [B, HV, T, V] too; a gate that is a slice, NaN beside it."""
    batch, nodes, value_heads, value_size = sizes
    generator = torch.Generator().manual_seed(nodes + value_size)
    out = torch.randn(batch, value_heads, nodes, value_size, generator=generator).transpose(1, 2)
    wide = torch.full((batch, nodes, 3 + value_heads * value_size), torch.nan, dtype=dtype)
    wide[..., 3:] = torch.randn(batch, nodes, value_heads * value_size, generator=generator)
    weight = torch.randn(value_size, generator=generator).to(dtype)
    gate = None if activation is None else wide[..., 3:]
    heads = None if gate is None else gate.unflatten(-1, (value_heads, value_size))
    wanted = norm.gated_rms_norm(out.to(dtype), heads, weight, EPSILON, activation or "swish").flatten(-2)
    gate = None if gate is None else wide.to(device)[..., 3:]
    for layout in (out, out.contiguous()):
        moved = layout.to(device)
        found = gated_rms_norm(moved, gate, weight.to(device), EPSILON, activation or "swish", dtype)
        assert_same(found, wanted, "gated_norm")


@pytest.mark.parametrize("value_size", [64, 96, 192, 256, 512])
def test_value_sizes(value_size: int, dtype: torch.dtype, device: torch.device) -> None:
    check((2, 5, 2, value_size), dtype, device)


@pytest.mark.parametrize(("nodes", "enough_programs"), [(1, 512), (2, 1), (15, 1), (17, 512), (65, 1)])
def test_nodes(
    nodes: int, enough_programs: int, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One to a program, as where there are few, or eight."""
    monkeypatch.setattr(grid, "ENOUGH_PROGRAMS", enough_programs)
    check((1, nodes, 2, 40), dtype, device)


@pytest.mark.parametrize("activation", ["silu", "sigmoid", None])
def test_activations(activation: str | None, dtype: torch.dtype, device: torch.device) -> None:
    check((2, 3, 2, 64), dtype, device, activation)
