"""What is looked at of a plan's prompts before anything else is loaded. No torch."""

from dataclasses import replace

from specla.bench.cells import Plan
from specla.bench.normalise import END_TO_END
from specla.bench.workloads.base import calibration_prompts, choose_prompts
from specla.bench.workloads.sources import on_hub


def check_prompts(plan: Plan, fetch: bool) -> Plan:
    """The plan, with what is left out of its prompts among its notes.

    Args:
        plan: of a run or a dry run.
        fetch: ask the hub for data sets too; else the notes name what was not looked at.

    Raises:
        SpeclaError: what a run of this plan would say of its prompts: a file that is missing or damaged, an unknown
            column or category, too few prompts.
    """
    decodes = [cell for cell in plan.cells if cell.status == "pending" and cell.command == END_TO_END]
    # Most cells of a sweep share their prompts.
    sets = dict.fromkeys(
        (cell.settings.workload, cell.settings.measure.calibration if cell.is_open else None) for cell in decodes
    )
    notes = list[str]()
    for workload, calibration in sets:
        if on_hub(workload) and not fetch:
            notes.append(f"workload.dataset={workload.dataset}: a run asks the hub for it, a dry run does not")
            continue
        chosen = choose_prompts(workload)
        notes += chosen.notes
        if calibration is not None:
            calibration_prompts(workload, calibration, chosen.prompts)
    return replace(plan, notes=(*plan.notes, *dict.fromkeys(notes)))
