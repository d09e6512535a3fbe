"""A run around its measurements: killed and taken up, cells of bad input, disks that fill up. Nothing is decoded."""

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specla.bench.cases.work import Events, Refuse, Work
from specla.bench.cells import Cell, Plan
from specla.bench.instruments import Instruments
from specla.bench.lines import read_records
from specla.bench.manifest import read_manifest
from specla.bench.obstacles import reflecting_obstacle
from specla.bench.plan import plan
from specla.bench.record import Lossless, Record, Status, latest
from specla.bench.run import Observer, RunResult, exit_status, prepare, run
from specla.bench.store import RunFolder
from specla.errors import MeasurementError, SpeclaError
from specla.report.load import load_runs
from tests.factory import ENV, decode_record

LENGTHS = (1, 2, 3, 4, 5, 6)
Act = Callable[[Cell, int], None]
"""Called before a cell of a length is measured; it may raise."""


@cache
def planned() -> Plan:
    words = ["model=gdn-tiny", "drafter=ngram", "topology=chain", "engine.verify=tree", "threads=1"]
    return plan("bench e2e", [*words, f"topology.length={','.join(map(str, LENGTHS))}"])


class Faked(Work):
    """Cells that are measured at once, `act` willing."""

    def __init__(self, cells: Iterable[Cell], act: Act) -> None:
        self.cells, self.act = list(cells), act

    def units(self, todo: Sequence[Cell]) -> int:
        return len(todo)

    def measure(
        self,
        todo: Sequence[Cell],
        planned: Mapping[str, Record],
        kept: Mapping[str, Record],
        instruments: Instruments,
        events: Events,
    ) -> None:
        for cell in todo:
            self.act(cell, cell.tree.depth)
            events.record(measured(planned[cell.config_hash]))


def measured(record: Record) -> Record:
    alpha = [0.5] * (record.nodes - 1)
    result = decode_record(record.method, alpha=alpha, repeats=5, nodes=record.nodes)
    return replace(
        record, status=Status.PASSED, lossless=Lossless.EXACT, samples=result.samples, counts=result.counts, started="x"
    )


def ready(cell: Cell, length: int) -> None:
    """Nothing is in the way."""


def dying(at: int, error: BaseException) -> Act:
    def act(cell: Cell, length: int) -> None:
        if length == at:
            raise error

    return act


