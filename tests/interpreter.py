"""What the interpreter of Triton does again and again without need, done once; imports nothing of it before that."""

from dataclasses import replace
from types import FunctionType
from typing import Any


def hasten() -> None:
    """For this process, after Triton was imported under TRITON_INTERPRET: kernels take less than half of their time."""
    _patch_language_once()
    _compute_no_overflow()
    _keep_numpy_types()
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


def _compute_no_overflow() -> None:
    """Whether sums of integers overflow takes a third of the time, and no debug mode is on that would assert it."""
    from triton.runtime import interpreter

    interpreter.interpreter_builder.options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)


def _keep_numpy_types() -> None:
    """Of every type in Triton its type in NumPy, which is looked up in a new table each time."""
    from triton.runtime import interpreter

    look_up, kept = interpreter._get_np_dtype, dict[str, object]()

    def numpy_type(triton_type: Any) -> object:
        scalar = triton_type.scalar
        if scalar.name not in kept:
            kept[scalar.name] = look_up(scalar)
        return kept[scalar.name]

    interpreter._get_np_dtype = numpy_type


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
