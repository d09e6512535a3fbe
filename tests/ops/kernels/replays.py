"""What replays cycles in tests: graphs on a GPU, the work itself elsewhere."""

from collections.abc import Callable

import torch

from specla.engine.graph import CudaGraphs

Run = Callable[[], object]


class Plain(CudaGraphs):
    """Where there is no GPU: what would be a graph runs as it is."""

    def aside(self, work: Run, times: int, may_wait: bool = True) -> None:
        pass

    def capture(self, work: Run) -> Run:
        return work

    def release(self) -> None:
        pass


def replays(device: torch.device) -> CudaGraphs:
    """For one decoding."""
    return CudaGraphs(device) if device.type == "cuda" else Plain(device)
