"""How a cell decodes: by us on a host, by us on a device, or by another engine; and the AR that all are held to."""

from statistics import median

from specla.bench.cells import Cell
from specla.bench.measure import Method
from specla.bench.subject import Subject
from specla.engine.recovery import Recovery
from specla.errors import told
from specla.ops.recover import RING
from specla.ops.verify import DispatchTable

AR_TRIALS = 3
"""Windows of each way to commit, before AR is timed beside anything."""


def make_method(
    cell: Cell, subject: Subject, table: DispatchTable | None = None, recover: Recovery | None = None
) -> Method:
    """A cell's way of decoding, on the device of its model, by its engine."""
    if cell.method.engine != "specla":
        from specla.bench.fla import foreign_method

        return foreign_method(cell, subject)
    if subject.model.device.type == "cuda":
        from specla.bench.on_device import DeviceMethod

        return DeviceMethod(cell, subject, table, recover)
    return Method(cell, subject, table, recover)


def fastest_ar(cell: Cell, subject: Subject) -> Method:
    """AR that commits in place, or lazily, whichever takes less time here: the baseline of all others.

    A way that dies leaves the other; what both die of is raised.
    """
    item, ways, died = subject.items[0], list[Method](), dict[str, Exception]()
    for name in ("in_place", "factors_lazy"):
        way = make_method(cell, subject, recover=Recovery(name, RING))
        try:
            way.decode(item)
            ways.append(way)
        except Exception as error:  # whatever a strategy may die of, and most often of a ring's memory
            way.release()
            died[name] = error
    if not ways:
        raise next(iter(died.values()))
    if died:
        ((name, reason),) = died.items()
        ways[0].chosen = f"AR: {ways[0].recover.name}; {name} failed: {told(reason)}"
        return ways[0]
    taken = [[way.time(item) for way in ways] for _ in range(AR_TRIALS)]
    if not taken[0][0].steps:
        ways[1].release()
        return ways[0]
    times_us = [median(one[i].seconds / one[i].steps for one in taken) * 1e6 for i in range(len(ways))]
    best, other = (0, 1) if times_us[0] <= times_us[1] else (1, 0)
    ways[other].release()
    timed = [f"{way.recover.name} {time_us:.0f} us" for way, time_us in zip(ways, times_us, strict=True)]
    ways[best].chosen = f"AR: {ways[best].recover.name}, the faster a step ({', '.join(timed)})"
    return ways[best]
