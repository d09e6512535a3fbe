"""Kernels on the GPU where there is one, else through Triton's interpreter, and every output filled with NaN before.

`triton.jit` chooses the interpreter when it decorates, and Triton's own functions (`tl.sum`) are decorated when it is
first imported. So Triton and all kernels are imported here, under TRITON_INTERPRET, before the test modules import
them; the variable is then set during these tests alone, and no other test or subprocess sees it.
"""

import importlib
import os
import pkgutil
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from specla.ops import kernels
from tests.interpreter import hasten

INTERPRETED = not torch.cuda.is_available()


def _import_interpreted() -> None:
    with mock.patch.dict(os.environ, TRITON_INTERPRET="1"):
        from triton.language import sum as triton_sum
        from triton.runtime.interpreter import InterpretedFunction

        if not isinstance(triton_sum, InterpretedFunction):
            raise pytest.UsageError("Triton was imported before tests/ops/kernels and cannot interpret: find by whom")
        for module in pkgutil.iter_modules(kernels.__path__):
            importlib.import_module(f"{kernels.__name__}.{module.name}")
        hasten()


if INTERPRETED:
    _import_interpreted()


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton also reads the variable when a kernel runs."""
    if INTERPRETED:
        monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def poison() -> Iterator[None]:
    """Torch fills what `empty` and its kin return with NaN (integers with their largest value), on any device."""
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(2).isnan().all()
    yield
    torch.use_deterministic_algorithms(before, warn_only=warned)


@pytest.fixture
def device() -> torch.device:
    """Where kernels run: interpreted ones take tensors of the CPU."""
    return torch.device("cpu" if INTERPRETED else "cuda")


@pytest.fixture(
    params=[
        torch.float32,
        torch.float16,
        # The interpreter's `tl.dot` multiplies the raw bits of bfloat16.
        pytest.param(torch.bfloat16, marks=pytest.mark.gpu),
    ],
    ids=["float32", "float16", "bfloat16"],
)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """The compute dtype."""
    chosen: torch.dtype = request.param
    return chosen
