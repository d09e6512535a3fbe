"""`specla compare` and `make regress` as typed: exit codes, what is printed where, CI's page."""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from specla.bench import checkout, exact, sidebyside
from specla.bench.exact import Baseline, Figures, Source, write_baseline
from specla.bench.record import Record, Sample, Status
from specla.cli import regress
from specla.cli.main import main
from tests.disk import full
from tests.factory import ENV, ar_record, decode_record, unmeasured, write_run

Run = Callable[..., tuple[int, str, str]]
ADVICE = "give a run's folder, such as one of those in runs/"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """(exit code, stdout, stderr) of a command line."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run(*words: str, app: Any = None) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specla", *words])
        with pytest.raises(SystemExit) as end:
            main() if app is None else main(app)
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, out, err

    return run


def records(slower: float = 1.0) -> list[Record]:
    """AR and one method, this much slower."""
    tree = decode_record(overrides=("engine.verify=tree",), noise=0.002)
    samples = [Sample(**{**vars(s), "seconds": s.seconds * slower}) for s in tree.samples if isinstance(s, Sample)]
    return [ar_record(overrides=("engine.verify=ar",)), Record(**{**vars(tree), "samples": tuple(samples)})]


def pair(folder: Path, new: list[Record], **env: Any) -> tuple[str, str]:
    base = write_run(folder, records(), slug="base")
    return str(base), str(write_run(folder, new, {**ENV, **env}, slug="new"))


def pending() -> list[Record]:
    first, second = records()
    return [first, Record(**{**vars(second), **unmeasured(second, Status.PENDING)})]


@pytest.mark.parametrize(
    ("new", "code", "status"),
    [
        (records(), 0, "passed"),
        (records(1.3), 1, "regression"),
        (pending(), 3, "inconclusive"),
        (records(0.7), 0, "passed"),
        (records()[:1], 3, "inconclusive"),
    ],
    ids=["same", "slower", "unfinished", "faster", "vanished"],
)
def test_exit_codes(tmp_path: Path, typed: Run, new: list[Record], code: int, status: str) -> None:
    found, out, err = typed("compare", *pair(tmp_path, new))
    assert found == code and out.splitlines()[-1].startswith(status) and not err


def test_a_regression_comes_before_what_is_inconclusive(tmp_path: Path, typed: Run) -> None:
    worse = records(1.3)
    missing = decode_record(overrides=("topology.length=2",))
    base = write_run(tmp_path, [*records(), missing], slug="base")
    new = write_run(tmp_path, [*worse, Record(**{**vars(missing), **unmeasured(missing, Status.PENDING)})], slug="new")
    assert typed("compare", str(base), str(new))[0] == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere", "nowhere"), f"nowhere: neither a run nor a report (no such folder); {ADVICE}"),
        (("nowhere", "nowhere", "--least", "2"), "--least=2: give a share between 0 and 1, as in 0.05 for 5 %"),
    ],
)
def test_bad_input_is_one_line(typed: Run, words: tuple[str, ...], told: str) -> None:
    assert typed("compare", *words) == (2, "", f"specla: {told}\n")


def test_json_is_the_last_line_and_markdown_goes_to_its_file(
    tmp_path: Path, typed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "compare.md"
    _, out, _ = typed("compare", *pair(tmp_path, records(1.3)), "--json", "--markdown", str(page))
    document = json.loads(out.splitlines()[-1])
    assert document["status"] == "regression" and document["cells"][1]["verdict"] == "slower"
    assert "**slower**" in page.read_text()
    code, _, err = typed("compare", *pair(tmp_path, records()), "--markdown", str(tmp_path / "no" / "page.md"))
    assert code == 2 and "cannot be written" in err and err.endswith("; give another file\n")
    monkeypatch.setattr(Path, "write_text", full)
    code, out, err = typed("compare", *pair(tmp_path / "again", records()), "--markdown", str(page))
    told = f"specla: {page}: No space left on device; free space and run the same command again\n"
    assert code == 4 and err == told and "same" in out


def test_in_a_job_the_page_gets_the_comparison(tmp_path: Path, typed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "summary.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    typed("compare", *pair(tmp_path, records()))
    assert page.read_text().startswith("before\n## base-") and "| tree |" in page.read_text()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(tmp_path: Path, typed: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr("specla.cli.results._PLAIN_WIDTH", width)
    _, out, _ = typed("compare", *pair(tmp_path, records(1.3)))
    assert max(len(line) for line in out.splitlines()) <= width
    row = next(line for line in out.splitlines() if line.strip().startswith("tree"))
    assert row.split()[-1] == "slower" and "[" in row


class TestRegress:
    """`make regress`, the measuring itself replaced."""

    @pytest.fixture
    def measured(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """Make both sides' runs, and the exact figures, what a test says."""
        figures = Figures("ar", "exact", 0, 9, 9, 9, 1.0, 0, 0, (), (), 1, 2, 3, 90, 10.0)
        write_baseline(tmp_path / exact.TRACKED, Baseline(Source(1, "2.0", ("x",)), (figures,)))
        monkeypatch.setattr(checkout, "repository", lambda: tmp_path)
        monkeypatch.setattr(checkout, "choose_base", lambda root, asked: checkout.Base("c" * 40, f"asked: {asked}"))
        monkeypatch.setattr(checkout, "checked_out", lambda root, commit: nullcontext(tmp_path))

        def say(slower: float = 1.0, launches: int = 90, finished: bool = True) -> None:
            env = {"side_by_side": {"session": "s", "passes": 1}}
            sides = tuple(
                write_run(tmp_path / "out", side, {**ENV, **env}, slug=name)
                for name, side in (("base", records()), ("new", records(slower) if finished else pending()))
            )
            monkeypatch.setattr(sidebyside, "measure_side_by_side", lambda *_: sides)
            now = Figures(**{**vars(figures), "launches": launches})
            monkeypatch.setattr(exact, "measure_exact", lambda: Baseline(Source(1, "2.0", ("x",)), (now,)))

        return say

    @pytest.mark.parametrize(
        ("found", "code"),
        [
            ({}, 0),
            ({"slower": 1.2}, 1),
            ({"launches": 91}, 1),
            ({"finished": False}, 3),
            ({"finished": False, "launches": 91}, 1),
        ],
    )
    def test_exit_codes(self, typed: Run, measured: Callable[..., None], found: dict[str, Any], code: int) -> None:
        measured(**found)
        assert typed("--base", "v1", app=regress.app)[0] == code

    def test_what_differs_is_named_with_the_way_to_record_it(self, typed: Run, measured: Callable[..., None]) -> None:
        measured(launches=91)
        code, out, err = typed("--exact-only", "--json", app=regress.app)
        assert code == 1 and "ar: launches 90 -> 91" in out and "`make baseline` records it" in out and not err
        assert json.loads(out.splitlines()[-1])["exact"]["differences"][0]["figure"] == "launches"

    def test_names_of_cells_move_no_cursor(
        self, tmp_path: Path, typed: Run, measured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On the terminal, or in the Markdown of the job's page."""
        measured()
        hostile = exact.Deviation("ar\x1b]0;title\x07`<b>`\n# heading", "launches", "90", "91")
        monkeypatch.setattr(exact, "deviations", lambda *_: ([hostile], ["a note\x1b[2J"]))
        page = tmp_path / "page.md"
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
        code, out, _ = typed("--exact-only", app=regress.app)
        told = r"ar\u{1b}]0;title\u{7}{}<b>{}\u{a}# heading: launches 90 -> 91"
        assert code == 1 and out.splitlines()[:2] == [told.replace("{}", "`"), r"a note\u{1b}[2J"]
        assert f"- `{told.replace('{}', chr(39))}`\n" in page.read_text() and "\x1b" not in out + page.read_text()

    def test_recording_makes_it_the_tracked_one(
        self, tmp_path: Path, typed: Run, measured: Callable[..., None]
    ) -> None:
        measured(launches=91)
        assert typed("--record", app=regress.app)[0] == 0
        assert typed("--exact-only", app=regress.app)[0] == 0
