"""What a dry run looks at of a plan's prompts: those that come with the package, since reading them costs nothing."""

from specla.bench.cells import Plan
from specla.bench.normalise import END_TO_END
from specla.bench.workloads.base import calibration_prompts, load_prompts

BUNDLED = ("heldout",)


def check_prompts(plan: Plan) -> None:
    """Raise SpeclaError where a run of this plan would: too few prompts, an unknown category."""
    decodes = [cell for cell in plan.cells if cell.status == "pending" and cell.command == END_TO_END]
    # Most cells of a sweep share their prompts.
    sets = dict.fromkeys(
        (cell.settings.workload, cell.settings.measure.calibration if cell.is_open else None) for cell in decodes
    )
    for workload, calibration in sets:
        if workload.name not in BUNDLED:
            continue
        measured = load_prompts(workload)
        if calibration is not None:
            calibration_prompts(workload, calibration, measured)
