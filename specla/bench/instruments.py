"""What is measured once a run and serves all of its cells: bandwidths, and the tables that `auto` chooses by."""

from collections.abc import Callable
from typing import Any

import torch

from specla.bench.bandwidth import Bandwidth, measure_bandwidth
from specla.bench.clock import Run, clock_for
from specla.bench.profiler import Profiling
from specla.ops.shape import HeadShape
from specla.ops.verify import DispatchTable, measure_dispatch
from specla.ops.verify.auto import Timing

DISPATCH_NODES = (2, 5, 8, 16, 32)


class Instruments:
    """Of one run, on one device. Nothing is measured before it is asked for, and for every number of threads anew.

    Args:
        device: `cpu`, `cuda` or `cuda:N`.
        log: called with what was measured.
    """

    def __init__(self, device: str, log: Callable[[str], None]) -> None:
        self.device, self.clock, self._log = device, clock_for(device), log
        self.dispatch: list[dict[str, Any]] = []
        """Every measurement that `auto` chose by, as dispatch.json has it: heads, dtype, tree, batch, times."""
        self.to_profile: list[Profiling] = []
        """Cells whose kernels are looked at when everything was timed."""
        self._bandwidths: dict[int, Bandwidth] = {}
        self._tables: dict[tuple[HeadShape, torch.dtype, int, int], DispatchTable] = {}

    @property
    def bandwidth(self) -> Bandwidth:
        """What floors are taken from: with the threads that torch uses now."""
        threads = torch.get_num_threads()
        if threads not in self._bandwidths:
            self._bandwidths[threads] = measure_bandwidth(self.device)
            by = f" by {threads} thread{'s' * (threads > 1)}" if self.device == "cpu" else ""
            self._log(f"memory bandwidth{by}: {self._bandwidths[threads]}")
        return self._bandwidths[threads]

    def table(self, shape: HeadShape, dtype: torch.dtype, batch: int) -> DispatchTable:
        """What `auto` chooses by: chain, tree and hybrid on trees of DISPATCH_NODES, for heads of this shape."""
        key = (shape, dtype, batch, torch.get_num_threads())
        if key not in self._tables:
            self._tables[key] = self._measure_dispatch(shape, dtype, batch)
            self.keep(self._tables[key], dtype)
        return self._tables[key]

    @torch.inference_mode()
    def _measure_dispatch(self, shape: HeadShape, dtype: torch.dtype, batch: int) -> DispatchTable:
        if self.device == "cpu":
            return measure_dispatch(shape, self.device, dtype, DISPATCH_NODES, (batch,))
        # In graphs, as a cycle runs them, and with states that come from memory.
        with self.clock.stopwatches() as make:

            def stopwatch(work: Run) -> Callable[[], float]:
                watch = make(work)
                return lambda: watch.seconds(1)

            timing = Timing(stopwatch, self.clock.cache_bytes)
            return measure_dispatch(shape, self.device, dtype, DISPATCH_NODES, (batch,), timing=timing)

    def keep(self, table: DispatchTable, dtype: torch.dtype, tree: str = "") -> None:
        """Note a table for dispatch.json; `tree` names the tree of its one case, where it is known."""
        for case, times in table.times_us.items():
            row = {
                "device": table.device,
                "threads": torch.get_num_threads() if self.device == "cpu" else None,
                "heads": table.shape._asdict(),
                "dtype": str(dtype).removeprefix("torch."),
                "tree": tree or (f"chain-l{case.nodes - 1}" if case.is_chain else f"kary-b2-n{case.nodes}"),
                "nodes": case.nodes,
                "batch": case.batch,
                "times_us": {name: round(time_us, 3) for name, time_us in times.items()},
            }
            self.dispatch.append(row)
