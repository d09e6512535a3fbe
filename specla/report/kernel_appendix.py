"""The report's appendix: which kernels a cycle is made of, how long they take and what they move."""

from specla.bench.kernel_times import PARTS, CellProfile
from specla.report.escape import SENTENCE, code, for_markdown
from specla.report.load import Loaded
from specla.report.tables import markdown

DEAREST = 10
_LONGEST_NAME = 80
_INTRO = (
    "A few cycles of AR and of one method of every block that was timed together, replayed under torch's profiler "
    "after everything was timed. Launches overlap: a kernel begins while the one before it ends, and waits inside; so "
    "times add up to more than a cycle takes, and shares are of their sum. *Products* are those with weights, *inputs* "
    "the short convolution and the gates before the delta rule, *norms* also the gate of the feed-forward layer, "
    "*tokens* the choice of tokens and their acceptance, *other* torch's own small work. MB is what a part must move "
    "in a cycle at the least, by the model's shape (`specla/models/cost.py`), and GB/s that over the part's time; '-' "
    "stands where it is not known, as with a drafter that is a network, whose kernels have the same names.\n\n"
)


def appendix(loaded: Loaded) -> str:
    """Every profile of a cell that the report is about, a cell once; empty where there is none."""
    about = {record.fingerprint for record in loaded.records}
    found = {one.fingerprint: one for run in loaded.runs for one in run.profiles if one.fingerprint in about}
    if not found:
        return ""
    return "\n## Appendix: kernels of a cycle\n\n" + _INTRO + "\n".join(map(_cell_text, found.values()))


def _cell_text(one: CellProfile) -> str:
    nodes = f"{one.nodes} node{'s' * (one.nodes > 1)}"
    text = f"### {for_markdown(one.label, SENTENCE)}, batch {one.batch}, {nodes}\n\n"
    words = f"{code(' '.join(one.words), SENTENCE)}: a" if one.words else "A"
    text += f"{words} cycle took {one.time_us:,.1f} us as timed, "
    text += f"{sum(kernel.cycle_us for kernel in one.kernels):,.1f} us summed over kernels ({one.cycles} cycles).\n\n"
    return text + _parts(one) + "\n" + _dearest(one)


def _parts(one: CellProfile) -> str:
    """By part: time, share of the sum, and what is known to move."""
    whole = sum(kernel.cycle_us for kernel in one.kernels)
    rows = []
    for part in dict.fromkeys((*PARTS, *(kernel.part for kernel in one.kernels))):
        time_us = sum(kernel.cycle_us for kernel in one.kernels if kernel.part == part)
        if not time_us:
            continue
        moved = one.bytes.get(part)
        known = ("-", "-") if moved is None else (f"{moved / 1e6:,.1f}", f"{moved / time_us / 1e3:,.0f}")
        rows.append((part, f"{time_us:,.1f}", f"{time_us / whole:.1%}", *known))
    return markdown(("part", "us a cycle", "share", "MB", "GB/s"), rows)


def _dearest(cell: CellProfile) -> str:
    kernels = sorted(cell.kernels, key=lambda kernel: (-kernel.cycle_us, kernel.kernel))[:DEAREST]
    rows = [
        (code(k.kernel, _LONGEST_NAME), k.part, f"{k.calls:g}", f"{k.time_us:,.2f}", f"{k.cycle_us:,.1f}")
        for k in kernels
    ]
    return markdown(("kernel", "part", "calls a cycle", "us a call", "us a cycle"), rows)
