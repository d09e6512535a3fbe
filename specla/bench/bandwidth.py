"""The memory bandwidths that floors are taken from, measured in the run that uses them."""

from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from specla.bench.clock import clock_for

_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}
_REPEATS = 7


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second: reading alone, and copying with bytes read and bytes written both counted."""

    read_bytes_s: float
    copy_bytes_s: float

    def __str__(self) -> str:
        return f"{self.read_bytes_s / 1e9:.1f} GB/s reading, {self.copy_bytes_s / 1e9:.1f} GB/s copying"


def measure_bandwidth(device: str) -> Bandwidth:
    """Read and copy tensors several times the cache, the median of a few repeats."""
    size = _BYTES["cuda" if device.startswith("cuda") else "cpu"] // 4
    source = torch.ones(size, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    clock = clock_for(device)

    def read() -> Tensor:
        return source.sum()

    def copy() -> Tensor:
        return target.copy_(source)

    timed = {}
    for work in (read, copy):
        work()
        timed[work.__name__] = median(clock.seconds(work) for _ in range(_REPEATS))
    return Bandwidth(source.nbytes / timed["read"], 2 * source.nbytes / timed["copy"])
