"""Timing on a device. Whatever depends on its kind is here, and a captured graph belongs here too."""

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import torch


class Clock(ABC):
    """Times work on one device.

    Args:
        device: `cpu`, `cuda` or `cuda:N`.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    @abstractmethod
    def seconds(self, work: Callable[[], object], times: int = 1) -> float:
        """Seconds that `work`, run `times` times without a pause, takes on the device."""

    def now(self) -> float:
        """Seconds since some moment, when the device has done all that it was given."""
        return time.perf_counter()

    @property
    @abstractmethod
    def free_bytes(self) -> int:
        """Memory of the device that nobody uses."""

    @property
    @abstractmethod
    def total_bytes(self) -> int:
        """All memory of the device."""


class HostClock(Clock):
    """For the CPU, where work is done when its call returns."""

    def seconds(self, work: Callable[[], object], times: int = 1) -> float:
        started = time.perf_counter()
        for _ in range(times):
            work()
        return time.perf_counter() - started

    @property
    def free_bytes(self) -> int:
        return int(psutil.virtual_memory().available)

    @property
    def total_bytes(self) -> int:
        return int(psutil.virtual_memory().total)


class CudaClock(Clock):
    """Between two events on the stream. The launches are part of it until they are captured in a graph."""

    def seconds(self, work: Callable[[], object], times: int = 1) -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self.device)
        with torch.cuda.device(self.device):
            start.record()
            for _ in range(times):
                work()
            stop.record()
        torch.cuda.synchronize(self.device)
        return float(start.elapsed_time(stop)) * 1e-3

    def now(self) -> float:
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @property
    def free_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self.device)[0])

    @property
    def total_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self.device)[1])


def clock_for(device: str) -> Clock:
    """The clock of a device."""
    return CudaClock(device) if device.startswith("cuda") else HostClock(device)


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection inside: its pauses would land on whichever method happens to run."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
