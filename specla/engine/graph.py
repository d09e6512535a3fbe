"""The calls into torch.cuda that timing takes: events, and work captured in CUDA graphs. No decisions."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

Run = Callable[[], object]


class CudaGraphs:
    """Captures on one device, one after the other. Nothing touches the device before it is asked to do something.

    The graphs share one pool of memory: what one leaves in it another overwrites, so nobody may read their results.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None
        self._graphs: list[torch.cuda.CUDAGraph] = []

    @property
    def free_bytes(self) -> int:
        """Memory that nobody uses, what torch has reserved and not given out included."""
        idle = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(torch.cuda.mem_get_info(self.device)[0]) + idle

    @property
    def cache_bytes(self) -> int:
        """Of the L2 cache."""
        return int(torch.cuda.get_device_properties(self.device).L2_cache_size)

    def settle(self) -> None:
        """Wait until the device has nothing left to do."""
        torch.cuda.synchronize(self.device)

    def elapsed(self, work: Run, times: int) -> float:
        """Seconds on the device from before the first to after the last of so many runs; waits for their end."""
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(self.device):
            start.record()
            for _ in range(times):
                work()
            stop.record()
        self.settle()
        return float(start.elapsed_time(stop)) * 1e-3

    def aside(self, work: Run, times: int, may_wait: bool = True) -> None:
        """Run work on the stream that captures, and wait for its end.

        Args:
            work: to be run.
            times: how often.
            may_wait: false has torch raise where the host waits for the device, which no capture allows.
        """
        with torch.cuda.device(self.device):
            current = torch.cuda.current_stream()
            stream = self._side_stream()
            stream.wait_stream(current)
            before = torch.cuda.get_sync_debug_mode()
            try:
                if not may_wait:
                    _refuse_waiting()
                with torch.cuda.stream(stream):
                    for _ in range(times):
                        work()
            finally:
                torch.cuda.set_sync_debug_mode(before)
                current.wait_stream(stream)
        self.settle()

    def capture(self, work: Run) -> Run:
        """A graph of one run of the work, as what replays it. Raises what the work or the capture raises."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device):
            current = torch.cuda.current_stream()
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            try:
                with torch.cuda.graph(graph, pool=self._pool, stream=self._side_stream()):
                    work()
            except BaseException:
                # Torch leaves its stream current and its pool open where ending a capture fails: begin with new ones.
                torch.cuda.set_stream(current)
                self._stream = self._pool = None
                raise
        self._graphs.append(graph)
        return graph.replay

    def release(self) -> None:
        """Give the memory of all graphs back; none may be replayed any more."""
        # After an error that the device does not recover from this fails too, and the first error is the one to tell.
        with suppress(RuntimeError):
            for graph in self._graphs:
                graph.reset()
            torch.cuda.empty_cache()
        self._graphs.clear()
        self._pool = None

    def _side_stream(self) -> torch.cuda.Stream:
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)
        return self._stream


def _refuse_waiting() -> None:
    """Have torch raise where the host waits for the device. It warns that it does not see every such place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
