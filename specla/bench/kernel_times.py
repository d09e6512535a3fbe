"""What kernels a decoding cycle is made of, as profile.json has it: their times, and what each of them is for."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from specla.bench.codec import decode, measured
from specla.errors import SpeclaError

OTHER = "other"
PARTS: Mapping[str, tuple[str, ...]] = {
    "products": ("vector_kernel", "matrix_kernel"),
    "delta rule": ("walk_kernel", "_mixer_kernel", "solve_kernel", "read_kernel", "_parent_pointer_kernel"),
    "inputs": ("_node_inputs_kernel",),
    "norms": ("_gated_norm_kernel", "_norm_kernel", "_gate_kernel", "_enter_kernel", "_predict_kernel"),
    "commit": ("_append_kernel", "_factors_kernel", "_move_kernel", "_pick_kernel", "_replay_kernel"),
    "tokens": (
        *("_best_kernel", "_accept_kernel", "_oracle_kernel", "_nucleus_kernel", "_merge_kernel"),
        *("_likely_kernel", "_grow_kernel", "_lay_kernel"),
    ),
    OTHER: (),
}
"""Our kernels by what they do: products with weights, convolution and gates before the delta rule (inputs; those of a
short chain are in the delta rule's kernel), norms, with a drafter's look-ups and the gate of the feed-forward layer,
whatever commits, and the choice of tokens and of trees. `other` is torch's own small work."""
_LIBRARY = {
    "products": ("nvjet", "cublas", "cutlass", "gemm", "gemv", "splitk"),
    "delta rule": ("fused_recurrent", "chunk_"),
}
"""Pieces of names that kernels of libraries have, in small letters."""

_MEND = "restore the file, or delete it: a report can do without"


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a cycle."""

    kernel: str
    """As the profiler names it."""
    part: str
    """A key of PARTS."""
    calls: float = field(metadata=measured())
    """In a cycle."""
    time_us: float = field(metadata=measured())
    """Of a call, on the device."""

    @property
    def cycle_us(self) -> float:
        """Of all its calls in a cycle."""
        return self.calls * self.time_us


@dataclass(frozen=True)
class CellProfile:
    """The kernels of one cell's cycles, profiled by themselves when nothing was left to be timed."""

    fingerprint: str
    """Of the cell."""
    label: str
    words: tuple[str, ...]
    """The cell's overrides."""
    batch: int
    nodes: int
    """Of a cycle's tree, root included."""
    cycles: int
    """That were profiled."""
    time_us: float = field(metadata=measured())
    """Of a cycle as the cell's windows timed it, without a profiler: median over repeats."""
    kernels: tuple[KernelTime, ...]
    bytes: Mapping[str, int] = field(default_factory=dict)
    """By part, what it must move in a cycle at the least; a part of which that is not known is left out."""


class Row(Protocol):
    """A row of a profiler's averages, as torch has them."""

    @property
    def key(self) -> str:
        """The kernel's name."""

    @property
    def count(self) -> int:
        """Calls."""

    @property
    def self_device_time_total(self) -> float:
        """Microseconds on the device, of all calls."""


def part_of(kernel: str) -> str:
    """What a kernel does: a key of PARTS."""
    for part, names in PARTS.items():
        if kernel in names:
            return part
    name = kernel.lower()
    for part, pieces in _LIBRARY.items():
        if any(piece in name for piece in pieces):
            return part
    return OTHER


def times_of(rows: Iterable[Row], cycles: int) -> tuple[KernelTime, ...]:
    """The kernels of so many cycles, the dearest first. Raises SpeclaError where the profiler saw none."""
    # The host's calls into CUDA are among the rows, and take no time on the device.
    seen = [row for row in rows if row.count and row.self_device_time_total > 0]
    if not seen:
        raise SpeclaError("the profiler saw no kernel")
    times = [
        KernelTime(row.key, part_of(row.key), row.count / cycles, round(row.self_device_time_total / row.count, 3))
        for row in seen
    ]
    return tuple(sorted(times, key=lambda one: (-one.cycle_us, one.kernel)))


def read_profiles(path: Path) -> tuple[CellProfile, ...]:
    """The profiles of a run, or none where it has no such file. Raises SpeclaError where it is damaged.

    What a kernel does is asked of its name once more: it may be known better than when it was written down.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, RecursionError) as error:
        raise SpeclaError(f"{path}: damaged ({error}); {_MEND}") from None
    try:
        found: tuple[CellProfile, ...] = decode(tuple[CellProfile, ...], data, str(path))
    except SpeclaError as error:
        raise SpeclaError(f"{error}; {_MEND}") from None
    return tuple(
        replace(one, kernels=tuple(replace(kernel, part=part_of(kernel.kernel)) for kernel in one.kernels))
        for one in found
    )
