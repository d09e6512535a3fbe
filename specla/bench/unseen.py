"""What a plan comes to on a machine that nobody has asked torch about."""

from specla.bench.available import available_bytes
from specla.bench.cells import Cell, Plan
from specla.bench.estimate import Estimate, does_not_fit, estimate
from specla.bench.normalise import KERNEL_COMMANDS


def unseen_device(cell: Cell) -> tuple[str, str]:
    """(device, dtype) that a cell will have, as far as that is known without torch.

    Whether `auto` finds a GPU is not: it is taken for the CPU until one is asked for.
    """
    device = "cuda" if cell.settings.device.startswith("cuda") else "cpu"
    automatic = "float32" if device == "cpu" else "bfloat16"
    return device, automatic if cell.settings.dtype == "auto" else cell.settings.dtype


def unseen_estimate(cell: Cell) -> Estimate:
    """A cell's cost there."""
    return estimate(cell, *unseen_device(cell))


def unfit_cells(plan: Plan) -> dict[str, str]:
    """By config_hash, why a cell that would run cannot be held; a GPU's memory is known to torch alone."""
    free, found = available_bytes(), {}
    for cell in plan.cells:
        device, dtype = unseen_device(cell)
        # Where there is a GPU, single operations run on it unless the CPU is asked for.
        known = device == "cpu" and (cell.settings.device == "cpu" or cell.command not in KERNEL_COMMANDS)
        if cell.status == "pending" and known and (reason := does_not_fit(cell, device, dtype, free)):
            found[cell.config_hash] = reason
    return found
