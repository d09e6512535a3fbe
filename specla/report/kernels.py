"""The cells that time one operation: their columns in the frame of cells, and their ratios to what they are held
against."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from specla.bench.record import KERNEL_GROUPS, Record, Status
from specla.bench.summary import Cell
from specla.report.escape import shown

RATIOS = ("cell", "over", "ratio", "ratio_low", "ratio_high", "ratio_n")
"""Columns of the ratios: `over` names the baseline, `ratio` is its time over the cell's."""
KEPT = "draft_token_bytes"
"""The entry of a record's memory that says what a strategy keeps of one draft token between verification and commit."""


def kind_of(record: Record) -> str:
    """verify, recover or defer; empty for a decode."""
    if not record.is_kernel:
        return ""
    return next((name for name in (record.group, record.command.split()[-1]) if name in KERNEL_GROUPS), "")


def is_chain(record: Record) -> bool:
    """Whether no node of its tree has a sibling."""
    parents = record.topology.parents
    if parents is not None:
        return list(parents) == list(range(-1, len(parents) - 1))
    return record.method.topology.startswith("chain")


def shape_of(record: Record) -> str:
    """What trees of different sizes have in common: the kind, and of a k-ary tree its branching."""
    if is_chain(record):
        return "chain"
    kind = record.topology.name if record.topology.name != "root" else record.method.topology.split("-")[0]
    named = re.search(r"-b(\d+)", record.method.topology)
    branching = record.topology.branching or (int(named.group(1)) if named else None)
    return f"{kind}, branching {branching}" if kind == "kary" and branching else kind


def accepted_of(record: Record) -> int | None:
    """Drafts accepted in the measured case; of a cell that was not measured, those asked for."""
    if record.accepted is not None:
        return record.accepted
    asked = [word.partition("=")[2] for word in record.overrides if word.startswith("measure.accepted=")]
    return int(asked[0]) if asked and asked[0].isdigit() else None


def kernel_columns(record: Record, cell: Cell) -> dict[str, Any]:
    """What the tables and plots need of one timed operation; figures of decodes are missing."""
    time = cell.get("time_us") or {"median": None, "low": None, "high": None, "n": 0}
    return {
        "kind": kind_of(record),
        "chain": is_chain(record),
        "shape": shape_of(record),
        "levels": record.topology.length,
        "accepted": accepted_of(record) if record.is_kernel else None,
        "variant": " ".join(_dials(record, "model.")) if record.is_kernel else "",
        "tuning": "".join(f", {word.removeprefix('engine.')}" for word in _dials(record, "engine.")),
        "time_us": time["median"],
        "time_low_us": time["low"],
        "time_high_us": time["high"],
        "floor_us": cell.get("floor_us"),
        "timing": record.timing,
        "moved_bytes": cell.get("bytes"),
        "kept_bytes": record.memory.get(KEPT) if record.kernel else None,
    }


def ratio_rows(records: Sequence[Record], cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Each measured operation beside each of its baselines; a baseline whose own cell failed counts nowhere."""
    failed: set[tuple[object, ...]] = set()
    sound: set[tuple[object, ...]] = set()
    for record in records:
        if record.is_kernel:
            (failed if record.status is Status.FAILED else sound).add(_place(record, _strategy(record)))
    return [
        {"cell": index, "over": name, **_ratio(ratio)}
        for index, record in enumerate(records)
        if record.kernel
        for name, ratio in cells[index]["ratio"].items()
        if _place(record, name) not in failed - sound
    ]


def _ratio(ratio: Mapping[str, Any]) -> dict[str, Any]:
    return {"ratio": ratio["median"], "ratio_low": ratio["low"], "ratio_high": ratio["high"], "ratio_n": ratio["n"]}


def _strategy(record: Record) -> str:
    """What an ablation varies: how to verify, or how to recover."""
    return record.method.verify if kind_of(record) == "verify" else record.method.recover


def _place(record: Record, strategy: str) -> tuple[object, ...]:
    """One strategy under the conditions that its rivals share."""
    setting = (record.device, record.model, record.dtype, record.batch)
    return (kind_of(record), *setting, _dials(record, "model."), record.method.topology, accepted_of(record), strategy)


def _dials(record: Record, of: str) -> tuple[str, ...]:
    """The overrides of a group, but for those that other columns tell."""
    told = ("engine.verify=", "engine.recover=", "engine.name=", "model.path=", "model.weights=", "model.name=")
    return tuple(shown(word) for word in record.overrides if word.startswith(of) and not word.startswith(told))
