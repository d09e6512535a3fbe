"""From a planned cell to the record that will hold its measurement. No torch."""

from dataclasses import replace

from specla.bench.cells import Cell
from specla.bench.identity import ModelInfo
from specla.bench.machine import device_name
from specla.bench.normalise import KERNEL_COMMANDS
from specla.bench.profile import oracle_alpha, profile_name
from specla.bench.record import Method, Record, Sampling, Status, TopologyInfo
from specla.bench.workload_labels import source_of
from specla.errors import SpeclaError


def planned_record(
    cell: Cell, fingerprint: str, device: str, dtype: str, model_info: ModelInfo | None = None
) -> Record:
    """A cell's record before anything is measured: pending, or not applicable with the reason.

    Args:
        cell: of the plan.
        fingerprint: covers config, code, weights, data and device.
        device: `cpu` or `cuda`; the record names the chip.
        dtype: that `auto` became.
        model_info: which model it is; None where that cannot be told.
    """
    settings = cell.settings
    return Record(
        command=cell.command,
        fingerprint=fingerprint,
        method=Method(**vars(cell.method)),
        status=Status(cell.status),
        reason=cell.reason,
        batch=settings.workload.batch,
        nodes=cell.tree.nodes,
        workload=settings.workload.name,
        source=source_of(settings.workload),
        dtype=dtype,
        device=device_name(device),
        model=settings.model.name,
        model_info=model_info,
        overrides=cell.overrides,
        group=cell.group,
        topology=_topology(cell),
        alpha_asked=_alpha(cell),
        drafter_cost=settings.drafter.cost,
        profile=profile_name(settings.drafter),
        synthetic=_synthetic(cell),
        sampling=Sampling(settings.sampling.temperature, settings.sampling.top_p),
    )


def settled_record(record: Record, cell: Cell) -> Record:
    """The planned record of a cell whose tree has been chosen since."""
    return replace(record, nodes=cell.tree.nodes, topology=_topology(cell), choice=cell.choice)


def _synthetic(cell: Cell) -> bool:
    """Whether drafts, weights or an operation's inputs are made up. AR's decoding has no drafts to accept: never."""
    if cell.method.verify == "ar" and cell.command not in KERNEL_COMMANDS:
        return False
    return cell.settings.drafter.name == "oracle" or cell.settings.model.weights == "random"


def _topology(cell: Cell) -> TopologyInfo:
    dials = cell.settings.topology
    return TopologyInfo(
        name=dials.name,
        length=None if cell.is_open else cell.tree.depth or None,
        branching=dials.branching,
        nodes=cell.tree.nodes,
        # Of topology=auto, once its tree is chosen.
        parents=None if cell.is_open else cell.tree.parents,
        margin=dials.margin,
    )


def _alpha(cell: Cell) -> float | tuple[tuple[float, ...], ...] | None:
    try:
        alpha = oracle_alpha(cell.settings.drafter)
    except SpeclaError:
        # A profile that is damaged fails its cells, which say so.
        return None
    if alpha is None or isinstance(alpha, float):
        return alpha
    return tuple((line,) if isinstance(line, float) else tuple(line) for line in alpha)
