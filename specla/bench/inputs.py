"""What is looked at of a plan's prompts, models and acceptance profiles before anything else is loaded. No torch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from specla.bench.cells import Cell, Plan, asked
from specla.bench.normalise import END_TO_END
from specla.bench.profile import read_profile
from specla.bench.settings import ModelSettings, WorkloadSettings
from specla.bench.validate import escaped
from specla.bench.workloads.base import Chosen, calibration_prompts, choose_prompts, put_conversations
from specla.bench.workloads.shown import listed, quoted
from specla.bench.workloads.sources import on_hub
from specla.errors import SpeclaError
from specla.models.chat import read_chat_template
from specla.models.folder import local_folder, read_config
from specla.models.look import look_at
from specla.models.tokenizer import TextTokenizer

CELLS_FAIL = "its cells fail"
"""The end of a note on an input that is bad, where other cells have good ones: a run ends with 4 then."""
UNSEEN = "no such folder here; a run asks the hub for it, a dry run does not"


def check_inputs(plan: Plan, fetch: bool) -> Plan:
    """The plan, with what is left out of its prompts among its notes.

    Args:
        plan: of a run or a dry run.
        fetch: ask the hub for data sets too, as a run; else the notes name what was not looked at, and say how many
            prompts the others hold.

    Raises:
        SpeclaError: what a run of this plan would say of its prompts, its models or its acceptance profiles: a file is
            missing or damaged, a column or category unknown, there are too few prompts, a chat template fails at one.
            Where other cells have good ones it is a note.
    """
    decodes = [cell for cell in plan.cells if cell.status == "pending" and cell.command == END_TO_END]
    notes, bad = list[str](), dict[_Input, SpeclaError]()
    # Most cells of a sweep share their inputs.
    for look, chosen in dict.fromkeys(one for inputs in zip(*map(_inputs_of, decodes), strict=True) for one in inputs):
        try:
            notes += look(chosen, fetch)
        except SpeclaError as error:
            bad[look, chosen] = error
    if bad and all(any(one in bad for one in _inputs_of(cell)) for cell in asked(decodes)):
        raise next(iter(bad.values()))
    notes += [f"{error}: {CELLS_FAIL}" for error in bad.values()]
    return replace(plan, notes=(*plan.notes, *dict.fromkeys(notes)))


_Set = tuple[WorkloadSettings, int | None]
"""A workload, and how many prompts topology=auto needs besides."""
_Input = tuple[Callable[[Any, bool], tuple[str, ...]], Any]
"""How an input is looked at, and which it is."""


def _inputs_of(cell: Cell) -> tuple[_Input, ...]:
    settings = cell.settings
    calibration = settings.measure.calibration if cell.is_open else None
    prompts = (settings.workload, calibration)
    return (
        (_prompt_notes, prompts),
        (model_notes, settings.model),
        (_chat_notes, (prompts, settings.model)),
        (_profile_notes, settings.drafter.profile),
    )


def _profile_notes(name: str | None, fetch: bool) -> tuple[str, ...]:
    """Nothing. Raises SpeclaError where an acceptance profile is missing or damaged."""
    if name is not None:
        read_profile(name)
    return ()


def model_notes(model: ModelSettings, fetch: bool) -> tuple[str, ...]:
    """What is not looked at of a model, and what is to be said of its tokenizer.

    Args:
        model: whose configuration and whose weights' headers are looked at, before memory is asked for what they say.
        fetch: leave the tokenizer to whoever loads it next.

    Raises:
        SpeclaError: a file is missing or damaged, or they do not fit each other.
    """
    if model.weights == "random" or model.path is None:
        return ()
    folder = local_folder(model.path)
    if folder is None:
        return () if fetch else (f"model.path={model.path}: {UNSEEN}",)
    look_at(folder)
    return () if fetch else TextTokenizer(folder, read_config(folder)).notes


def _chat_notes(chosen: tuple[_Set, ModelSettings], fetch: bool) -> tuple[str, ...]:
    """Nothing. Raises SpeclaError where the model's chat template is damaged, or fails at one of the prompts."""
    (workload, calibration), model = chosen
    folder = None if model.weights == "random" or model.path is None else local_folder(model.path)
    chat = None if folder is None else read_chat_template(folder)
    if chat is None or (on_hub(workload) and not fetch):
        return ()
    prompts = choose_prompts(workload).prompts
    others = [] if calibration is None else calibration_prompts(workload, calibration, prompts)
    put_conversations([*prompts, *others], chat, workload)
    return ()


def _prompt_notes(chosen: _Set, fetch: bool) -> tuple[str, ...]:
    """What is left out of a set of prompts. Raises SpeclaError where it is bad."""
    workload, calibration = chosen
    if on_hub(workload) and not fetch:
        return (f"workload.dataset={workload.dataset}: a run asks the hub for it, a dry run does not",)
    found = choose_prompts(workload)
    if calibration is not None:
        calibration_prompts(workload, calibration, found.prompts)
    return tuple(found.notes) if fetch else (_held(workload, found), *found.notes)


def _held(workload: WorkloadSettings, found: Chosen) -> str:
    """What a dry run says of the prompts that a run would decode, so that a wrong column is seen."""
    source = f"workload={workload.name}" if workload.path is None else f"workload.path={escaped(workload.path)}"
    of = "" if workload.categories is None else f" of categories {listed(workload.categories)}"
    count = f"{found.held:,} prompt" + "s" * (found.held != 1)
    return f"{source}: {count}{of}, the first: {quoted(found.prompts[0].text)}"
