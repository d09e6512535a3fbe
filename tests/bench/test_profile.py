"""Acceptance profiles: every way a file can be wrong, and a pair's acceptance dialled in on another model."""

import json
from pathlib import Path

import pytest

from specla.bench.inputs import check_inputs
from specla.bench.plan import plan
from specla.bench.planned import planned_record
from specla.bench.profile import read_profile
from specla.bench.run import prepare
from specla.errors import SpeclaError
from tests.bench.ablations import QUICK, ablate

ALPHA = [[0.62, 0.13], [0.55, 0.1, 0.02], [0.5]]


def written(path: Path, **changes: object) -> Path:
    path.write_text(json.dumps({"schema": 1, "alpha": ALPHA, **changes}))
    return path


def test_what_a_profile_holds(tmp_path: Path) -> None:
    profile = read_profile(str(written(tmp_path / "pair.json", model="gdn-1.3b", drafter="aligned")))
    assert profile.alpha == ((0.62, 0.13), (0.55, 0.1, 0.02), (0.5,))
    assert (profile.model, profile.drafter, profile.offered) == ("gdn-1.3b", "aligned", ())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "damaged, not JSON"),
        (b'{"schema": 1, "alpha": [[0.6', "damaged, not JSON"),
        (b"[" * 100_000, "damaged, not JSON"),
        (b"\xff\xfe", "not UTF-8 (byte 0)"),
        (b"[[0.7]]", "no profile; give a JSON object"),
        (b'{"alpha": [[0.7]]}', "has schema None; this version reads 1"),
        (b'{"schema": 2, "alpha": [[0.7]]}', "has schema 2"),
        (b'{"schema": 1}', "field 'alpha' is missing"),
        (b'{"schema": 1, "alpha": 0.7}', "alpha: expected a list, found 0.7"),
        (b'{"schema": 1, "alpha": [0.7]}', "alpha[0]: expected a list, found 0.7"),
        (b'{"schema": 1, "alpha": [["a"]]}', "alpha[0][0]: expected a number, found 'a'"),
        (b'{"schema": 1, "alpha": [[true]]}', "alpha[0][0]: expected a number, found True"),
        (b'{"schema": 1, "alpha": [["nan"]]}', "alpha at depth 1: a share accepted is from 0 to 1"),
        (b'{"schema": 1, "alpha": [[NaN]]}', "alpha at depth 1: a share accepted is from 0 to 1"),
        (b'{"schema": 1, "alpha": [[0.5], [-0.1]]}', "alpha at depth 2: a share accepted is from 0 to 1"),
        (b'{"schema": 1, "alpha": [[0.7, 0.4]]}', "alpha at depth 1 sums to 1.1"),
        (b'{"schema": 1, "alpha": []}', "alpha holds 0 depths"),
        (b'{"schema": 1, "alpha": [[0.5], []]}', "alpha holds 2 depths; give 1 to 127, none empty"),
        (b'{"schema": 1, "alpha": [[0.5]], "alhpa": 1}', "unknown field 'alhpa'"),
        (b" " * (1 << 21), "over 1 MiB: no profile"),
    ],
)
def test_files_that_are_none(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(SpeclaError) as error:
        check_inputs(plan("bench e2e", ["drafter=oracle", f"drafter.profile={path}"]), fetch=False)
    line = str(error.value)
    assert line.startswith(f"drafter.profile={path}") and told in line and "\n" not in line
    if any(words in told for words in ("damaged", "not UTF-8", "missing", "expected")):
        assert line.endswith("give a JSON object with 'schema' and 'alpha', as `specla explain profile RUN` writes")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for name in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(SpeclaError, match="no such file; write one with specla explain profile"):
            check_inputs(plan("bench e2e", ["drafter=oracle", f"drafter.profile={name}"]), fetch=True)


def test_a_profile_in_place_of_alpha(tmp_path: Path) -> None:
    """Its numbers stand in the record, its name in labels, its content in the fingerprint of the oracle's cells."""
    path = written(tmp_path / "pair.json")
    words = ["drafter=oracle,ngram", f"drafter.profile={path}", *QUICK, "workload.prompts=1"]
    planned = plan("bench e2e", [*words, "drafter.alpha=0.9"])
    assert "drafter.alpha=0.9: not used, since drafter.profile is used in its place" in planned.notes
    planned = plan("bench e2e", words)
    cell = next(cell for cell in planned.cells if cell.method.drafter == "oracle")
    assert cell.settings.drafter.alpha is None and cell.drafter_label == "oracle pair"
    record = planned_record(cell, "0", "cpu", "float32")
    assert record.alpha_asked == tuple(map(tuple, ALPHA)) and record.profile == "pair" and record.synthetic
    before = prepare(planned).planned
    written(path, alpha=[[0.5]])
    after = prepare(plan("bench e2e", words)).planned
    changed = {before[key].method.drafter for key in before if before[key].fingerprint != after[key].fingerprint}
    assert changed == {"oracle"}


def test_a_profile_drives_the_oracle(tmp_path: Path) -> None:
    """As right by depth and rank as the file says, on a tree of three ranks; the tree of topology=auto as well."""
    path = written(tmp_path / "pair.json", alpha=[[0.5, 0.3, 0.1], [0.9, 0.05]])
    words = f"drafter=oracle drafter.profile={path} topology=kary topology.branching=3 topology.nodes=13"
    ran = ablate(
        tmp_path,
        "bench e2e",
        f"{words} workload.prompts=5 workload.max_new_tokens=128 engine.verify=tree measure.repeats=1",
    )
    assert ran.document["status"] == "inconclusive"
    cell = ran.cell("tree")
    assert cell["synthetic"] and cell["profile"] == "pair" and cell["alpha_asked"] == ((0.5, 0.3, 0.1), (0.9, 0.05))
    first, second = cell["alpha_by_rank"]
    assert first == pytest.approx([0.5, 0.3, 0.1], abs=0.1)
    assert second == pytest.approx([0.9, 0.05, 0.0], abs=0.1)
    few = "workload.prompts=2 workload.max_new_tokens=16 measure.calibration=1"
    ran = ablate(tmp_path, "bench e2e", f"{words.split(' topology')[0]} topology=auto topology.nodes=6 {few}")
    choice = next(record.choice for record in ran.records if record.choice is not None)
    assert choice.known and choice.alpha == ((0.5, 0.3, 0.1), (0.9, 0.05, 0.0))
