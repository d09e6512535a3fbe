"""A whole run: plan, load, measure what is not measured yet, and leave a run folder behind."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import yaml

from specla.bench.cases import prepare_work
from specla.bench.cases.e2e import EndToEnd
from specla.bench.cases.work import ERRORS, Events, Work, failure, interruptible
from specla.bench.cells import Cell, Plan, asked
from specla.bench.clock import clock_for
from specla.bench.estimate import does_not_fit, smaller
from specla.bench.fla_model import obstacle
from specla.bench.instruments import Instruments
from specla.bench.machine import code_digest, device_name, machine_record
from specla.bench.manifest import PlannedCell
from specla.bench.obstacles import reflecting_obstacle
from specla.bench.planned import planned_record
from specla.bench.profiler import Profiling
from specla.bench.record import Record, Status
from specla.bench.session import Session
from specla.bench.settings import to_plain
from specla.bench.store import RunFolder
from specla.bench.subject import require_device, resolve_device, resolve_dtype
from specla.bench.summary import Document, build_document
from specla.bench.trained import known_models
from specla.errors import SMALLER, MeasurementError, told
from specla.interrupt import check, unbroken


@dataclass(frozen=True)
class Observer:
    """Whoever watches a run.

    Attributes:
        log: called with every line worth keeping; it goes to log.txt too.
        total: called once with the units of work to come.
        tick: called after every unit, with what is being done.
    """

    log: Callable[[str], None]
    total: Callable[[int], None]
    tick: Callable[[str], None]


@dataclass(frozen=True)
class RunResult:
    """How a run ended: its folder and its document."""

    path: Path
    document: Document


@dataclass(frozen=True)
class Prepared:
    """A plan whose inputs were found good: nothing is written before this exists.

    Attributes:
        plan: what to measure.
        works: its pending cells, in groups that are measured together.
        planned: by config_hash, every cell's record before it is measured.
        fingerprint: of the run: config, weights, data and device, but not the code.
    """

    plan: Plan
    works: list[Work]
    planned: dict[str, Record]
    fingerprint: str

    @property
    def notes(self) -> list[str]:
        """What to tell of the plan and of what it reads, each once."""
        return list(dict.fromkeys((*self.plan.notes, *(note for work in self.works for note in work.notes))))


def prepare(plan: Plan, partly: bool = False) -> Prepared:
    """Load every model and workload of a plan.

    Args:
        plan: what to measure.
        partly: whether cells whose inputs are bad fail by themselves, as long as others are left to be measured; else
            the first of them ends it.

    Raises:
        SpeclaError: a checkpoint, tokenizer or prompt file is missing, damaged or does not fit, or there is no such
            device.
    """
    pending = [cell for cell in plan.cells if cell.status == "pending"]
    for cell in pending:
        require_device(device_of(cell))
    # Looked at once, so that AR is not refused where what is compared with it was let in.
    free = {device: clock_for(device).free_bytes for device in dict.fromkeys(map(device_of, pending))}
    refused = {cell.config_hash: verdict for cell in pending if (verdict := _refused(cell, free[device_of(cell)]))}
    bad: dict[str, Exception] = {}

    def refuse(cell: Cell, error: Exception) -> None:
        if not partly:
            raise error
        bad[cell.config_hash] = error

    works = prepare_work((cell for cell in plan.cells if cell.config_hash not in refused), refuse)
    _refuse_all(plan, bad, refused)
    data = {cell.config_hash: work.digest_of(cell) for work in works for cell in work.cells}
    code, planned, digests = code_digest(), {}, []
    models = known_models(plan)
    for cell in plan.cells:
        device = device_of(cell)
        dtype = dtype_of(cell)
        inputs = (data.get(cell.config_hash, ""), device_name(device), dtype)
        fingerprint = _sha256(cell.config_hash, code, *inputs, torch.__version__)
        planned[cell.config_hash] = planned_record(cell, fingerprint, device, dtype, models[cell.config_hash])
        if cell.config_hash in refused:
            status, reason = refused[cell.config_hash]
            planned[cell.config_hash] = replace(planned[cell.config_hash], status=status, reason=reason)
        if cell.config_hash in bad:
            planned[cell.config_hash] = failure(planned[cell.config_hash], bad[cell.config_hash])
        digests.append(_sha256(*inputs))
    return Prepared(plan, works, planned, _sha256(plan.config_hash, *digests))


def _refuse_all(plan: Plan, bad: Mapping[str, Exception], refused: Collection[str]) -> None:
    """Raise the first error where no cell that was asked for is left."""
    left = [cell for cell in plan.cells if cell.status == "pending" and cell.config_hash not in refused]
    if bad and all(cell.config_hash in bad for cell in asked(left)):
        raise next(iter(bad.values()))


def device_of(cell: Cell) -> str:
    """What a cell is measured on: `cpu`, `cuda` or `cuda:N`."""
    return resolve_device(cell.settings.device, cell.command)


def dtype_of(cell: Cell) -> str:
    """The name of the dtype that a cell's model has."""
    return str(resolve_dtype(cell.settings.dtype, device_of(cell))).removeprefix("torch.")


