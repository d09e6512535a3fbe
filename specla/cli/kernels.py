"""Single operations on the terminal: a block a case, strategies under its heading, narrow enough for 80 columns."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specla.report.escape import for_terminal, shown

BASELINES = {"verify": "sequential_replay", "recover": "replay_tokens", "defer": "factors"}
"""The main baseline of each ablation, whose ratio is shown; the others are in the document and the report."""
_HEADS = ("time us (95 %)", "x floor", "ratio (95 %)", "error")


def kernel_lines(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines in rich's markup; none where there are no cells."""
    for kind, name in BASELINES.items():
        found = [cell for cell in cells if cell["group"] == kind and cell["status"] != "not_applicable"]
        if found:
            yield from _block(kind, name, found)


def _block(kind: str, baseline: str, cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"[bold]{kind}[/]: microseconds a layer; ratio: {baseline}'s time over it"
    settings = len({_setting(cell) for cell in cells}) > 1
    by_verify = kind == "defer" or (kind == "recover" and _recovers_twice(cells))
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(_heading(cell, by_verify, settings), []).append(cell)
    rows = {heading: [_row(kind, baseline, cell, group) for cell in group] for heading, group in groups.items()}
    every = [("", *_HEADS), *(row for group in rows.values() for row in group)]
    widths = [max(len(row[i]) for row in every) for i in range(len(_HEADS) + 1)]
    yield f"[dim]{_line(('', *_HEADS), widths)}[/]"
    for heading, group in rows.items():
        yield f"[bold]{for_terminal(heading)}[/]"
        for row in group:
            line = for_terminal(_line(row, widths), None)
            yield line if row[2] else f"[dim]{line}[/]"
    yield ""


def _recovers_twice(cells: Sequence[Mapping[str, Any]]) -> bool:
    """Whether one recovery follows several verifications of the same tree."""
    verifies: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        method = cell["method"]
        verifies.setdefault((method["topology"], method["recover"]), set()).add(method["verify"])
    return any(len(names) > 1 for names in verifies.values())


def _heading(cell: Mapping[str, Any], with_verify: bool, with_setting: bool) -> str:
    nodes = f"{cell['nodes']} node{'s' * (cell['nodes'] > 1)}"
    parts = [f"{cell['method']['topology']}, {nodes}, batch {cell['batch']}"]
    if cell.get("accepted") is not None:
        parts.append(f"{cell['accepted']} accepted")
    after = f" after {cell['method']['verify']}" if with_verify else ""
    return ", ".join([", ".join(parts) + after, *(_setting(cell) if with_setting else ())])


def _setting(cell: Mapping[str, Any]) -> tuple[str, ...]:
    return (cell["model"], cell["dtype"])


def _row(
    kind: str, baseline: str, cell: Mapping[str, Any], group: Sequence[Mapping[str, Any]]
) -> tuple[str, str, str, str, str]:
    name = shown(_name(kind, cell, group))
    time = cell.get("time_us")
    if not time:
        return (name, cell["status"].replace("_", " "), "", "", _error(cell))
    is_baseline = cell["method"]["verify" if kind == "verify" else "recover"] == baseline
    ratio = "baseline" if is_baseline else _interval(cell["ratio"].get(baseline), "x", most=2)
    floor = cell.get("x_floor")
    return (name, _interval(time), "" if floor is None else _digits(floor), ratio, _error(cell))


def _name(kind: str, cell: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> str:
    """What the ablation varies, and of the rest what tells it from its like."""
    dial, other = ("verify", "recover") if kind == "verify" else ("recover", "verify")
    method = cell["method"]
    name = str(method[dial])
    if name == "auto" and cell.get("why"):
        name += f" ({cell['why'].partition(',')[0].removeprefix('auto: ')})"
    alike = [rival for rival in group if rival["method"][dial] == method[dial]]
    if len({rival["method"][other] for rival in alike}) > 1:
        name += f", {method[other]}"
    rings = {word for rival in alike for word in rival["overrides"] if word.startswith("engine.ring=")}
    own = [word for word in cell["overrides"] if word in rings]
    return f"{name}, R={own[0].partition('=')[2]}" if own else name


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
    cells[2] = row[2].rjust(widths[2])
    return ("  " + "  ".join(cells)).rstrip()


def _interval(value: Mapping[str, Any] | None, unit: str = "", most: int = 9) -> str:
    if not value or value.get("median") is None:
        return ""
    middle = f"{_digits(value['median'], most)}{unit}"
    if value.get("low") is None:
        return middle
    return f"{middle} [{_digits(value['low'], most)}, {_digits(value['high'], most)}]"


def _error(cell: Mapping[str, Any]) -> str:
    error = cell.get("error_rms")
    return "" if error is None else f"{error:.0e}"


def _digits(value: float, most: int = 9) -> str:
    """Three figures, at most so many of them behind the point, and whole numbers in full."""
    behind = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{min(most, max(0, behind))}f}"
