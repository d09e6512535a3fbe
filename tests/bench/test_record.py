"""Records: what comes back, what is refused, and that performance is for cells that passed."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def unsigned(record: Record) -> dict[str, Any]:
    """A line's data as earlier versions wrote it, without a checksum."""
    data: dict[str, Any] = json.loads(to_json(record))
    del data["sha256"]
    return data


def with_counts(**changes: Any) -> dict[str, Any]:
    data = unsigned(decode_record(categories=("code", "prose")))
    data["counts"].update(changes)
    return data


def with_sample(**changes: Any) -> dict[str, Any]:
    data = unsigned(decode_record())
    data["samples"][1].update(changes)
    return data


def with_rank(offered: Any, right: Any) -> dict[str, Any]:
    data = unsigned(decode_record())
    data["counts"].update(offered=offered, right=right)
    return data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (with_counts(accepted=700), "record.counts: accepted 700, and 339 by category"),
        (with_counts(accepted=700, by_category={}), "record.counts: accepted 700 of 600 drafted"),
        (with_counts(steps=-200), r"counts.steps: expected a number from 0 on and below 1e15, found -200"),
        (with_counts(steps=199, by_category={}), "emitted 539 tokens in 199 steps"),
        (with_counts(emitted=540, by_category={}), "emitted 540 tokens in 200 steps that accepted 339"),
        (with_counts(emitted=199, by_category={}), "emitted 199 tokens in 200 steps"),
        (with_counts(reached=[200, 160], by_category={}), "of different lengths"),
        (with_counts(reached=[200, 160, 113], by_category={}), "depth 3: 67 accepted of 113 .*, of 112 that could"),
        (with_counts(reached=[159, 160, 112], by_category={}), "depth 1: 160 accepted of 159"),
        (with_counts(accepted_at=[160, 112, 66], by_category={}), "accepted 339, and 338 by depth"),
        (with_counts(accepted_at=[160, 112, -1]), r"accepted_at\[2\]: expected a number from 0 on"),
        (with_rank([[200, 9]], [[9, 10]]), "depth 1: more drafts were right than were asked for"),
        (with_rank([[200, 9]], [[9]]), "of different lengths"),
        (with_sample(tokens=59), r"samples\[1\]: 59 tokens in 60 steps of 4 nodes and batch 1: 60 to 240 can be"),
        (with_sample(tokens=241), r"samples\[1\]: 241 tokens in 60 steps"),
        (with_sample(repeat=-1), r"samples\[1\].repeat: expected a number from 0 on"),
        (with_sample(item=-1), r"samples\[1\].item: expected a number from 0 on"),
        (with_sample(repeat=0, seconds=0.5), "a repeat has the same prompts twice"),
        (with_sample(ar_seconds=0), r"samples\[1\].ar_seconds: expected a number above 0"),
        ({**unsigned(decode_record()), "near_ties": 1001}, "1001 near ties in 1000 positions"),
        ({**unsigned(decode_record()), "batch": 0}, "record.batch: expected a number above 0"),
        ({**unsigned(decode_record()), "nodes": -4}, "record.nodes: expected a number above 0"),
        ({**unsigned(decode_record()), "bytes": {"state": -1}}, "record.bytes.state: expected a number from 0 on"),
        ({**unsigned(ar_record()), "samples": unsigned(ar_record())["samples"][:1] * 2}, "one is there twice"),
    ],
)
def test_what_cannot_be_is_damage_without_a_checksum_too(data: dict[str, Any], says: str) -> None:
    with pytest.raises(SpeclaError, match=says) as caught:
        from_json(json.dumps(data), "records.jsonl:7")
    assert str(caught.value).startswith("records.jsonl:7: record")


def test_ar_is_timed_beside_several_blocks_of_methods() -> None:
    """Only AR's record holds the same repeat of the same prompts more than once."""
    ar, method = ar_record(noise=0.1), decode_record(noise=0.1)
    again = ar_record(noise=0.1, seed=1).samples
    assert len(replace(ar, samples=(*ar.samples, *again)).samples) == 10
    with pytest.raises(SpeclaError, match="the same prompts twice"):
        replace(method, samples=(*method.samples, *again))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["samples"][0].update(seconds=data["samples"][0]["seconds"] * 0.9),
        lambda data: data["samples"].pop(),
        lambda data: data.update(reason="none"),
        lambda data: data.update(sha256="0" * 16),
        lambda data: data.update(sha256=1),
        lambda data: data["sampling"].update(temperature=math.inf),
    ],
)
def test_a_changed_line_is_noticed(change: Any) -> None:
    data = json.loads(to_json(decode_record()))
    change(data)
    with pytest.raises(SpeclaError, match=r"^records.jsonl:7: damaged record, changed since it was written"):
        from_json(json.dumps(data), "records.jsonl:7")


def test_a_line_of_an_earlier_version_has_no_checksum() -> None:
    record = decode_record()
    assert from_json(json.dumps(unsigned(record)), "x:1") == record
    assert to_json(record).endswith('"}') and '"sha256":"' in to_json(record)[-30:]


LINE = to_json(decode_record(repeats=1)).encode()


@settings(deadline=None)
@given(st.integers(0, len(LINE) - 1), st.integers(1, 255))
def test_no_byte_of_a_line_can_change_what_it_says(at: int, by: int) -> None:
    damaged = LINE[:at] + bytes([LINE[at] ^ by]) + LINE[at + 1 :]
    said, found = "", None
    try:
        found = from_json(damaged.decode("utf-8", errors="replace"), "x:1")
    except SpeclaError as error:
        said = str(error)
    assert (said.startswith("x:1: ") and "\n" not in said) or found == from_json(LINE.decode(), "x:1")


def test_a_very_deep_line_is_damage() -> None:
    for text in ("[" * 100_000, '{"schema":1,"reason":' + "[" * 900 + "]" * 900 + "}"):
        with pytest.raises(SpeclaError, match=r"^x:1: "):
            from_json(text, "x:1")


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
    data = unsigned(decode_record())
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
