"""What captures graphs, without a GPU: `replay` runs the work itself, and what a capture forbids is told to it."""

import time
from collections.abc import Callable

import torch

from specla.bench.clock import CudaClock
from specla.engine.graph import CudaGraphs

Run = Callable[[], object]


class FakeGraphs(CudaGraphs):
    """Notes what it was asked for. `waits` and `breaks` are the works that no capture can take, or that end one."""

    cache_bytes = 0  # type: ignore[assignment]
    free_bytes = 1 << 40  # type: ignore[assignment]
    waits: Callable[[Run], bool] = staticmethod(lambda work: False)
    breaks: Callable[[Run], bool] = staticmethod(lambda work: False)

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.asked: list[str] = []
        self.replayed = 0

    def settle(self) -> None:
        self.asked.append("settle")

    def elapsed(self, work: Run, times: int) -> float:
        self.asked.append(f"elapsed {times}")
        started = time.perf_counter()
        for _ in range(times):
            work()
        return time.perf_counter() - started

    def aside(self, work: Run, times: int, may_wait: bool = True) -> None:
        self.asked.append(f"aside {times}{'' if may_wait else ', no waiting'}")
        if not may_wait and type(self).waits(work):
            raise RuntimeError("called a synchronizing CUDA operation\nand where")
        for _ in range(times):
            work()

    def capture(self, work: Run) -> Run:
        self.asked.append("capture")
        if type(self).breaks(work):
            try:
                raise ValueError("not while capturing")
            except ValueError:
                raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904 - as torch

        def replay() -> None:
            self.replayed += 1
            work()

        return replay

    def release(self) -> None:
        self.asked.append("release")


def fake_clock(kind: type[FakeGraphs] = FakeGraphs) -> tuple[CudaClock, list[FakeGraphs]]:
    """A clock of graphs on the CPU, and every set of graphs that it made, its own first."""
    made: list[FakeGraphs] = []

    def make(device: torch.device) -> FakeGraphs:
        made.append(kind(device))
        return made[-1]

    return CudaClock("cpu", make), made
