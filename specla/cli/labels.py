"""What the rows of a table are called on the terminal, so that no two cells look alike: as in the report."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from specla.bench.cells import Cell
from specla.bench.validate import show


class Place(NamedTuple):
    """What was decoded, and how its tokens were chosen; an empty string is a dial that was left alone."""

    workload: str
    categories: str = ""
    batch: int = 1
    temperature: float = 0.0
    top_p: float = 1.0


def place_of(cell: Cell) -> Place:
    """Of a planned decode; the plan's table has a column for the batch."""
    workload, sampling = cell.settings.workload, cell.settings.sampling
    categories = " and ".join(map(str, workload.categories or ()))
    return Place(workload.name, categories, 1, *_sampled(sampling.temperature, sampling.top_p))


def place_in(cell: Mapping[str, Any]) -> Place:
    """Of a decode in a document."""
    categories = _dial(cell, "workload.categories").strip("[]").replace(",", " and ")
    batch, temperature = int(cell.get("batch", 1)), float(cell.get("temperature", 0.0))
    top_p = float(_dial(cell, "sampling.top_p") or 1.0)
    return Place(str(cell.get("workload", "")), categories, batch, *_sampled(temperature, top_p))


def _sampled(temperature: float, top_p: float) -> tuple[float, float]:
    """Greedy decoding has no nucleus."""
    return temperature, top_p if temperature else 1.0


def place_labels(places: Sequence[Place], *, short: bool = False) -> list[str]:
    """The workload, and of categories, batch and temperature what varies; where lines are short, in the fewest words,
    and without a workload that all share."""
    varies = {name: len({getattr(place, name) for place in places}) > 1 for name in Place._fields}
    return [_short_label(place, varies) if short else _label(place, varies) for place in places]


def _label(place: Place, varies: Mapping[str, bool]) -> str:
    categories = f" ({place.categories})" if varies["categories"] and place.categories else ""
    told = [f"batch {place.batch}"] if varies["batch"] else []
    told += [f"T = {place.temperature:g}"] if varies["temperature"] else []
    told += [f"top-p = {place.top_p:g}"] if varies["top_p"] and place.temperature else []
    # Each is kept on one line.
    return ", ".join((f"{place.workload}{categories}", *(text.replace(" ", "\u00a0") for text in told)))


def _short_label(place: Place, varies: Mapping[str, bool]) -> str:
    told = {
        "workload": place.workload,
        "categories": place.categories or "all",
        "batch": f"B={place.batch}",
        "temperature": f"T={place.temperature:g}",
        "top_p": f"p={place.top_p:g}",
    }
    return " ".join(text for name, text in told.items() if varies[name])


def drafter_in(cell: Mapping[str, Any]) -> str:
    """The drafter of a decode in a document, with the acceptance that was asked for; ~ where that is synthetic."""
    asked, name = cell.get("profile") or cell.get("alpha_asked"), cell["method"]["drafter"]
    vocabulary = _dial(cell, "drafter.vocabulary")
    if _dial(cell, "drafter.cost") == "aligned":
        name = f"{name} paid {vocabulary}".rstrip()
    elif name == "aligned":
        name = f"{name} {vocabulary}".rstrip()
    return f"{name}{'' if asked is None else ' ' + show(asked)}{' ~' if cell.get('synthetic') else ''}"


def _dial(cell: Mapping[str, Any], name: str) -> str:
    """What a dial was turned to; empty where it was not, or to null."""
    words: Iterable[str] = cell.get("overrides", ())
    told = [value for key, _, value in (word.partition("=") for word in words) if key == name]
    return told[-1] if told and told[-1] != "null" else ""
