"""Several models in one report, and how near the nearest tie was."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from specla.bench.plan import plan
from specla.bench.record import Lossless, Method, Record
from specla.bench.summary import build_document
from specla.cli.results import print_plan, print_results
from specla.models.folder import ASSETS
from specla.report.build import build_report
from specla.report.load import load_runs
from specla.report.markdown import report_markdown
from specla.report.reading import section_sentences
from specla.report.style import Plot
from specla.report.tables import sections, speed_markdown
from tests.factory import MINI, ar_record, decode_record, write_run

TREE = Method("tree", "factors", "ngram", "chain-d3")
OTHER = replace(MINI, weights="ffffffffffff")


def two_models(*paths: str) -> list[Record]:
    """AR and a method of two checkpoints under one option, the second half as fast."""
    records = []
    for info, path, factor in zip((MINI, OTHER), paths, (1.0, 0.5), strict=True):
        words = (f"model.path={path}",)
        common = {"model": "gdn-1.3b", "model_info": info, "overrides": words, "fingerprint": info.weights}
        records += [ar_record(**common), decode_record(TREE, 1.6 * factor, **common)]
    return records


def test_two_checkpoints_under_one_option_share_no_row_and_no_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plot, "png", lambda *_: None)
    out = build_report([write_run(tmp_path, two_models("/a", "/b"))], tmp_path / "out").path
    text = (out / "report.md").read_text()
    titles = [line for line in text.splitlines() if line.startswith("## gdn")]
    assert titles == [
        "## gdn-mini (9.5 M), 0123456789ab, float32, NVIDIA H200",
        "## gdn-mini (9.5 M), ffffffffffff, float32, NVIDIA H200",
    ]
    assert "gdn-1.3b" not in text, "what an option is called is told nowhere"
    assert text.count("1 (baseline)") == 2, "each has its own AR"
    assert len(list(out.glob("speedup*.csv"))) == 2


def test_one_option_over_new_weights_keeps_both_results(tmp_path: Path) -> None:
    first, second = two_models("/a", "/a")[:2], two_models("/a", "/a")[2:]
    loaded = load_runs([write_run(tmp_path, first, slug="one"), write_run(tmp_path, second, slug="two")])
    assert len(loaded.cells) == 4 and loaded.cells.model.nunique() == 2 and loaded.repeated == 0
    again = load_runs([write_run(tmp_path, first, slug="three"), write_run(tmp_path, first, slug="four")])
    assert len(again.cells) == 2 and again.repeated == 2


def test_the_terminal_tells_models_apart(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(build_document(two_models("/a", "/b"), "bench e2e", "run", "CPU"))
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("ar", "tree"))]
    assert len({row.split("1.00x")[0].split("0.80x")[0] for row in rows}) == 4
    print_results(build_document(two_models("/a", "/b")[:2], "bench e2e", "run", "CPU"))
    assert capsys.readouterr().out.strip().endswith("passed on CPU, model gdn-mini (9.5 M)")


def test_a_dry_run_names_the_model_not_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine [red]"
    folder.mkdir()
    shutil.copy(ASSETS / "gdn-mini" / "config.json", folder)
    print_plan(plan("bench e2e", ["model=gdn-1.3b", "model.path=asset:gdn-mini", "drafter=ngram"]), {})
    out = capsys.readouterr().out
    assert "model: gdn-mini (9.5 M)" in out and "gdn-1.3b" not in out
    print_plan(plan("bench e2e", ["model=gdn-1.3b", f"model.path=asset:gdn-mini,'{folder}'", "drafter=ngram"]), {})
    out = capsys.readouterr().out
    assert out.count("heldout, mine [red] (9.5 M)") == out.count("heldout, gdn-mini (9.5 M)") == 2


@pytest.mark.parametrize(
    ("worst", "cell", "told"),
    [
        ((0.125, 0.31), "near_tie (2, the worst at 0.31 of its bound)", "positions), the worst at 0.31 of its bound."),
        ((0.0, None), "near_tie (2)", "positions), the worst at 0.00 of its bound."),
        ((None, None), "near_tie (2)", "positions)."),
    ],
)
def test_how_near_the_worst_tie_was_to_its_bound(
    tmp_path: Path, worst: tuple[float | None, float | None], cell: str, told: str
) -> None:
    records = [
        decode_record(
            replace(TREE, verify=name), lossless=Lossless.NEAR_TIE, near_ties=2, worst_tie=share, model_info=MINI
        )
        for name, share in zip(("chain", "tree"), worst, strict=True)
    ]
    loaded = load_runs([write_run(tmp_path, [ar_record(model_info=MINI), *records])])
    (section,) = sections(loaded)
    table = next(line for line in speed_markdown(section).splitlines() if line.startswith("| heldout | tree"))
    assert table.rstrip(" |").endswith(cell)
    assert any(line.endswith(told) for line in section_sentences(section, loaded) if line.startswith("Losslessness"))


def test_the_terminal_tells_how_near_the_worst_tie_was(capsys: pytest.CaptureFixture[str]) -> None:
    near = decode_record(TREE, lossless=Lossless.NEAR_TIE, near_ties=2, worst_tie=0.31)
    print_results(build_document([ar_record(), near], "bench e2e", "run", "CPU"))
    out = capsys.readouterr().out
    assert "near tie 0.31" in out and "as a share of the bound" in out
    print_results(build_document([ar_record()], "bench e2e", "run", "CPU"))
    assert "bound" not in capsys.readouterr().out


def test_damage_is_told_before_any_figure(tmp_path: Path) -> None:
    run = write_run(tmp_path, [ar_record(), decode_record()])
    with open(run / "records.jsonl", "a") as file:
        file.write('{"schema": 1')
    loaded = load_runs([run])
    text = report_markdown(loaded, [], [(section, []) for section in sections(loaded)], "partial")
    assert text.index("Read with care") < text.index("was cut short") < text.index("## Claims")
    assert text.count("was cut short") == 1
    whole = load_runs([write_run(tmp_path, [ar_record(), decode_record()], slug="whole")])
    assert "Read with care" not in report_markdown(whole, [], [(s, []) for s in sections(whole)], "passed")
