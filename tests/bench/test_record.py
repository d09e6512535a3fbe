"""Records: what comes back, what is refused, and that performance is for cells that passed."""

import json
import math
from typing import Any

import numpy as np
import pytest

from specla.bench.record import Lossless, Method, Record, Status, TopologyInfo, from_json, latest, to_json
from specla.bench.tally import Counts
from specla.errors import SpeclaError
from tests.factory import ar_record, decode_record, kernel_record, unmeasured


@pytest.mark.parametrize(
    "record",
    [
        decode_record(categories=("code", "prose"), alpha_asked=((0.8, 0.1), (0.7, 0.05)), memory={"peak_bytes": 3.0}),
        decode_record(alpha_asked=0.8, topology=TopologyInfo("explicit", nodes=3, parents=(-1, 0, 0))),
        ar_record(),
        kernel_record(error_rms=math.inf),
        decode_record(**unmeasured(decode_record(), Status.NOT_APPLICABLE, "chains only")),
    ],
)
def test_round_trip(record: Record) -> None:
    line = to_json(record)
    assert "\n" not in line
    assert from_json(line, "x:1") == record
    assert to_json(from_json(line, "x:1")) == line


def test_numpy_numbers_are_written_as_plain_ones() -> None:
    record = decode_record(near_ties=np.int64(3), seconds=np.float32(0.5))
    assert from_json(to_json(record), "x:1").near_ties == 3


def test_flat_line_keeps_the_contracts_names() -> None:
    data = json.loads(to_json(decode_record(categories=("code",))))
    assert data["schema"] == 1 and data["method"]["verify"] == "tree" and data["status"] == "passed"
    assert {"repeat", "item", "seconds", "tokens", "steps", "ar_seconds", "split_us"} <= set(data["samples"][0])
    assert set(data["counts"]) == {*vars(Counts(0, 0, 0, 0))}
    assert set(data["counts"]["by_category"]["code"]) == set(data["counts"]) - {"by_category"}


def damaged(change: Any) -> str:
    data = json.loads(to_json(decode_record()))
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ("{}", "schema None"),
        (damaged(lambda d: d.update(schema=2)), "schema 2; this version reads 1"),
        (damaged(lambda d: d.update(wheels=4)), "unknown field 'wheels'"),
        (damaged(lambda d: d.pop("batch")), "'batch' is missing"),
        (damaged(lambda d: d.update(status="done")), "status: expected one of passed, failed"),
        (damaged(lambda d: d["samples"][1].update(seconds="fast")), r"samples\[1\].seconds: expected a number"),
        (damaged(lambda d: d["samples"][1].update(tokens=1.5)), r"samples\[1\].tokens: expected a whole number"),
        (damaged(lambda d: d["method"].update(verify=None)), "method.verify: expected text"),
        (damaged(lambda d: d.update(counts=None)), "needs counts"),
    ],
)
def test_a_damaged_line_names_file_line_and_field(line: str, says: str) -> None:
    with pytest.raises(SpeclaError, match=says) as caught:
        from_json(line, "runs/a/records.jsonl:7")
    assert str(caught.value).startswith("runs/a/records.jsonl:7: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 1e308, 10**9, 10**400, math.nan, math.inf, "nan"], ids=str)
@pytest.mark.parametrize("name", ["seconds", "ar_seconds", "time_us", "baseline_us", "tokens", "ar_tokens", "steps"])
def test_a_sample_that_cannot_be_is_damage(name: str, value: Any) -> None:
    data = json.loads(to_json(kernel_record() if name.endswith("_us") else decode_record()))
    data["samples"][2][name] = {"sequential_replay": value} if name == "baseline_us" else value
    field = f"{name}.sequential_replay" if name == "baseline_us" else name
    with pytest.raises(SpeclaError, match=rf"records.jsonl:7: record.samples\[2\].{field}: expected a") as caught:
        from_json(json.dumps(data), "records.jsonl:7")
    shown = repr(value)
    assert str(caught.value).endswith(f"found {shown if len(shown) <= 40 else shown[:37] + '...'}")


def test_a_part_of_a_step_may_take_no_time_but_no_less() -> None:
    data = json.loads(to_json(decode_record()))
    del data["sha256"]
    data["samples"][0]["split_us"]["draft"] = 0
    assert from_json(json.dumps(data), "x:1").samples
    data["samples"][0]["split_us"]["draft"] = -1
    with pytest.raises(SpeclaError, match=r"split_us\.draft: expected a number from 0 on"):
        from_json(json.dumps(data), "x:1")


@pytest.mark.parametrize("status", [Status.FAILED, Status.NOT_APPLICABLE, Status.PENDING])
def test_no_performance_unless_passed(status: Status) -> None:
    record = decode_record(status=status, reason="out of memory")
    assert record.samples and record.decoding is None
    kernel = kernel_record(status=status, reason="wrong result")
    assert kernel.samples and kernel.kernel is None


def test_no_performance_where_the_gate_failed() -> None:
    with pytest.raises(SpeclaError, match="contradicts"):
        decode_record(lossless=Lossless.FAILED)
    assert decode_record(lossless=Lossless.FAILED, status=Status.INCONCLUSIVE).decoding is None
    with pytest.raises(SpeclaError, match="losslessness"):
        decode_record(lossless=None)


@pytest.mark.parametrize(
    "changes",
    [{"samples": ()}, {"status": Status.FAILED}, {"status": Status.NOT_APPLICABLE, "reason": ""}, {"schema": 3}],
)
def test_contradictions_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpeclaError):
        decode_record(**changes)


def test_decode_and_kernel_samples_do_not_mix() -> None:
    with pytest.raises(SpeclaError, match="mixed"):
        decode_record(samples=(*decode_record().samples, *kernel_record().samples))


def test_latest_keeps_one_record_a_cell() -> None:
    pending = decode_record(fingerprint="a", **unmeasured(decode_record(), Status.PENDING))
    old, new = decode_record(fingerprint="a"), decode_record(fingerprint="b", speedup=2.0)
    other = decode_record(Method("hybrid", "factors"), fingerprint="c")
    assert [r.fingerprint for r in latest([pending, old, other, new])] == ["b", "c"]
    assert [r.status for r in latest([pending])] == [Status.PENDING]
    elsewhere = decode_record(fingerprint="c", workload="x", **unmeasured(old, Status.PENDING))
    assert [r.status for r in latest([elsewhere, other])] == [Status.PASSED]


def test_pending_hides_no_result_of_the_same_code() -> None:
    done, slow = decode_record(fingerprint="a"), decode_record(fingerprint="a", speedup=1.2)
    failed = decode_record(fingerprint="a", **unmeasured(done, Status.FAILED, "out of memory"))
    pending, edited = (decode_record(fingerprint=name, **unmeasured(done, Status.PENDING)) for name in "ab")
    assert latest([done, pending]) == [done] and latest([failed, pending]) == [failed]
    assert latest([done, pending, slow]) == [slow]
    # What other code gave is no result of this one, but it is one again where that code is taken up again.
    assert latest([done, edited]) == [edited]
    assert latest([done, edited, pending]) == [done]


def test_kernel_or_decode() -> None:
    assert kernel_record().is_kernel and not decode_record().is_kernel
    assert kernel_record(samples=(), status=Status.FAILED, reason="x").is_kernel
