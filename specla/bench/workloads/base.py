"""One prompt, and the choice of which prompts a cell decodes."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from specla.bench.settings import WorkloadSettings
from specla.errors import SpeclaError


@dataclass(frozen=True)
class Prompt:
    """A text to continue.

    Attributes:
        id: unique within its workload.
        category: what kind of text it is; results are also given by category.
        text: the prompt itself.
    """

    id: str
    category: str
    text: str


def load_prompts(settings: WorkloadSettings) -> list[Prompt]:
    """The prompts of a workload, `settings.prompts` of them, spread evenly over its categories.

    Raises:
        SpeclaError: the source is missing, empty or damaged, a category is unknown, or there are too few prompts.
    """
    prompts = _reader(settings)(settings)
    if not prompts:
        raise SpeclaError(f"workload.path={settings.path}: holds no prompts")
    by_category: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        if prompt.text.strip():
            by_category.setdefault(prompt.category, []).append(prompt)
    if settings.categories is not None:
        unknown = [name for name in settings.categories if name not in by_category]
        if unknown:
            raise SpeclaError(
                f"workload.categories: no {unknown[0]!r} in {settings.name}; give some of {', '.join(by_category)}"
            )
        by_category = {name: by_category[name] for name in settings.categories}
    # One of each category in turn, so that any number of prompts is as even a mix as it can be.
    mixed = [prompt for prompt in chain(*zip_longest(*by_category.values())) if prompt is not None]
    wanted = len(mixed) if settings.prompts is None else settings.prompts
    if wanted > len(mixed):
        raise SpeclaError(f"workload.prompts={wanted}: {settings.name} holds {len(mixed)}; give at most that")
    chosen = mixed[: wanted - wanted % settings.batch]
    if not chosen:
        raise SpeclaError(
            f"workload.batch={settings.batch}: needs as many prompts, and there are {wanted}; raise workload.prompts"
        )
    return chosen


def calibration_prompts(settings: WorkloadSettings, count: int, measured: Sequence[Prompt]) -> list[Prompt]:
    """Prompts of a workload that are not measured, in whole batches: `count` of them, or a few more.

    Raises:
        SpeclaError: there are too few.
    """
    wanted = -(-count // settings.batch) * settings.batch
    taken = {prompt.id for prompt in measured}
    whole = load_prompts(replace(settings, prompts=None, batch=1))
    free = [prompt for prompt in whole if prompt.id not in taken]
    if len(free) < wanted:
        rounded = "" if wanted == count else f" ({wanted} in whole batches)"
        of = "" if settings.categories is None else f", categories {', '.join(settings.categories)}"
        raise SpeclaError(
            f"measure.calibration={count}{rounded}: those that are measured leave {len(free)} of the {len(whole)} "
            f"prompts of workload={settings.name}{of}; lower it or workload.prompts"
        )
    return free[:wanted]


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """sha256 of the prompts, for fingerprints."""
    return hashlib.sha256("\x00".join(f"{p.id}\x00{p.category}\x00{p.text}" for p in prompts).encode()).hexdigest()


def _reader(settings: WorkloadSettings) -> Callable[[WorkloadSettings], list[Prompt]]:
    # Imported here: a workload is named far more often (in plans, in --help) than it is read.
    from specla.bench.workloads import bundled, external

    readers: dict[str, Callable[[WorkloadSettings], list[Prompt]]] = {
        "heldout": bundled.heldout,
        "human-eval": bundled.human_eval,
        "gsm8k": external.gsm8k,
        "spec-bench": external.spec_bench,
        "dataset": external.dataset,
    }
    if settings.name not in readers:
        raise SpeclaError(f"workload={settings.name}: unknown; one of {', '.join(readers)}")
    return readers[settings.name]
