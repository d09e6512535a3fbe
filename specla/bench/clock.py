"""Timing on a device. Whatever depends on its kind is here and, as calls into torch.cuda, in `specla.engine.graph`.

On a GPU work is timed as a captured CUDA graph, replayed between two events: a decoding loop runs it that way too, and
launches from Python would hide what a kernel of a few microseconds takes.
"""

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from specla.bench.available import available_bytes
from specla.engine.graph import CudaGraphs

Run = Callable[[], object]

WARM_UPS = 2
"""Runs before a capture: kernels are compiled and tuned in the first, and what they chose is loaded in the second."""
GRAPH = "graph"


@dataclass(frozen=True)
class Stopwatch:
    """Work that is ready to be timed, again and again."""

    seconds: Callable[[int], float]
    """Seconds of so many runs without a pause, after one that is off the clock."""
    how: str = ""
    """What is between the work and its time: empty on a CPU, GRAPH, or `eager: ` and why there is no graph of it."""


class MakeStopwatch(ABC):
    """Makes stopwatches that share memory, so those of one maker take turns."""

    @abstractmethod
    def __call__(self, work: Run, held: Run = lambda: None) -> Stopwatch:
        """A stopwatch of some work.

        Args:
            work: what is timed; it may be run several times here, and raises what it raises.
            held: returns what a run reads that the work itself lets go of; a graph keeps it.
        """


class Clock(ABC):
    """Times work on one device.

    Args:
        device: `cpu`, `cuda` or `cuda:N`.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    @abstractmethod
    def seconds(self, work: Run, times: int = 1) -> float:
        """Seconds that `work`, run `times` times without a pause, takes on the device, launches included."""

    def now(self) -> float:
        """Seconds since some moment, when the device has done all that it was given."""
        return time.perf_counter()

    @property
    @abstractmethod
    def free_bytes(self) -> int:
        """Memory of the device that this process may still take."""

    @property
    def cache_bytes(self) -> int:
        """Of the cache that timed work must not find its state in; 0 where work is timed as it comes."""
        return 0

    @contextmanager
    def stopwatches(self) -> Iterator[MakeStopwatch]:
        """A maker of stopwatches; what they hold is given back on leaving."""
        yield _Plain(self)


class _Plain(MakeStopwatch):
    """Of a clock, as the work comes."""

    def __init__(self, clock: Clock, how: str = "") -> None:
        self._clock, self._how = clock, how

    def __call__(self, work: Run, held: Run = lambda: None) -> Stopwatch:
        def seconds(times: int) -> float:
            work()
            return self._clock.seconds(work, times)

        return Stopwatch(seconds, self._how)


class HostClock(Clock):
    """For the CPU, where work is done when its call returns."""

    def seconds(self, work: Run, times: int = 1) -> float:
        started = time.perf_counter()
        for _ in range(times):
            work()
        return time.perf_counter() - started

    @property
    def free_bytes(self) -> int:
        return available_bytes()


class CudaClock(Clock):
    """Between two events on the stream: of a replayed graph in its stopwatches, of the launches themselves elsewhere.

    Args:
        device: `cuda` or `cuda:N`.
        make_graphs: what captures, anew for every set of stopwatches; a test brings its own.
    """

    def __init__(self, device: str, make_graphs: Callable[[torch.device], CudaGraphs] = CudaGraphs) -> None:
        super().__init__(device)
        self._make_graphs, self._graphs = make_graphs, make_graphs(self.device)

    def seconds(self, work: Run, times: int = 1) -> float:
        self._graphs.settle()
        return self._graphs.elapsed(work, times)

    def now(self) -> float:
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @property
    def free_bytes(self) -> int:
        return self._graphs.free_bytes

    @property
    def cache_bytes(self) -> int:
        return self._graphs.cache_bytes

    @contextmanager
    def stopwatches(self) -> Iterator[MakeStopwatch]:
        maker = _Captured(self, self._make_graphs(self.device))
        try:
            yield maker
        finally:
            maker.release()


class _Captured(MakeStopwatch):
    """A graph for each work, captured once."""

    def __init__(self, clock: CudaClock, graphs: CudaGraphs) -> None:
        self._clock, self._graphs = clock, graphs
        self._replays: list[Run] = []
        self._kept: list[object] = []

    def __call__(self, work: Run, held: Run = lambda: None) -> Stopwatch:
        graphs = self._graphs
        graphs.aside(work, WARM_UPS)
        # Work that waits for the device is found out before a capture, since one that fails leaves traces in torch.
        try:
            graphs.aside(work, 1, may_wait=False)
            kept = held()
            replay = graphs.capture(work)
        except Exception as error:
            # Whatever it was, the work must still run by itself: its own errors are the caller's.
            graphs.aside(work, 1)
            return _Plain(self._clock, f"eager: {_first_cause(error)}")(work)
        self._replays.append(replay)
        self._kept.append(kept)

        def seconds(times: int) -> float:
            # The replay before the first event keeps the device busy until the host has launched the timed ones.
            graphs.settle()
            replay()
            return graphs.elapsed(replay, times)

        return Stopwatch(seconds, GRAPH)

    def release(self) -> None:
        """Give the memory of all graphs back."""
        self._replays.clear()
        self._kept.clear()
        self._graphs.release()


def _first_cause(error: BaseException) -> str:
    """In one line. Where a capture had already failed, ending it raises once more, and the first error says why."""
    if error.__context__ is not None and "captur" in str(error):
        error = error.__context__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


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
