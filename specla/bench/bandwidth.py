"""The memory bandwidths that floors are taken from, measured in the run that uses them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}
_REPEATS = 7


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second: reading alone, and copying with bytes read and bytes written both counted."""

    read_bytes_s: float
    copy_bytes_s: float


def measure_bandwidth(device: str) -> Bandwidth:
    """Read and copy tensors several times the cache, the median of a few repeats."""
    size = _BYTES["cuda" if device.startswith("cuda") else "cpu"] // 4
    source = torch.ones(size, dtype=torch.float32, device=device)
    target = torch.empty_like(source)

    def read() -> Tensor:
        return source.sum()

    def copy() -> Tensor:
        return target.copy_(source)

    timed = {}
    for work in (read, copy):
        work()
        timed[work.__name__] = median(_seconds(work, device) for _ in range(_REPEATS))
    return Bandwidth(source.nbytes / timed["read"], 2 * source.nbytes / timed["copy"])


def _seconds(work: Callable[[], Tensor], device: str) -> float:
    _settle(device)
    started = time.perf_counter()
    work()
    _settle(device)
    return time.perf_counter() - started


def _settle(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
