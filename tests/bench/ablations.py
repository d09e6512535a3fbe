"""Small ablations run in process, and what they leave behind."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from specla.bench.bandwidth import measure_bandwidth
from specla.bench.lines import read_records
from specla.bench.plan import plan
from specla.bench.record import KernelSample, Record
from specla.bench.run import Observer, prepare, run
from specla.bench.settings import model_config
from specla.bench.summary import Document
from specla.models.config import GatedDeltaNetConfig

QUICK = ("experiment=null", "model=gdn-tiny", "measure=quick", "measure.sample_ms=0.2", "threads=1", "device=cpu")
"""Two layers, value heads grouped by two, five short repeats."""


@dataclass
class Ran:
    """One run: its document, the last record of every cell, and what was logged."""

    document: Document
    records: list[Record]
    path: Path
    lines: list[str] = field(default_factory=list)
    ticks: int = 0
    units: int = 0

    def cell(self, verify: str, recover: str = "", **wanted: object) -> Any:
        """The one cell of these names."""
        found = [
            cell
            for cell in self.document["cells"]
            if cell["method"]["verify"] == verify
            and recover in ("", cell["method"]["recover"])
            and all(cell.get(name) == value for name, value in wanted.items())
        ]
        assert len(found) == 1, f"{len(found)} cells"
        return found[0]

    def samples(self, verify: str, recover: str = "") -> list[KernelSample]:
        """The raw samples of the one record of these names."""
        found = [r for r in self.records if r.method.verify == verify and recover in ("", r.method.recover)]
        assert len(found) == 1
        return [sample for sample in found[0].samples if isinstance(sample, KernelSample)]


def ablate(
    out: Path, command: str, words: str, tick: Callable[[str], None] = lambda line: None, resume: bool = True
) -> Ran:
    """Run a command with QUICK and more words; a tick may raise."""
    found = Ran(document={}, records=[], path=out)  # type: ignore[typeddict-item]

    def count(line: str) -> None:
        found.ticks += 1
        tick(line)

    def total(units: int) -> None:
        found.units = units

    keys = {word.partition("=")[0] for word in words.split()}
    planned = plan(command, [*(word for word in QUICK if word.partition("=")[0] not in keys), *words.split()])
    observer = Observer(found.lines.append, total, count)
    with patch("specla.bench.instruments.measure_bandwidth", _bandwidth):
        result = run(prepare(planned), out, "ablation", resume, observer)
    found.document, found.path = result.document, result.path
    latest = {record.fingerprint: record for record in read_records(result.path / "records.jsonl").records}
    found.records = list(latest.values())
    return found


def tiny() -> GatedDeltaNetConfig:
    """The shape of gdn-tiny."""
    return model_config(plan("ablate verify", QUICK).cells[0].settings.model)


# Measured once a process: it takes longer than all the rest of a small run.
_bandwidth = cache(measure_bandwidth)
