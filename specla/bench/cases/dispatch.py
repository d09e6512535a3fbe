"""What `auto` chooses by on a GPU: its candidates timed on the very inputs of its case, as its own cell will be."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median

from specla.bench.cases.operation import Given, pair
from specla.bench.cases.timing import Ready, interleave
from specla.bench.cases.verify import VERIFY
from specla.bench.cases.work import ERRORS
from specla.bench.clock import Clock
from specla.bench.machine import device_name
from specla.bench.settings import EngineSettings, MeasureSettings
from specla.errors import told
from specla.ops import pairs
from specla.ops.verify import DispatchTable
from specla.ops.verify.auto import CANDIDATES, Case


def case_table(
    given: Given, engine: EngineSettings, measure: MeasureSettings, clock: Clock, log: Callable[[str], None]
) -> DispatchTable:
    """The table of one case: same shape, dtype, batch and tree, one layer after the other from memory.

    Args:
        given: the case's inputs.
        engine: of `auto`; its candidates make what its recovery needs.
        measure: repeats and length of samples, as of the cells.
        clock: of the device.
        log: called with a candidate that is left out, and why.
    """
    layers = given.layers
    tree, dtype, device = layers.tree.tree, str(layers.dtype).removeprefix("torch."), str(layers.state.device)
    ready: dict[str, Ready] = {}
    with clock.stopwatches() as stopwatch:
        for name in (name for name in CANDIDATES if pairs.unsupported(name, tree) is None):
            try:
                candidate = pair(name, str(engine.recover))
                operation = VERIFY.make(replace(given, table=None), candidate)
                error, allowed = operation.error(), VERIFY.tolerance(candidate, dtype, device)
                if not error <= allowed:
                    raise ArithmeticError(f"relative RMS error {error:.1e}, where {allowed:.0e} is allowed")
                ready[name] = Ready(operation, stopwatch(operation.run, operation.held))
            except ERRORS as error:
                log(f"{tree.name}, batch {layers.batch}: auto does without {name}: {told(error)}")
        taken = interleave(list(ready.values()), measure, lambda: None)
    times = {name: median(one.time_us for one in samples) for name, samples in zip(ready, taken, strict=True)}
    cases = {Case(tree.is_chain, tree.nodes, layers.batch): times} if times else {}
    return DispatchTable(device_name(device), layers.config.head_shape, cases)