def main_device(plan: Plan) -> str:
    """The device that a run is named after: a GPU, where decodes run on the CPU and operations on both."""
    return max(map(device_of, plan.cells), key=lambda name: name.startswith("cuda"))


def _refused(cell: Cell, free_bytes: int) -> tuple[Status, str] | None:
    """What becomes of a cell that cannot run on its device, or would take the machine down; None for all others."""
    device = device_of(cell)
    if reason := obstacle(cell.method.engine, device) or reflecting_obstacle(cell, device):
        return Status.NOT_APPLICABLE, reason
    reason = does_not_fit(cell, device, dtype_of(cell), free_bytes)
    return (Status.FAILED, reason) if reason else None


def _with_advice(one: Record, plan: Plan) -> Record:
    """A record that failed for want of memory says what would have had enough: at most half, whatever is free now."""
    if one.status is not Status.FAILED or SMALLER not in one.reason:
        return one
    cell = next(cell for cell in plan.cells if cell.overrides == one.overrides and cell.command == one.command)
    device, batch = device_of(cell), cell.settings.workload.batch
    advice = smaller(cell, device, dtype_of(cell), clock_for(device).free_bytes, below=batch // 2 + 1)
    return replace(one, reason=one.reason.replace(SMALLER, advice))


def run(prepared: Prepared, out: Path, slug: str, resume: bool, observer: Observer) -> RunResult:
    """Measure every cell that the run folder does not hold yet, one group after another.

    An interrupt (KeyboardInterrupt) passes through after summary.json was written; finished cells stay.

    Args:
        prepared: from `prepare`.
        out: the folder of runs.
        slug: the start of the run folder's name.
        resume: take cells that were finished earlier from the folder, where code and inputs are the same.
        observer: who watches.
    """
    plan, all_threads = prepared.plan, torch.get_num_threads()
    device = main_device(plan)
    env = machine_record(device, plan.cells[0].settings.threads)
    config = yaml.safe_dump(_config(plan), sort_keys=False, default_flow_style=None, width=120)
    cells = [PlannedCell.of(record) for record in prepared.planned.values()]
    with RunFolder.open(out, slug, prepared.fingerprint, config, env, cells) as folder:
        session = Session(folder, observer.log, partial(_with_advice, plan=plan))
        kept = folder.finished if resume else {}
        folder.log(f"started: {plan.command} {' '.join(plan.words)}".rstrip())
        for note in (*folder.notes, *prepared.notes):
            session.log(note)
        session.plan(prepared.planned.values())
        todo = [
            [cell for cell in work.cells if prepared.planned[cell.config_hash].fingerprint not in kept]
            for work in prepared.works
        ]
        if count := sum(1 for record in prepared.planned.values() if record.fingerprint in kept):
            session.log(f"{count} of {len(plan.cells)} cells were measured earlier with the same code and inputs: kept")
        observer.total(sum(work.units(cells) for work, cells in zip(prepared.works, todo, strict=True)))
        events = interruptible(Events(session.record, observer.tick, session.log))
        try:
            names = dict.fromkeys(map(device_of, plan.cells))
            instruments = {name: Instruments(name, session.log) for name in names}
            for work, pending in zip(prepared.works, todo, strict=True):
                if pending:
                    own = instruments[device_of(work.cells[0])]
                    torch.set_num_threads(work.cells[0].settings.threads or all_threads)
                    with session.failing(pending, prepared.planned, events):
                        work.measure(pending, prepared.planned, kept, own, events)
                    folder.write_dispatch([row for one in instruments.values() for row in one.dispatch])
            _profile([one for own in instruments.values() for one in own.to_profile], folder, session.log)
        except KeyboardInterrupt:
            _tell_finished(folder, prepared, session.log)
            raise
        finally:
            torch.set_num_threads(all_threads)
            result = _conclude(folder, plan, device)
        return RunResult(folder.path, result)


@unbroken()
def _tell_finished(folder: RunFolder, prepared: Prepared, log: Callable[[str], None]) -> None:
    """Where an interrupted run's results are, and how many."""
    finished = folder.finished
    count = sum(1 for record in prepared.planned.values() if record.fingerprint in finished)
    log(f"{folder.path}: {count} of {len(prepared.planned)} cells finished")


# Whoever asks twice that a run should end still gets its summary.
@unbroken()
def _conclude(folder: RunFolder, plan: Plan, device: str) -> Document:
    """Write the summary of what was measured."""
    result = build_document(folder.records, plan.command, folder.path.name, device_name(device))
    folder.write_summary(result)
    folder.log(f"ended: {result['status']}")
    return result


def _profile(cells: Sequence[Profiling], folder: RunFolder, log: Callable[[str], None]) -> None:
    """Look at the kernels of cells, now that no window is left to be disturbed; what cannot be profiled is told."""
    failed: dict[str, list[str]] = {}
    if cells:
        log(f"profiling the kernels of {len(cells)} cell{'s' * (len(cells) > 1)}")
    for cell in cells:
        check()
        try:
            found = cell.take()
        except ERRORS as error:
            failed.setdefault(told(error), []).append(cell.label)
        else:
            folder.write_profile(found)
    for reason, labels in failed.items():
        log(f"no profile of {', '.join(labels)}: {reason}")


def choose_trees(prepared: Prepared, observer: Observer) -> list[Record]:
    """The planned records of the cells of topology=auto with their trees chosen; nothing else is measured or kept.

    Raises:
        MeasurementError: a calibration failed.
    """
    chosen: list[Record] = []

    def failed(record: Record) -> None:
        raise MeasurementError(f"{' '.join(record.overrides)}: {record.reason}")

    works = [work for work in prepared.works if isinstance(work, EndToEnd)]
    todo = [[cell for cell in work.cells if cell.is_open] for work in works]
    observer.total(sum(work.ticks(cells) for work, cells in zip(works, todo, strict=True)))
    for work, cells in zip(works, todo, strict=True):
        if cells:
            torch.set_num_threads(cells[0].settings.threads or torch.get_num_threads())
            instruments = Instruments(device_of(cells[0]), observer.log)
            settled, records = work.settle(cells, prepared.planned, instruments, Events(failed, observer.tick, _silent))
            chosen += [records[cell.config_hash] for cell in settled]
    return chosen


def _silent(line: str) -> None:
    """What is said better elsewhere."""


def _config(plan: Plan) -> dict[str, object]:
    """What config.yaml keeps besides the cells: what was typed, and the first cell's settings in full."""
    return {"command": plan.command, "typed": list(plan.words), "first": to_plain(plan.cells[0].settings)}


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


def exit_status(document: Document) -> int:
    """The exit code of a measuring command: 0 ok, 3 inconclusive or partial, 4 a measurement or a gate failed."""
    return {"passed": 0, "inconclusive": 3, "partial": 3, "failed": 4, "regression": 1}[document["status"]]
