"""The memory bandwidths that floors are taken from, measured in the run that uses them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from specla.bench.clock import Clock, clock_for
from specla.bench.footprint import BANDWIDTH_BYTES

_BYTES = {kind: both // 2 for kind, both in BANDWIDTH_BYTES.items()}
_TIMES = {"cpu": 1, "cuda": 4}
"""Runs in one timing: on a GPU the first waits some microseconds for its launch."""
_REPEATS = 7


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second: reading alone, and copying with bytes read and bytes written both counted."""

    read_bytes_s: float
    copy_bytes_s: float
    ways: str = ""
    """Where there is more than one way to read: what each reached. The fastest counts, since a floor is a limit."""

    def __str__(self) -> str:
        read = f"{self.read_bytes_s / 1e9:.1f} GB/s reading"
        return f"{read}{f' ({self.ways})' * bool(self.ways)}, {self.copy_bytes_s / 1e9:.1f} GB/s copying"


def measure_bandwidth(device: str) -> Bandwidth:
    """Read and copy tensors several times the cache, the median of a few repeats.

    On a GPU between events, launched one after the other: a copy in a captured graph goes another, slower way.
    """
    kind = "cuda" if device.startswith("cuda") else "cpu"
    source = torch.ones(_BYTES[kind] // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    clock, times = clock_for(device), _TIMES[kind]
    readers: dict[str, Callable[[], object]] = {"torch.sum": source.sum}
    if kind == "cuda":
        readers["triton"] = _triton_reader(source)
    read = {name: source.nbytes / _seconds(clock, work, times) for name, work in readers.items()}
    copied = 2 * source.nbytes / _seconds(clock, lambda: target.copy_(source), times)
    return Bandwidth(max(read.values()), copied, _told(read) if len(read) > 1 else "")


def _seconds(clock: Clock, work: Callable[[], object], times: int) -> float:
    work()
    return median(clock.seconds(work, times) for _ in range(_REPEATS)) / times


def _triton_reader(source: Tensor) -> Callable[[], object]:
    # Imported here, since there is no Triton for some machines that have no GPU either.
    from specla.ops.kernels.bandwidth import empty_sums, partial_sums

    sums = empty_sums(source)
    return lambda: partial_sums(source, sums)


def _told(read: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {bytes_s / 1e9:.1f}" for name, bytes_s in read.items())
