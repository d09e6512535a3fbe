"""The JSON document: the fields of design.md, and no figure for a cell that did not pass."""

import json
from typing import Any

import pytest

from specla.bench.record import Bytes, Lossless, Method, Status
from specla.bench.store import json_text
from specla.bench.summary import build_cell, build_cells, build_document, overall_status
from tests.factory import ar_record, bench_run, decode_record, kernel_record, unmeasured

EVERY_CELL = {"fingerprint", "overrides", "method", "batch", "nodes", "status", "ratio"}
DECODE = {
    "lossless",
    "tau",
    "alpha",
    "draft_efficiency",
    "tok_s",
    "mbu",
    "split_us",
    "speedup",
    "synthetic",
    "category",
}
KERNEL = {"error_rms", "accepted", "bytes", "time_us", "floor_us", "x_floor"}


def test_a_decode_cell_has_the_fields_of_the_contract() -> None:
    cell = build_cell(decode_record(categories=("code", "prose"), speedup=1.5))
    assert set(cell) >= EVERY_CELL | DECODE and not set(cell) & KERNEL
    assert cell["status"] == "passed" and cell["lossless"] == "exact"
    assert cell["tau"] == pytest.approx(1 + 0.8 + 0.56 + 0.336, abs=0.01)
    assert cell["alpha"] == pytest.approx([0.8, 0.7, 0.6], abs=0.005)
    assert cell["split_us"] == {"draft": 60.0, "verify": 260.0, "accept": 25.0, "commit": 45.0}
    assert cell["ratio"] == {"ar": cell["speedup"]} and set(cell["ratio"]["ar"]) == {"median", "low", "high", "n"}
    assert cell["category"]["code"]["speedup"]["median"] == pytest.approx(1.5 * 1.12)  # type: ignore[index]
    assert cell["tok_s"] == pytest.approx(2 / (0.01 / (1.5 * 1.12) + 0.01 / (1.5 * 0.9)))
    step = 1e6 * 128 / 60 / (cell["tok_s"] or 1)
    assert cell["mbu"] == pytest.approx(100.0 / step)


def test_a_kernel_cell_has_the_fields_of_the_contract() -> None:
    cell = build_cell(kernel_record(50.0, {"replay": 150.0}, bytes=Bytes(moved_per_step=4096)))
    assert set(cell) >= EVERY_CELL | KERNEL and not set(cell) & (DECODE - {"synthetic"})
    assert cell["ratio"]["replay"] == {"median": 3.0, "low": 3.0, "high": 3.0, "n": 5}
    assert cell["time_us"] == {"median": 50.0, "low": 50.0, "high": 50.0, "n": 5}
    assert cell["x_floor"] == 5.0 and cell["bytes"] == 4096


@pytest.mark.parametrize("status", [Status.FAILED, Status.NOT_APPLICABLE, Status.PENDING])
def test_no_figures_unless_passed(status: Status) -> None:
    cell: Any = build_cell(decode_record(status=status, reason="why", categories=("code",)))
    assert cell["status"] == status.value and cell["reason"] == "why"
    assert cell["ratio"] == {} and cell["speedup"] is None and cell["category"] == {} and cell["alpha"] == []
    assert all(cell[name] is None for name in ("tau", "draft_efficiency", "tok_s", "mbu", "split_us"))
    kernel: Any = build_cell(kernel_record(status=status, reason="why"))
    assert kernel["ratio"] == {} and kernel["time_us"] is None and kernel["x_floor"] is None


def test_ar_has_no_drafts_that_could_be_synthetic() -> None:
    assert build_cell(ar_record(synthetic=True))["synthetic"] is False
    assert build_cell(decode_record(synthetic=True))["synthetic"] is True
    operation = kernel_record(method=Method("ar"), synthetic=True)
    assert build_cell(operation)["synthetic"] is True


def test_ar_is_its_own_baseline() -> None:
    assert build_cell(ar_record())["speedup"] == {"median": 1.0, "low": 1.0, "high": 1.0, "n": 5}
    untimed = ar_record()
    alone = ar_record(samples=tuple(type(s)(**{**vars(s), "ar_seconds": None}) for s in untimed.samples))
    assert build_cell(alone)["speedup"] == {"median": 1.0, "low": 1.0, "high": 1.0, "n": 5}
    assert build_cell(alone)["tau"] == 1.0


def test_foreign_baselines_pair_under_the_same_conditions() -> None:
    foreign = decode_record(Method("ar", engine="fla-generate"), 0.5, (), nodes=1)
    ours = decode_record(speedup=1.5)
    elsewhere = decode_record(speedup=1.5, batch=8)
    cells = build_cells([foreign, ours, elsewhere])
    assert cells[0]["speedup"] == pytest.approx({"median": 0.5, "low": 0.5, "high": 0.5, "n": 5})
    assert cells[1]["ratio"]["fla-generate"]["median"] == pytest.approx(3.0)
    assert set(cells[0]["ratio"]) == {"ar"} and set(cells[2]["ratio"]) == {"ar"}


def status_of(*statuses: Status) -> str:
    records = []
    for place, status in enumerate(statuses):
        changes = {} if status is Status.PASSED else unmeasured(decode_record(), status, "why")
        records.append(decode_record(overrides=(str(place),), fingerprint=str(place), **changes))
    return overall_status(records)


def test_overall_status() -> None:
    passed, failed, pending = Status.PASSED, Status.FAILED, Status.PENDING
    assert status_of(passed, Status.NOT_APPLICABLE) == "passed"
    assert status_of(passed, failed, pending) == "failed"
    assert status_of(passed, pending, Status.INCONCLUSIVE) == "partial"
    assert status_of(passed, Status.INCONCLUSIVE) == "inconclusive"
    assert status_of() == status_of(Status.NOT_APPLICABLE) == "inconclusive"


def test_document_is_json() -> None:
    records = [*bench_run(), kernel_record(error_rms=float("nan")), decode_record(lossless=Lossless.NEAR_TIE)]
    document = build_document(records, "bench e2e", "e2e-0123", "NVIDIA H200")
    assert document["schema"] == 1 and document["status"] == "passed" and len(document["cells"]) == len(records)
    again = json.loads(json_text(document))
    assert set(again) == {"schema", "command", "status", "run", "device", "cells"}
    assert build_document(records, "compare", "", "", "regression")["status"] == "regression"
