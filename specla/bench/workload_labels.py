"""What the workloads of several cells are called: the option's name, and the file or data set given. No torch."""

import os.path
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath

from specla.bench.record import Record
from specla.bench.settings import WorkloadSettings
from specla.bench.words import dial_in

_HUB = "hub:"
_CHOOSING = ("subset", "split", "column", "turns")
"""The dials that choose prompts within a file or data set."""
_DEFAULTS = ("first",)
"""What goes without saying."""


def source_of(workload: WorkloadSettings) -> str:
    """The file or the data set that a workload reads, and what is chosen in it; empty for what comes with specla."""
    return _source(lambda dial: getattr(workload, dial) or "")


def workload_of(record: Record) -> tuple[str, str]:
    """(name, source) of a cell's workload, which are its identity; of older records by their words."""
    words = partial(dial_in, record.overrides)
    return record.workload, record.source or _source(lambda dial: words(f"workload.{dial}"))


def workload_labels(workloads: Sequence[tuple[str, str]]) -> list[str]:
    """What each workload (name, source) is called, no two alike: 'heldout', 'dataset (prompts.txt)'.

    A file has as much of its folder as tells it from the others.
    """
    parts = {workload: _parts(workload[1]) for workload in workloads}
    labels = []
    for name, source in workloads:
        own = parts[name, source]
        others = [other for (called, _), other in parts.items() if called == name and other != own]
        count = next((n for n in range(1, len(own)) if all(other[-n:] != own[-n:] for other in others)), len(own))
        # The first part of an absolute path is the slash itself.
        labels.append(f"{name} ({PurePath(*own[-count:])})" if source else name)
    return labels


def _source(dial: Callable[[str], str]) -> str:
    path, dataset = dial("path").strip("'\""), dial("dataset")
    if not path and not dataset:
        return ""
    chosen = [f"{name} {value}" for name in _CHOOSING if (value := dial(name)) not in ("", *_DEFAULTS)]
    return ", ".join([os.path.normpath(path) if path else _HUB + dataset, *chosen])


def _parts(source: str) -> tuple[str, ...]:
    # The name of a data set is no path.
    return (source.removeprefix(_HUB),) if source.startswith(_HUB) else PurePath(source).parts
