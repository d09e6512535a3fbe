"""What the measuring commands run, a file a kind of measurement."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from specla.bench.cases.defer import DEFER
from specla.bench.cases.e2e import EndToEnd, Targets
from specla.bench.cases.kernels import KernelWork
from specla.bench.cases.operation import Kind
from specla.bench.cases.recover import RECOVER
from specla.bench.cases.verify import VERIFY
from specla.bench.cases.work import ERRORS, Refuse, Work
from specla.bench.cells import Cell
from specla.bench.normalise import END_TO_END
from specla.bench.settings import EngineSettings, config_hash

KINDS: Mapping[str, Kind] = {f"ablate {kind.name}": kind for kind in (VERIFY, RECOVER, DEFER)}
"""The ablations of single operations, by the command of their cells."""


def prepare_work(cells: Iterable[Cell], refuse: Refuse) -> list[Work]:
    """The pending cells of a plan in groups that are measured together, in order, with what they need loaded.

    Args:
        cells: of the plan.
        refuse: called with every cell whose checkpoint, tokenizer, drafter or prompts are missing, damaged or do not
            fit; the works are of the others.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.status == "pending":
            groups.setdefault((cell.command, _shared(cell)), []).append(cell)
    targets = Targets()
    make_decodes = partial(EndToEnd, targets=targets, refuse=refuse)
    makers: dict[str, Callable[[Sequence[Cell]], Work]] = {END_TO_END: make_decodes}
    makers |= {command: partial(KernelWork, kind) for command, kind in KINDS.items()}
    works = []
    for (command, _), group in groups.items():
        try:
            works.append(makers[command](group))
        except ERRORS as error:
            for cell in group:
                refuse(cell, error)
    return works


def _shared(cell: Cell) -> str:
    """What cells must agree in to be timed beside each other: AR and all that it stands for, or all but the engine."""
    if cell.ar_hash is not None:
        return cell.ar_hash
    return config_hash(replace(cell.settings, engine=EngineSettings()), cell.command)
