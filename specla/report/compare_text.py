"""A comparison in words, as Markdown, and as the JSON document."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from specla.bench.model_labels import model_labels
from specla.bench.record import SCHEMA, Record
from specla.bench.summary import build_cell, interval_json
from specla.bench.workload_labels import workload_labels, workload_of
from specla.report.change import TIME, CellChange, Difference, Way
from specla.report.compare import Comparison, Listed
from specla.report.escape import NAME, SENTENCE, bold, for_markdown, shown, shown_apart
from specla.report.load import DAMAGED
from specla.report.verdict import Change, Verdict, threshold

VERDICT_ORDER = (Verdict.SLOWER, Verdict.INCONCLUSIVE, Verdict.FASTER, Verdict.SAME)
"""What a reader must not miss comes first."""
_NAMED = 2
_OPERATIONS = {"verify": "verification", "recover": "commit", "defer": "commit and verification"}
_WAYS = {
    Way.IN_TURNS: "Measured in turns on one machine: judged is the time itself, window by window against its partner.",
    Way.APART: "Measured apart: judged is each time over that of AR, or of the baselines, in the same repeats, and the "
    "time itself is the second witness. Whether everything became slower shows only side by side: make regress.",
    Way.ABSOLUTE: "Measured apart, judged by the time itself: that the machine was quiet both times is taken on trust.",
    Way.ACROSS_DEVICES: "Two devices: judged is each time over that of AR, or of the baselines, on its own device.",
}


def labels(records: Sequence[Record]) -> dict[int, str]:
    """A name for every record, by its id: the verification, and of all else what tells the records apart."""
    called = zip(model_labels(records), workload_labels([workload_of(record) for record in records]), strict=True)
    parts = [_parts(record, *own) for record, own in zip(records, called, strict=True)]
    values = {name: {part[name] for part in parts} - {None} for name in (parts[0] if parts else {})}
    varying = [name for name, found in values.items() if len(found) > 1]
    names = ["verify", *(name for name in varying if name != "verify")]
    texts: list[str] = [" ".join(part[name] or "" for name in names) for part in parts]
    counts = Counter(texts)
    # What only the words of a cell tell apart, such as a seed, is told by its words.
    full: list[str] = [
        " ".join((text if counts[text] == 1 else f"{text} ({' '.join(map(shown, record.overrides))})").split())
        for record, text in zip(records, texts, strict=True)
    ]
    told = shown_apart(full, SENTENCE)
    return {id(record): told[text] for record, text in zip(records, full, strict=True)}


def _parts(record: Record, model: str, workload: str) -> dict[str, str | None]:
    """By what it says, a word or two; None where it has no say, as a topology has in AR."""
    method, ar, decode = record.method, record.method.is_ar, not record.is_kernel
    alpha = record.alpha_asked
    return {
        "engine": method.engine,
        "verify": method.verify,
        "recover": None if ar else method.recover,
        "drafter": method.drafter if decode and not ar else None,
        "alpha": shown(record.profile or str(alpha).replace(" ", "")) if decode and alpha is not None else None,
        "drafter_cost": None if record.drafter_cost is None else f"cost={record.drafter_cost}",
        "topology": None if ar else method.topology,
        "workload": shown(workload),
        "batch": f"batch={record.batch}",
        "accepted": None if record.accepted is None else f"accepted={record.accepted}",
        "model": shown(model),
        "dtype": record.dtype,
        "temperature": f"T={record.sampling.temperature:g}",
        "operation": "(decode)" if decode else f"({_OPERATIONS.get(record.group, record.group)})",
    }


def ordered(comparison: Comparison) -> list[CellChange]:
    """The cells, those first that a reader must not miss, then by how much they changed."""
    return sorted(
        comparison.cells,
        key=lambda cell: (VERDICT_ORDER.index(cell.verdict), -(cell.change.ratio.median or 0.0)),
    )


def sentence(comparison: Comparison) -> str:
    """The answer in a line."""
    counts = ", ".join(f"{comparison.count(v)} {v.value}" for v in VERDICT_ORDER if comparison.count(v))
    total = len(comparison.cells)
    told = f"{comparison.status}: of {total} cell{'s' * (total != 1)} {counts or 'none'}"
    lists = {name: len(listed) for name, _, listed in _lists(comparison) if listed}
    return ", ".join([told, *(f"{count} {name}" for name, count in lists.items())])


def rule_text(comparison: Comparison) -> str:
    """How it was judged."""
    least = 100 * comparison.rule.least
    told = _WAYS[comparison.rule.way]
    return (
        f"{told} Ratios are NEW over BASE, above 1 is slower, in brackets the interval that holds for all cells "
        f"together with 95 %. A change counts from {least:g} %, or from the spread of one repeat where that is more."
    )


def ratio_text(change: Change) -> str:
    """The ratio and the interval that was judged."""
    if change.ratio.median is None:
        return "-"
    if change.low is None or change.high is None:
        return f"{change.ratio.median:.2f}"
    return f"{change.ratio.median:.2f} [{change.low:.2f}, {change.high:.2f}]"


def difference_text(difference: Difference) -> str:
    """What an exact figure was and is."""
    return f"{difference.figure} {_figure(difference.base)} -> {_figure(difference.new)}"


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("None", "unknown")


def exact_changes(comparison: Comparison) -> list[tuple[CellChange, bool, str]]:
    """(cell, whether it got worse, what changed) of every cell whose exact figures changed, the worse ones first."""
    found = [
        (cell, any(one.worse for one in cell.exact), ", ".join(difference_text(one) for one in cell.exact))
        for cell in comparison.cells
        if cell.exact
    ]
    return sorted(found, key=lambda one: not one[1])


def all_labels(comparison: Comparison) -> dict[int, str]:
    """A name for every cell of a comparison, by the id of its record (NEW's, where it is in both)."""
    listed = [one.record for _, _, group in _lists(comparison) for one in group]
    return labels([*(cell.new for cell in comparison.cells), *listed])


def _lists(comparison: Comparison) -> list[tuple[str, str, tuple[Listed, ...]]]:
    """(a word, a heading, the cells) of everything that is only listed."""
    return [
        ("failing", "Passed in BASE, fail in NEW", comparison.broken),
        ("missing", "Planned but not measured", comparison.missing),
        ("vanished", "Measured in BASE, not in NEW", comparison.vanished),
        ("new", "In NEW alone", comparison.added),
        ("mended", "Failed in BASE, pass in NEW", comparison.mended),
    ]


def listings(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """(heading, lines) of everything beside the ratios: cells on one side alone, exact figures, notes."""
    names = all_labels(comparison)
    found = [
        (heading, [names[id(one.record)] + (f": {shown(one.reason, SENTENCE)}" if one.reason else "") for one in group])
        for _, heading, group in _lists(comparison)
    ]
    exact = exact_changes(comparison)
    for heading, wanted in (("Exact figures that got worse", True), ("Exact figures that changed", False)):
        found.append((heading, [f"{names[id(cell.new)]}: {text}" for cell, worse, text in exact if worse is wanted]))
    reasons: dict[str, list[str]] = {}
    for cell in comparison.cells:
        if cell.reason:
            reasons.setdefault(cell.reason, []).append(names[id(cell.new)])
    found.append(("Inconclusive", [f"{reason}: {_few(cells)}" for reason, cells in reasons.items()]))
    found.append(("Notes", [shown(note, SENTENCE) for note in comparison.notes if note not in comparison.damage]))
    return [(heading, lines) for heading, lines in found if lines]


def _few(cells: Sequence[str]) -> str:
    """The cells by name where they are few: the table tells which they are."""
    return "; ".join(cells) if len(cells) <= _NAMED else f"{len(cells)} cells"


def compare_markdown(comparison: Comparison) -> str:
    """The whole comparison as Markdown."""
    names = all_labels(comparison)
    base, new = (for_markdown(name, NAME) for name in (comparison.base, comparison.new))
    text = f"## {base} → {new}\n\n{bold(sentence(comparison))}, on {for_markdown(comparison.device, SENTENCE)}\n\n"
    if comparison.damage:
        damage = (f"- {for_markdown(line, SENTENCE)}\n" for line in comparison.damage)
        text += f"{bold(DAMAGED)}\n\n{''.join(damage)}\n"
    text += (
        f"{rule_text(comparison)}\n\n| cell | NEW / BASE | time alone | threshold | verdict |\n|---|---|---|---|---|\n"
    )
    for cell in ordered(comparison):
        marked = cell.verdict.value if cell.verdict is Verdict.SAME else f"**{cell.verdict.value}**"
        name, ratio = for_markdown(names[id(cell.new)]), ratio_text(cell.change)
        text += f"| {name} | {ratio} | {time_text(cell)} | {threshold_text(cell, comparison)} | {marked} |\n"
    for heading, lines in listings(comparison):
        text += f"\n### {heading}\n\n" + "".join(f"- {for_markdown(line)}\n" for line in lines)
    return text


def time_text(cell: CellChange) -> str:
    """The ratio of the time itself, where something else is judged."""
    if cell.figure == TIME:
        return ""
    middle = cell.time.ratio.median
    return "-" if middle is None else f"{middle:.2f}"


def threshold_text(cell: CellChange, comparison: Comparison) -> str:
    """The change from which on this cell counts."""
    return f"{100 * threshold(cell.change, comparison.rule.least):.0f} %"


def compare_document(comparison: Comparison) -> dict[str, Any]:
    """The JSON document: that of every command (schema, command, status, run, device, cells), and what is listed."""
    rule = comparison.rule
    return {
        "schema": SCHEMA,
        "command": "compare",
        "status": comparison.status,
        "run": comparison.new,
        "base": comparison.base,
        "device": comparison.device,
        "way": rule.way.value,
        "least": rule.least,
        "cells": [_cell_json(cell, rule.least) for cell in comparison.cells],
        **{name: [_listed_json(one) for one in group] for name, _, group in _lists(comparison)},
        "notes": list(comparison.notes),
    }


def _cell_json(cell: CellChange, least: float) -> dict[str, Any]:
    return {
        **_named(cell.new),
        "verdict": cell.verdict.value,
        "verdict_reason": cell.reason,
        "figure": cell.figure,
        "change": _change_json(cell.change),
        "time": _change_json(cell.time),
        "threshold": threshold(cell.change, least),
        "exact": [vars(difference) for difference in cell.exact],
    }


def _change_json(change: Change) -> dict[str, Any]:
    together = {"low": change.low, "high": change.high}
    return {**interval_json(change.ratio), "all_cells": together, "noise": change.noise}


def _listed_json(one: Listed) -> dict[str, Any]:
    return {**_named(one.record), "reason": one.reason}


def _named(record: Record) -> Mapping[str, Any]:
    """Which cell it is, in the words that every document has."""
    cell = build_cell(record)
    names = ("fingerprint", "overrides", "command", "group", "method", "batch", "nodes", "workload", "model", "dtype")
    return {name: cell[name] for name in (*names, "device", "alpha_asked", "temperature", "status")}  # type: ignore[literal-required]
