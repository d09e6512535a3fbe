"""Which prompts a cell decodes."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specla.bench.settings import WorkloadSettings
from specla.bench.workloads.prompt import Prompt
from specla.bench.workloads.shown import listed, quoted
from specla.errors import SpeclaError
from specla.models.chat import ChatTemplate


@dataclass(frozen=True)
class Chosen:
    """The prompts of a cell, what was left out on the way, a line each, and how many there were to choose from."""

    prompts: list[Prompt]
    notes: tuple[str, ...]
    held: int


def load_prompts(settings: WorkloadSettings) -> list[Prompt]:
    """The prompts of a workload, `settings.prompts` of them or all, spread evenly over its categories.

    Raises:
        SpeclaError: the source is missing, empty or damaged, a category is unknown, or there are too few prompts.
    """
    return choose_prompts(settings).prompts


def choose_prompts(settings: WorkloadSettings) -> Chosen:
    """As `load_prompts`, with what was left out."""
    mixed, notes = _mixed(settings)
    wanted = len(mixed) if settings.prompts is None else settings.prompts
    of = "" if settings.categories is None else f" of {_categories(settings.categories)}"
    # Where fewer prompts were asked for they were made a batch by now: it is the batch that is too large.
    if settings.batch > (there := min(wanted, len(mixed))):
        raise SpeclaError(
            f"workload.batch={settings.batch}: needs a prompt a row, and {settings.name} holds {there}{of}; give at "
            "most that"
        )
    if wanted > len(mixed):
        raise SpeclaError(f"workload.prompts={wanted}: {settings.name} holds {len(mixed)}{of}; give at most that")
    rest = wanted % settings.batch
    if rest:
        notes += (f"workload={settings.name}: the last {rest} of {wanted} prompts fill no batch and are left out",)
    return Chosen(mixed[: wanted - rest], notes, len(mixed))


def calibration_prompts(settings: WorkloadSettings, count: int, measured: Sequence[Prompt]) -> list[Prompt]:
    """Prompts of a workload that are not measured, in whole batches: `count` of them, or a few more.

    Args:
        settings: whose prompts those measured are the first of, as `load_prompts` chooses them.
        count: wanted.
        measured: those; their number tells which rows are left, whatever ids or texts the rows share.

    Raises:
        SpeclaError: there are too few.
    """
    wanted = -(-count // settings.batch) * settings.batch
    whole, _ = _mixed(settings)
    free = whole[len(measured) :]
    if len(free) < wanted:
        rounded = "" if wanted == count else f" ({wanted} in whole batches)"
        of = "" if settings.categories is None else f", {_categories(settings.categories)}"
        raise SpeclaError(
            f"measure.calibration={count}{rounded}: those that are measured leave {len(free)} of the {len(whole)} "
            f"prompts of workload={settings.name}{of}; lower it or workload.prompts"
        )
    return free[:wanted]


def put_conversations(prompts: Sequence[Prompt], chat: ChatTemplate | None, settings: WorkloadSettings) -> list[Prompt]:
    """The prompts, the text of each conversation that of the model's chat template: so a digest covers both.

    Raises:
        SpeclaError: the template is damaged, or fails at one of them.
    """
    talks = [(f"workload={settings.name}: prompt {one.id[:60]!r}", one.turns) for one in prompts if one.turns]
    if chat is None or not talks:
        return list(prompts)
    texts = iter(chat.render(talks))
    return [replace(one, text=next(texts)) if one.turns else one for one in prompts]


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """sha256 of the prompts, for fingerprints."""
    whole = [(p.id, p.category, p.text, [(turn.role, turn.text) for turn in p.turns]) for p in prompts]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def _mixed(settings: WorkloadSettings) -> tuple[list[Prompt], tuple[str, ...]]:
    """All prompts of the chosen categories, one of each in turn, and what was left out of their source.

    Any number of the first of them is as even a mix as it can be.
    """
    # Imported here: a workload is named far more often (in plans, in --help) than it is read.
    from specla.bench.workloads.sources import read_source

    prompts, notes = read_source(settings)
    places = {category: place for place, category in enumerate(dict.fromkeys(p.category for p in prompts))}
    if settings.categories is not None:
        if not settings.categories:
            raise SpeclaError(f"workload.categories=[]: names none; give some of {listed(places)}, or null for all")
        unknown = [name for name in settings.categories if name not in places]
        if unknown:
            raise SpeclaError(
                f"workload.categories: no {quoted(unknown[0])} in {settings.name}; give some of {listed(places)}"
            )
        places = {category: place for place, category in enumerate(dict.fromkeys(settings.categories))}
    earlier, turns = Counter[str](), list[tuple[int, int, Prompt]]()
    for prompt in prompts:
        if prompt.category in places:
            turns.append((earlier[prompt.category], places[prompt.category], prompt))
            earlier[prompt.category] += 1
    return [prompt for _, _, prompt in sorted(turns, key=lambda turn: turn[:2])], notes


def _categories(names: Sequence[str]) -> str:
    return f"categories {listed(names)}"
