"""What the rows of a table are called on the terminal, so that no two cells look alike: as in the report."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specla.bench.cells import Cell, drafter_words
from specla.bench.validate import show
from specla.bench.words import dial_in
from specla.report.escape import shown_apart


class Place(NamedTuple):
    """What was decoded, and how its tokens were chosen; an empty string is a dial that was left alone."""

    workload: str
    categories: str = ""
    batch: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    model: str = ""


def place_of(cell: Cell, model: str, workload: str) -> Place:
    """Of a planned decode by a model, both called so; the plan's table has a column for the batch."""
    sampling = cell.settings.sampling
    categories = " and ".join(map(str, cell.settings.workload.categories or ()))
    return Place(workload, categories, 1, *_sampled(sampling.temperature, sampling.top_p), model)


def place_in(cell: Mapping[str, Any]) -> Place:
    """Of a decode in a document."""
    categories = dial_in(cell.get("overrides", ()), "workload.categories").strip("[]").replace(",", " and ")
    batch, temperature = int(cell.get("batch", 1)), float(cell.get("temperature", 0.0))
    top_p = float(dial_in(cell.get("overrides", ()), "sampling.top_p") or 1.0)
    sampled = _sampled(temperature, top_p)
    return Place(str(cell.get("workload", "")), categories, batch, *sampled, str(cell.get("model", "")))


def _sampled(temperature: float, top_p: float) -> tuple[float, float]:
    """Greedy decoding has no nucleus."""
    return temperature, top_p if temperature else 1.0


def place_labels(places: Sequence[Place], *, short: bool = False) -> list[str]:
    """The workload, and of model, categories, batch and temperature what varies; where lines are short, in the fewest
    words, and without a workload that all share. Names are cut, though never so that two look alike."""
    workloads, categories, models = (
        shown_apart(texts)
        for texts in ({p.workload for p in places}, {p.categories for p in places}, {p.model for p in places})
    )
    places = [
        place._replace(
            workload=workloads[place.workload], categories=categories[place.categories], model=models[place.model]
        )
        for place in places
    ]
    varies = {name: len({getattr(place, name) for place in places}) > 1 for name in Place._fields}
    return [_short_label(place, varies) if short else _label(place, varies) for place in places]


def _label(place: Place, varies: Mapping[str, bool]) -> str:
    categories = f" ({place.categories})" if varies["categories"] and place.categories else ""
    told = [f"batch {place.batch}"] if varies["batch"] else []
    told += [f"T = {place.temperature:g}"] if varies["temperature"] else []
    told += [f"top-p = {place.top_p:g}"] if varies["top_p"] and place.temperature else []
    models = [place.model] if varies["model"] else []
    # Each of the short ones is kept on one line.
    return ", ".join((f"{place.workload}{categories}", *models, *(text.replace(" ", "\u00a0") for text in told)))


def _short_label(place: Place, varies: Mapping[str, bool]) -> str:
    told = {
        "workload": place.workload,
        "categories": place.categories or "all",
        "batch": f"B={place.batch}",
        "temperature": f"T={place.temperature:g}",
        "top_p": f"p={place.top_p:g}",
        "model": place.model,
    }
    return " ".join(text for name, text in told.items() if varies[name])


def drafter_in(cell: Mapping[str, Any]) -> str:
    """The drafter of a decode in a document, as a plan calls it; ~ where its acceptance is synthetic."""
    asked, overrides = cell.get("profile"), cell.get("overrides", ())
    if asked is None and cell.get("alpha_asked") is not None:
        asked = show(cell["alpha_asked"])
    paid, vocabulary = dial_in(overrides, "drafter.cost") == "aligned", dial_in(overrides, "drafter.vocabulary")
    return drafter_words(cell["method"]["drafter"], asked, paid, vocabulary) + " ~" * bool(cell.get("synthetic"))
