"""Kernels on the GPU where there is one, else through Triton's interpreter, and every output filled with NaN before.

`triton.jit` chooses the interpreter when it decorates, and Triton's own functions (`tl.sum`) are decorated when it is
first imported. So Triton and all kernels are imported here, under TRITON_INTERPRET, before the test modules import
them; the variable is then set during these tests alone, and no other test or subprocess sees it.
"""

import importlib
import os
import pkgutil
from collections.abc import Iterator
from types import FunctionType
from typing import Any
from unittest import mock

import pytest
import torch

from specla.ops import kernels

INTERPRETED = not torch.cuda.is_available()


def _import_interpreted() -> None:
    with mock.patch.dict(os.environ, TRITON_INTERPRET="1"):
        from triton.language import sum as triton_sum
        from triton.runtime.interpreter import InterpretedFunction

        if not isinstance(triton_sum, InterpretedFunction):
            raise pytest.UsageError("Triton was imported before tests/ops/kernels and cannot interpret: find by whom")
        for module in pkgutil.iter_modules(kernels.__path__):
            importlib.import_module(f"{kernels.__name__}.{module.name}")
        _patch_language_once()
        _TypeOnDemand()


def _patch_language_once() -> None:
    """Let the interpreter put its own functions into Triton's language at the first launch, for good.

    By itself it looks through the whole language at every launch and at every call of one function by another, which
    takes half of the time that a kernel takes.
    """
    from triton import language
    from triton.runtime import interpreter

    patch, done = interpreter._patch_lang, list[object]()

    def once(_function: object) -> object:
        if not done:
            # It patches the modules that a function sees: Triton's own functions see another than kernels do.
            done.append(patch(FunctionType((lambda: None).__code__, {"tl": language, "core": language.core})))
        return interpreter._LangPatchScope()

    interpreter._patch_lang = once


class _TypeOnDemand:
    """The type of one of Triton's tuples: nobody asks for that of a shape, of which every tensor has one."""

    def __init__(self) -> None:
        from triton.language import core

        self._spelt = core._type_for_tuple_values
        core._type_for_tuple_values = lambda values, fields=None: self._spelt(values, fields) if fields else None
        core.tuple.type = self

    def __get__(self, values: Any, _owner: type) -> object:
        if values.__dict__.get("type") is None:
            values.__dict__["type"] = self._spelt(values.values)
        return values.__dict__["type"]

    def __set__(self, values: Any, kind: object) -> None:
        values.__dict__["type"] = kind


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
