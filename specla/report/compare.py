"""Two runs, or two reports, cell by cell: what became slower or faster, what vanished, what fails now.

Cells are matched by what was asked, whatever the code was. An exit code goes with every answer: a regression is a cell
that is slower, fails now, or has an exact figure that got worse.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specla.bench.model_labels import identity_of, model_labels
from specla.bench.record import Record, Status
from specla.bench.sidebyside import SIDE_BY_SIDE
from specla.bench.summary import DocumentStatus
from specla.errors import SpeclaError
from specla.report.change import CellChange, Rule, Way, compare_cell, has_figure
from specla.report.load import Run, latest_of_runs, read_runs
from specla.report.verdict import LEAST_APART, LEAST_IN_TURNS, Verdict

Key = tuple[object, ...]
_ENVIRONMENT = ("versions", "torch_threads", "triton_interpret")
"""Of env.json: what may move every figure without a line of code having changed."""


@dataclass(frozen=True)
class Half:
    """BASE or NEW, as read."""

    role: str
    path: Path
    runs: tuple[Run, ...]
    records: Mapping[Key, Record]

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.path.resolve().name

    @property
    def devices(self) -> set[str]:
        """The chips it was measured on."""
        return {record.device for record in self.records.values()}

    @property
    def session(self) -> Mapping[str, Any] | None:
        """Of a run that was measured in turns with another: which session, and how many passes make a round."""
        found = self.runs[0].env.get(SIDE_BY_SIDE) if len(self.runs) == 1 else None
        return found if isinstance(found, dict) and isinstance(found.get("passes"), int) else None


@dataclass(frozen=True)
class Listed:
    """A cell that is only listed."""

    record: Record
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """Everything that was found.

    Attributes:
        base, new: names of the runs.
        device: NEW's.
        rule: what the cells were judged by.
        cells: measured in both.
        broken: passed in BASE, fail in NEW.
        mended: the other way round.
        vanished: measured in BASE, neither measured nor failed in NEW.
        added: measured in NEW alone.
        missing: measured on one side, planned and not measured on the other.
        damage: what is missing, damaged or foreign in the records, a line each.
        notes: those, and what else a reader should know.
        partial: whether a run is half finished.
    """

    base: str
    new: str
    device: str
    rule: Rule
    cells: tuple[CellChange, ...]
    broken: tuple[Listed, ...]
    mended: tuple[Listed, ...]
    vanished: tuple[Listed, ...]
    added: tuple[Listed, ...]
    missing: tuple[Listed, ...]
    damage: tuple[str, ...]
    notes: tuple[str, ...]
    partial: bool

    @property
    def status(self) -> DocumentStatus:
        """A regression first, then what is inconclusive, unfinished, or measured no longer."""
        worse = any(difference.worse for cell in self.cells for difference in cell.exact)
        if self.broken or worse or self.count(Verdict.SLOWER):
            return "regression"
        if self.partial or self.missing or self.vanished or self.count(Verdict.INCONCLUSIVE):
            return "inconclusive"
        return "passed"

    def count(self, verdict: Verdict) -> int:
        """How many cells have a verdict."""
        return sum(cell.verdict is verdict for cell in self.cells)


def compare_runs(
    base: Path, new: Path, *, least: float | None = None, across_devices: bool = False, absolute: bool = False
) -> Comparison:
    """Compare two run folders or report folders.

    Args:
        base: what was.
        new: what is.
        least: the least relative change that counts; None takes what goes with how the runs were measured.
        across_devices: compare runs of different devices, by their speedups.
        absolute: judge runs made apart by the time itself.

    Raises:
        SpeclaError: a run is damaged, of another schema or empty, the devices differ, or no cell is in both.
    """
    read = {"BASE": (base, read_runs([base])), "NEW": (new, read_runs([new]))}
    by_model = any(_several_models(latest_of_runs(runs)) for _, runs in read.values())
    before, after = (_half(role, *found, across_devices, by_model) for role, found in read.items())
    if not across_devices and not before.devices & after.devices:
        raise SpeclaError(
            f"BASE was measured on {_names(before.devices)}, NEW on {_names(after.devices)}: times on different "
            "devices have nothing to say to each other; --across-devices compares speedups all the same"
        )
    way = _way(before, after, across_devices, absolute)
    rule = Rule(way, least or (LEAST_IN_TURNS if way is Way.IN_TURNS else LEAST_APART))
    if way is Way.IN_TURNS:
        assert after.session is not None
        rule = replace(rule, passes=max(1, after.session["passes"]))
    pairs = [(before.records[key], record) for key, record in after.records.items() if key in before.records]
    judged = [(one, other) for one, other in pairs if has_figure(one, other, way)]
    rule = replace(rule, cells=len(judged))
    found = _sorted_out(before, after)
    halves = ((half, run) for half in (before, after) for run in half.runs)
    damage = tuple(f"{half.role} {run.name}: {note}" for half, run in halves for note in run.notes)
    if not judged and not found["broken"]:
        models = "".join(f"; {told}" for told in _other_models(before, after))
        raise SpeclaError(f"{base} and {new}: no cell was measured in both; {_told(before)}, {_told(after)}{models}")
    return Comparison(
        base=before.name,
        new=after.name,
        device=_names(after.devices),
        rule=rule,
        cells=tuple(compare_cell(one, other, rule) for one, other in judged),
        **found,
        damage=damage,
        notes=(*damage, *(list(_model_notes(pairs)) or _other_models(before, after)), *_notes(before, after)),
        partial=any(run.notes for half in (before, after) for run in half.runs),
    )


def _several_models(records: Iterable[Record]) -> bool:
    """Whether the same words stand for several models, whose cells only their weights tell apart."""
    models: dict[Key, set[Key]] = {}
    for record in records:
        models.setdefault(record.key, set()).add(identity_of(record))
    return any(len(found) > 1 for found in models.values())


def _half(role: str, path: Path, runs: tuple[Run, ...], across_devices: bool, by_model: bool) -> Half:
    records = latest_of_runs(runs)
    if not any(record.samples or record.status is Status.FAILED for record in records):
        raise SpeclaError(f"{role} {path}: holds no measured cell yet ({len(records)} planned)")
    found: dict[Key, Record] = {}
    for record in records:
        key = replace(record, device="").key if across_devices else record.key
        key = (*key, identity_of(record)) if by_model else key
        if key in found:
            raise SpeclaError(f"{role} {path}: holds cells of several devices; --across-devices takes one on each side")
        found[key] = record
    return Half(role, path, runs, found)


def _way(base: Half, new: Half, across_devices: bool, absolute: bool) -> Way:
    if across_devices and base.devices != new.devices:
        return Way.ACROSS_DEVICES
    if base.session and new.session and base.session == new.session:
        return Way.IN_TURNS
    return Way.ABSOLUTE if absolute else Way.APART


def _sorted_out(base: Half, new: Half) -> dict[str, tuple[Listed, ...]]:
    """The cells of which at least one side has no figure, by what became of them."""
    found: dict[str, list[Listed]] = {name: [] for name in ("broken", "mended", "vanished", "added", "missing")}
    for key in dict.fromkeys((*base.records, *new.records)):
        before, after = base.records.get(key), new.records.get(key)
        had, has = _measured(before), _measured(after)
        if had and has:
            continue
        if had and after is not None and after.status is Status.FAILED:
            found["broken"].append(Listed(after, after.reason))
        elif had and after is not None and after.status is Status.PENDING:
            found["missing"].append(Listed(after, "not measured in NEW"))
        elif had and before is not None:
            found["vanished"].append(Listed(before, after.reason if after is not None else ""))
        elif has and before is not None and before.status is Status.PENDING:
            found["missing"].append(Listed(before, "not measured in BASE"))
        elif has and after is not None:
            failed = before is not None and before.status is Status.FAILED
            found["mended" if failed else "added"].append(Listed(after, before.reason if before and failed else ""))
    return {name: tuple(listed) for name, listed in found.items()}


def _measured(record: Record | None) -> bool:
    return record is not None and bool(record.decoding or record.kernel)


def _model_notes(pairs: Iterable[tuple[Record, Record]]) -> Iterable[str]:
    """Cells that the same words name and that decoded other weights, by models; older records do not tell."""
    changed: Counter[str] = Counter()
    for one, other in pairs:
        if one.model_info and other.model_info and identity_of(one) != identity_of(other):
            before, after = model_labels([one, other])
            changed[f"{before} in BASE, {after} in NEW"] += 1
    for told, count in changed.items():
        yield f"another model under the same words, in {count} cell{'s' * (count != 1)}: {told}"


def _other_models(base: Half, new: Half) -> Iterable[str]:
    """What each run measured, where it is not the same models; by the names of their options where more is not told."""
    records = [[record for record in half.records.values() if _measured(record)] for half in (base, new)]
    every = [*records[0], *records[1]]
    told = all(record.model_info or record.is_kernel for record in every)
    names = model_labels(every) if told else [record.model for record in every]
    before, after = set(names[: len(records[0])]), set(names[len(records[0]) :])
    if before != after and before and after:
        yield f"the models differ: {_names(before)} in BASE, {_names(after)} in NEW"


def _notes(base: Half, new: Half) -> Iterable[str]:
    before, after = (_environment(half.runs) for half in (base, new))
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name, {"unknown"}), after.get(name, {"unknown"})
        if one != other:
            yield f"{name}: {_names(one)} in BASE, {_names(other)} in NEW"
    codes = [{run.env.get("code") for run in half.runs} for half in (base, new)]
    if codes[0] == codes[1] and None not in codes[0]:
        yield "both were measured with the same code"


def _environment(runs: Iterable[Run]) -> dict[str, set[str]]:
    """What env.json says of versions and threads, by name."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for name in _ENVIRONMENT:
            value = run.env.get(name)
            inner = value if isinstance(value, dict) else {name.replace("_", " "): value}
            for key, one in inner.items():
                found.setdefault(str(key), set()).add(str(one))
    return found


def _told(half: Half) -> str:
    count = sum(_measured(record) for record in half.records.values())
    commands = sorted({record.command for record in half.records.values()})
    return f"{half.role} has {count} of {', '.join(commands)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
