"""Two sides in turns: who goes when, what the books keep, and one real process."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specla.bench import sidebyside
from specla.bench.lines import read_records
from specla.bench.record import KernelSample, Lossless, Method, Record, Sample, Status, to_json
from specla.bench.side import Side, start_side
from specla.bench.sidebyside import SIDE_BY_SIDE, Watch, measure_side_by_side
from specla.bench.tally import Counts
from specla.errors import MeasurementError, SpeclaError
from tests.factory import ENV, ar_record, decode_record, unmeasured

ROOT = Path(__file__).parents[2]
SPLIT = {"draft": 1.0, "verify": 2.0, "accept": 3.0, "commit": 4.0}
Asked = list[tuple[str, str, int]]
"""(side, verification, item) of every turn, in order."""


def planned() -> list[Record]:
    """AR and three cells, of which two verify alike and two commit alike."""
    methods = [Method("tree", "factors"), Method("tree", "replay_cached"), Method("chain", "factors")]
    cells = [ar_record(), *(decode_record(method, overrides=(str(i),)) for i, method in enumerate(methods))]
    return [replace(cell, **unmeasured(cell, Status.PENDING)) for cell in cells]


def fake(asked: Asked, name: str, records: list[Record], failing: str = "", departing: str = "") -> Side:
    """A side that decodes nothing and answers at once."""
    items = [{"prompts": ["code-0"], "category": "code"}, {"prompts": ["prose-0"], "category": "prose"}]
    cells = [{"record": to_json(r), "label": r.method.verify, "ar": 0, "items": items} for r in records]

    def ask(message: Mapping[str, Any]) -> dict[str, Any]:
        if "gate" in message:
            record = records[message["gate"]]
            if record.method.verify == failing:
                return {"record": to_json(replace(record, status=Status.FAILED, reason="not lossless"))}
            gated = replace(record, lossless=Lossless.EXACT, counts=Counts(10, 20, 40, 10))
            return {"record": to_json(gated)}
        cell, item = message["time"]
        asked.append((name, records[cell].method.verify, item))
        departed = "a window left the text" if records[cell].method.verify == departing else ""
        times = {"seconds": 0.5, "tokens": 10, "steps": 10, "verify_us": 7.0, "commit_us": 8.0}
        return {**times, "split_us": SPLIT, "departed": departed}

    return Side(name, {"cells": cells, "note": "", "env": dict(ENV), "config": "seed: 0\n"}, ask)


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    """Replace the processes; what they are asked is kept."""

    def replaced(base: list[Record], new: list[Record], **faults: str) -> Asked:
        """`failing` and `departing` name a verification of the new side."""
        asked: Asked = []

        @contextmanager
        def start(name: str, *_: Any) -> Iterator[Callable[[], Side]]:
            yield lambda: fake(asked, name, base) if name == "base" else fake(asked, name, new, **faults)

        monkeypatch.setattr(sidebyside, "start_side", start)
        return asked

    return replaced


def measure(folder: Path, rounds: int = 2, passes: int = 3) -> tuple[list[Record], list[Record], list[str]]:
    lines: list[str] = []
    paths = measure_side_by_side(
        folder, folder, folder / "out", Watch(lines.append, lambda _: None, lambda _: None), rounds, passes
    )
    base, new = ([*read_records(path / "records.jsonl").records] for path in paths)
    return base, new, lines


def test_partners_follow_each_other_and_take_turns_in_front(tmp_path: Path, sides: Callable[..., Asked]) -> None:
    asked = sides(planned(), planned())
    measure(tmp_path, rounds=1, passes=4)
    pairs = list(zip(asked[::2], asked[1::2], strict=True))
    assert all({a[0], b[0]} == {"base", "new"} and a[1:] == b[1:] for a, b in pairs)
    first = [a[0] for a, _ in pairs]
    assert first.count("base") == first.count("new") == 4 * 4 * 2 / 2
    # A cell's windows, too, are led by either side as often.
    assert [a[0] for a, _ in pairs if a[1:] == ("chain", 1)].count("base") == 2
    assert {pairs[i * 8][0][1] for i in range(4)} == {"ar", "tree", "chain"}


def test_what_is_kept(tmp_path: Path, sides: Callable[..., Asked]) -> None:
    asked = sides(planned(), planned())
    base, new, _ = measure(tmp_path)
    assert [record.key for record in base] == [record.key for record in new]
    # A round is warmed up, but for the first, by one window of every cell, which is not kept.
    assert len(asked) == 2 * (2 * 3 * 4 * 2 + 4)
    decodes = [record for record in base if not record.is_kernel]
    assert [record.method.verify for record in decodes] == ["ar", "tree", "tree", "chain"]
    for record in decodes:
        samples = [sample for sample in record.samples if isinstance(sample, Sample)]
        assert [(s.repeat, s.item) for s in samples] == [(r, i) for r in range(6) for i in range(2)]
        assert samples[0].prompts == ("code-0",) and samples[0].ar_seconds == 0.5
    operations = [(record.group, record.method.verify, record.method.recover) for record in base if record.is_kernel]
    assert operations == [
        ("verify", "ar", "none"),
        ("recover", "ar", "none"),
        ("verify", "tree", "factors"),
        ("recover", "tree", "factors"),
        ("recover", "tree", "replay_cached"),
        ("verify", "chain", "factors"),
    ]
    times = [s.time_us for record in base for s in record.samples if isinstance(s, KernelSample)]
    assert set(times) == {7.0, 8.0} and len(times) == 6 * 12


def test_runs_know_that_they_belong_together(tmp_path: Path, sides: Callable[..., Asked]) -> None:
    sides(planned(), planned())
    measure(tmp_path)
    found = [json.loads(path.read_text())[SIDE_BY_SIDE] for path in sorted((tmp_path / "out").glob("*/env.json"))]
    assert found[0] == found[1] and found[0]["passes"] == 3
    measure(tmp_path)
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_a_cell_that_fails_on_one_side_is_timed_on_the_other(tmp_path: Path, sides: Callable[..., Asked]) -> None:
    asked = sides(planned(), planned(), failing="chain")
    base, new, lines = measure(tmp_path)
    assert {name for name, verify, _ in asked if verify == "chain"} == {"base"}
    failed = [record for record in new if record.status is Status.FAILED]
    assert [record.method.verify for record in failed] == ["chain"] and len(lines) == 1
    assert not [record for record in base if record.status is Status.FAILED]


def test_a_window_that_leaves_the_text_fails_its_cell(tmp_path: Path, sides: Callable[..., Asked]) -> None:
    sides(planned(), planned(), departing="chain")
    _, new, _ = measure(tmp_path)
    failed = [record for record in new if record.status is Status.FAILED]
    assert [(record.method.verify, record.reason) for record in failed] == [("chain", "a window left the text")]


def test_a_cell_of_one_side_alone_is_measured_there(tmp_path: Path, sides: Callable[..., Asked]) -> None:
    sides(planned()[:3], planned())
    base, new, _ = measure(tmp_path)
    assert [r.method.verify for r in base if not r.is_kernel] == ["ar", "tree", "tree"]
    assert [r.method.verify for r in new if not r.is_kernel] == ["ar", "tree", "tree", "chain"]


@pytest.mark.slow
def test_a_real_process_takes_turns(tmp_path: Path) -> None:
    words = [
        "model=gdn-tiny",
        "dtype=float32",
        "threads=1",
        "drafter=oracle",
        "engine.verify=chain",
        "workload.prompts=1",
    ]
    with start_side("new", ROOT, [*words, "workload.max_new_tokens=6"], tmp_path) as ready:
        side = ready()
        assert [record.method.verify for record in side.planned.values()] == ["ar", "chain"]
        gated = json.loads(side.ask({"gate": 1})["record"])
        assert gated["lossless"] == "exact" and gated["counts"]["emitted"] == 5
        taken = side.ask({"time": [1, 0]})
        assert taken["seconds"] > 0 and 0 < taken["verify_us"] < 1e6 * taken["seconds"] and taken["commit_us"] > 0
        with pytest.raises(MeasurementError, match=r"new: its process ended \(IndexError"):
            side.ask({"time": [9, 0]})


@pytest.mark.slow
def test_a_side_that_cannot_plan_says_why(tmp_path: Path) -> None:
    with (
        start_side("base", ROOT, ["model=nowhere"], tmp_path) as ready,
        pytest.raises(SpeclaError, match="base: no option 'nowhere' of model"),
    ):
        ready()


def test_a_commit_from_before_there_were_turns_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(SpeclaError, match=r"base: has no specla/bench/turns.py, so it is too old"),
        start_side("base", tmp_path, [], tmp_path),
    ):
        pass