class Ran:
    """Runs in one folder, and what was told."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._patch = root, monkeypatch
        self.lines: list[str] = []

    def __call__(
        self, act: Act = ready, bad: Sequence[int] = (), resume: bool = True, partly: bool = True
    ) -> RunResult:
        """AR and the odd lengths are measured together, then the even ones; `bad` lengths have bad inputs."""

        def works(cells: Iterable[Cell], refuse: Refuse) -> list[Work]:
            good = []
            for cell in cells:
                if cell.tree.depth in bad:
                    refuse(cell, SpeclaError(f"model.path=/w/{cell.tree.depth}: damaged"))
                else:
                    good.append(cell)
            even = [cell for cell in good if cell.tree.depth in (2, 4, 6)]
            halves = [[cell for cell in good if cell not in even], even]
            return [Faked(half, act) for half in halves if half]

        self._patch.setattr("specla.bench.run.prepare_work", works)
        observer = Observer(self.lines.append, lambda units: None, lambda what: None)
        return run(prepare(planned(), partly), self.root / "runs", "e2e", resume, observer)

    @property
    def path(self) -> Path:
        return next((self.root / "runs").iterdir())

    @property
    def records(self) -> tuple[Record, ...]:
        return read_records(self.path / "records.jsonl").records

    def statuses(self) -> dict[int, str]:
        return {record.topology.length or 0: record.status.value for record in latest(self.records)}


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    # Whoever asks git takes longer than all the rest.
    monkeypatch.setattr("specla.bench.run.machine_record", lambda *_: dict(ENV))
    return Ran(tmp_path, monkeypatch)


ALL = dict.fromkeys((0, *LENGTHS), "passed")


def test_large_trees_that_reflect_are_refused_on_a_gpu() -> None:
    """What the drift bound does not hold for: more than 64 nodes, under a mask, with write strengths up to 2."""

    def reason(words: str, device: str = "cuda") -> str:
        common = "drafter=ngram topology=kary model=gdn-tiny"
        cells = plan("bench e2e", f"{common} {words}".split()).cells
        return reflecting_obstacle(next(cell for cell in cells if cell.method.verify != "ar"), device)

    reflects = "model.weights=random model.allow_neg_eigval=true"
    assert "give up to 64, or engine.verify=hybrid" in reason(f"{reflects} topology.nodes=65 engine.verify=tree")
    assert reason(f"{reflects} topology.nodes=65 engine.verify=auto")
    assert not reason(f"{reflects} topology.nodes=64 engine.verify=tree")
    assert not reason(f"{reflects} topology.nodes=65 engine.verify=hybrid")
    assert not reason(f"{reflects} topology.nodes=65 engine.verify=tree", "cpu")
    assert not reason("topology.nodes=65 engine.verify=tree")


def test_a_restart_measures_the_rest_and_says_nothing_twice(ran: Ran) -> None:
    with pytest.raises(KeyboardInterrupt):
        ran(dying(5, KeyboardInterrupt()))
    assert ran.statuses() == {**dict.fromkeys(ALL, "pending"), 0: "passed", 1: "passed", 3: "passed"}
    pending = sum(record.status is Status.PENDING for record in ran.records)
    asked: list[int] = []
    result = ran(lambda cell, length: asked.append(length))
    assert asked == [5, 2, 4, 6] and result.document["status"] == "passed" and ran.statuses() == ALL
    assert sum(record.status is Status.PENDING for record in ran.records) == pending == len(ALL)
    assert "3 of 7 cells were measured earlier with the same code and inputs: kept" in ran.lines
    size = (ran.path / "records.jsonl").stat().st_size
    ran()
    assert (ran.path / "records.jsonl").stat().st_size == size
    ran(resume=False)
    assert sum(record.status is Status.PENDING for record in ran.records) == pending and len(ran.records) == 21
    assert not load_runs([ran.path]).notes


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part=st.floats(0, 1))
def test_a_run_that_was_killed_anywhere_is_taken_up(part: float, ran: Ran) -> None:
    """SIGKILL leaves the beginning of the file, whatever its last line."""
    # What an earlier example left is a whole run.
    whole = (ran().path / "records.jsonl").read_bytes()
    file = ran.path / "records.jsonl"
    file.write_bytes(whole[: round(part * len(whole))])
    assert ran().document["status"] == "passed" and ran.statuses() == ALL
    assert sum(record.status is Status.PENDING for record in ran.records) == len(ALL)
    assert len(ran.records) == 2 * len(ALL) and not load_runs([ran.path]).notes


def test_what_cells_die_of_together_is_theirs_alone(ran: Ran) -> None:
    """The cells before it keep their results, the other work is measured, and the run says 4."""
    result = ran(dying(3, SpeclaError("model.path=/w/nan: the model's logits are not finite")))
    assert ran.statuses() == {**ALL, 3: "failed", 5: "failed"} and exit_status(result.document) == 4
    reasons = {cell["reason"] for cell in result.document["cells"]} - {""}
    assert reasons == {"model.path=/w/nan: the model's logits are not finite"}
    assert sum(line.startswith("failed: ") for line in ran.lines) == 2
    result = ran(dying(3, RuntimeError("no such kernel\nat all")))
    assert {cell["reason"] for cell in result.document["cells"]} == {"", "RuntimeError: no such kernel"}
    assert ran().document["status"] == "passed"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), MeasurementError("no memory")])
def test_a_disk_that_is_full_is_no_cells_fault(error: Exception, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the run, what was finished stays; whatever else is raised while measuring is a cell's."""
    append, full = RunFolder.append, isinstance(error, OSError)

    def filling(folder: RunFolder, record: Record) -> None:
        if full and record.samples and record.topology.length == 3:
            raise error
        append(folder, record)

    monkeypatch.setattr(RunFolder, "append", filling)
    if full:
        with pytest.raises(OSError, match="No space left"):
            ran()
        assert ran.statuses() == {**dict.fromkeys(ALL, "pending"), 0: "passed", 1: "passed"}
    else:
        ran(dying(3, error))
        assert ran.statuses() == {**ALL, 3: "failed", 5: "failed"}


def test_a_cell_of_bad_input_is_a_failed_cell(ran: Ran) -> None:
    result = ran(bad=[2, 5])
    assert ran.statuses() == {**ALL, 2: "failed", 5: "failed"} and exit_status(result.document) == 4
    told = [line for line in ran.lines if line.startswith("failed: ")]
    assert len(told) == 2 and "topology.length=2 " in told[0] and told[0].endswith(": model.path=/w/2: damaged")
    size, lines = (ran.path / "records.jsonl").stat().st_size, len(ran.lines)
    assert exit_status(ran(bad=[2, 5]).document) == 4
    assert (ran.path / "records.jsonl").stat().st_size == size
    assert [line for line in ran.lines[lines:] if line.startswith("failed: ")] == told
    assert ran().document["status"] == "passed"


def test_nothing_is_written_where_no_cell_has_good_input(ran: Ran) -> None:
    """AR needs nothing that is bad here, and nobody asked for it."""
    with pytest.raises(SpeclaError, match=r"^model.path=/w/1: damaged$"):
        ran(bad=LENGTHS)
    with pytest.raises(SpeclaError, match=r"^model.path=/w/0: damaged$"):
        ran(bad=[0, *LENGTHS])
    with pytest.raises(SpeclaError, match=r"^model.path=/w/2: damaged$"):
        ran(bad=[2], partly=False)
    assert list(ran.root.iterdir()) == []


def test_the_plan_is_kept(ran: Ran) -> None:
    ran()
    kept = read_manifest(ran.path / "config.yaml")
    assert kept is not None and [cell.fingerprint for cell in kept.cells] == [r.fingerprint for r in ran.records[:7]]
    assert {cell.overrides for cell in kept.cells} == {cell.overrides for cell in planned().cells}
    config = (ran.path / "config.yaml").read_text()
    assert config.startswith("command: bench e2e\n") and "\nfirst:\n" in config
