"""Gates and unit keys by their equations, on a CPU: what a kernel and every strategy is held against uses them too."""

import math

import pytest
import torch

from specla.ops.gates import gates, gates_at, l2_normalise

A = torch.tensor([[-3.0, 0.0, 2.0]])
B = torch.tensor([[-1.0, 0.5, 4.0]])
A_LOG = torch.tensor([0.0, 1.0, -2.0])
DT_BIAS = torch.tensor([0.5, -0.5, 1.0])


@pytest.mark.parametrize("doubled", [False, True])
def test_decay_and_write_strength(doubled: bool) -> None:
    """g = -exp(A_log) softplus(a + dt_bias); b = sigmoid, doubled for negative eigenvalues."""
    g, beta = gates(A, B, A_LOG, DT_BIAS, doubled)
    columns = zip(A[0].tolist(), A_LOG.tolist(), DT_BIAS.tolist(), strict=True)
    wanted = [-math.exp(rate) * math.log1p(math.exp(a + shift)) for a, rate, shift in columns]
    assert g[0].tolist() == pytest.approx(wanted, rel=1e-6) and (g < 0).all()
    strength = [(1 + doubled) / (1 + math.exp(-b)) for b in B[0].tolist()]
    assert beta[0].tolist() == pytest.approx(strength, rel=1e-6)


def test_gates_are_float32_whatever_the_model_is() -> None:
    halves = gates(A.bfloat16(), B.bfloat16(), A_LOG, DT_BIAS)
    assert all(x.dtype == torch.float32 for x in halves)
    assert torch.equal(halves[0], gates(A.bfloat16().float(), B, A_LOG, DT_BIAS)[0])
    assert torch.equal(gates_at(A, B, -A_LOG.exp(), DT_BIAS)[0], gates(A, B, A_LOG, DT_BIAS)[0])


@pytest.mark.parametrize("gradients", [False, True])
def test_unit_keys(gradients: bool) -> None:
    """Length one times the scale; a key of zeros stays one, whether gradients are wanted or not."""
    keys = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [1e-4, 0.0, 0.0]])
    with torch.set_grad_enabled(gradients):
        unit = l2_normalise(keys, 0.5)
    assert unit[0].tolist() == pytest.approx([0.3, 0.4, 0.0], rel=1e-6)
    assert unit[1].tolist() == [0.0, 0.0, 0.0]
    # Far below the epsilon a key is shorter than one: x / sqrt(x^2 + 1e-6).
    assert unit[2, 0].item() == pytest.approx(0.5 * 1e-4 / math.sqrt(1e-8 + 1e-6), rel=1e-5)
