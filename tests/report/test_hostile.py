"""A report, a comparison and a table of records whose every free text is hostile: data is shown as data."""

import csv
import io
import json
import re
import warnings
from dataclasses import fields, replace
from pathlib import Path

import pytest
from matplotlib.text import Text

from specla.bench.codec import encode
from specla.bench.summary import build_document
from specla.bench.tally import Tally
from specla.cli import results
from specla.report.build import build_report, section_plots
from specla.report.compare import compare_runs
from specla.report.compare_text import compare_markdown
from specla.report.escape import NAMELESS
from specla.report.load import load_runs
from specla.report.style import Plot, house_rules
from specla.report.tables import sections
from tests.factory import decode_record, write_run
from tests.report.hostile import HOSTILE, HOSTILE_ENV, hostile_records, with_categories

HEADINGS = ("SpecLA: measured beside claimed", "Claims", "Reading", "End to end", "Measured on")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report's folder, its pictures left out: they are looked at by themselves."""
    root = tmp_path_factory.mktemp("hostile")
    run = write_run(root, hostile_records(), HOSTILE_ENV)
    named = run.rename(root / "# run <img src=x> `a` \x1b[31m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plot, "png", lambda *_: None)
        return build_report([named], root / "out").path


def structure_holds(text: str, headings: tuple[str, ...] | None = None) -> None:
    """No line, heading, tag, link, column or invisible letter that text of the records could have brought."""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f]", text)
    assert not re.search(r"<[a-zA-Z/!]", text), "no tag"
    for target in re.findall(r"(?<!\\)\]\(([^)]*)\)", text):
        assert re.fullmatch(r"[a-z0-9.-]+", target), "only links to the report's own files"
    assert "javascript:" not in re.sub(r"\\\]\\\(javascript:", "", text)
    assert not re.search(r"https?://|www\.", text)
    assert not re.search(r"(?<!\\)~~|\$", text)
    lines = text.splitlines()
    assert text.count("\n") == len(lines), "no other line's end"
    own = "|".join(map(re.escape, headings)) if headings else ".*"
    assert all(len(line) < 12_000 for line in lines)
    for line in lines:
        if line.startswith("#"):
            assert re.match(r"#{1,3} ", line)
            assert headings is None or re.match(rf"#{{1,3}} (?:{own}|.*, (?:float32|bfloat16), |&#35; run )", line), (
                line
            )
    tables = [list(map(columns, block.splitlines())) for block in re.findall(r"(?m)(?:^\|.*\n)+", text)]
    assert tables and all(len(set(table)) == 1 for table in tables), "every row has its table's columns"


def columns(line: str) -> int:
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))


def test_report_md_has_its_own_structure_alone(report: Path) -> None:
    text = (report / "report.md").read_text()
    structure_holds(text, (*HEADINGS, "Verification of one layer"))
    assert "onerror" in text and "heading" in text, "shown all the same"
    kept = [line for line in text.splitlines() if "wordword" in line]
    assert kept and not any("word" * 40 in line for line in kept), "cut"


def test_csv_files_read_back_without_a_formula(report: Path) -> None:
    files = list(report.glob("*.csv"))
    assert len(files) > 5 and all(re.fullmatch(r"[a-z0-9.-]{1,200}", file.name) for file in files)
    for file in files:
        rows = list(csv.reader(io.StringIO(file.read_text())))
        assert len({len(row) for row in rows}) == 1
        texts = [cell for row in rows for cell in row if not re.fullmatch(r"-?[\d.e+-]*", cell)]
        assert not [cell for cell in texts if cell[0] in "=+-@"]
    told = next(file for file in files if file.name.startswith("category"))
    names = [row["category"] for row in csv.DictReader(told.open())]
    assert len(set(names)) == len(HOSTILE), "no two categories became one"


def test_the_documents_are_ascii_and_hold_the_text_itself(report: Path) -> None:
    raw = (report / "summary.json").read_bytes()
    assert raw.isascii()
    assert {text for cell in json.loads(raw)["cells"] for text in cell["overrides"]} >= set(HOSTILE)


def test_figures_are_drawn_and_keep_their_axes(tmp_path: Path) -> None:
    loaded = load_runs([write_run(tmp_path, hostile_records())])
    found = {
        plot.name.partition("-")[0]: plot for section in sections(loaded) for plot in section_plots(section, loaded)
    }
    assert {"category", "depth", "speedup", "split", "verify"} <= set(found)
    with warnings.catch_warnings():
        # A letter that the font lacks is a warning, and a box for every such letter.
        warnings.simplefilter("error")
        for plot in found.values():
            plot.figure.draw_without_rendering()
        found["category"].png(str(tmp_path / "category.png"))
    assert (tmp_path / "category.png").stat().st_size > 10_000
    for name, plot in found.items():
        width = sum(axes.get_position().width for axes in plot.figure.axes[:1])
        panels = {round(axes.get_position().x0, 2) for axes in plot.figure.axes}
        assert width * len(panels) > 0.45, f"{name}: the panels keep about half of the page"
        assert plot.figure.get_figheight() < 20
    labels = [label.get_text() for label in found["category"].figure.axes[0].get_yticklabels()]
    assert len(set(labels)) == len(HOSTILE)


def test_categories_without_a_letter_are_categories(tmp_path: Path) -> None:
    """In the figure's rows, its heading, and the alt text: one that has no name, and one of blanks."""
    record = with_categories(decode_record(), ("", "  ", "code"))
    assert record.counts is not None
    tally = Tally(**{entry.name: getattr(record.counts, entry.name) for entry in fields(Tally)})
    counts = replace(record.counts, by_category={"": tally})
    run = write_run(tmp_path, [replace(record, counts=counts)])
    loaded = load_runs([run])
    (plot,) = (one for one in section_plots(sections(loaded)[0], loaded) if one.name == "category")
    rows = {label.get_text().splitlines()[0] for label in plot.figure.axes[0].get_yticklabels()}
    assert rows == {NAMELESS, r"\u{20}\u{20}", "code"}
    assert f"gains most on {NAMELESS} (" in plot.title and "least on code (" in plot.title
    assert sorted(plot.data.category) == ["", r"\u{20}\u{20}", "code"]


def test_one_formula_as_a_category_ends_no_report(tmp_path: Path) -> None:
    loaded = load_runs([write_run(tmp_path, [with_categories(decode_record())])])
    (section,) = sections(loaded)
    plots = section_plots(section, loaded)
    assert len(plots) > 2
    for plot in plots:
        with house_rules():
            plot.figure.draw_without_rendering()
        texts = [text for text in plot.figure.findobj(Text) if isinstance(text, Text)]
        assert texts and not any(text.get_parse_math() for text in texts)


def test_a_comparison_shows_data_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = (
        write_run(tmp_path, records, HOSTILE_ENV, slug=name)
        for name, records in (("base", hostile_records()), ("new", hostile_records()[:-3]))
    )
    found = compare_runs(base, new)
    structure_holds(compare_markdown(found))
    results.print_comparison(found)
    terminal_holds(capsys.readouterr().out)


def test_the_terminal_gets_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    document = build_document(hostile_records(), "bench e2e", "run", HOSTILE[8])
    results.print_results(document)
    out = capsys.readouterr().out
    terminal_holds(out)
    assert "onerror" in out and "[red]red[/red] :smile:" in out.replace("\n", "")


def terminal_holds(out: str) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out)
    assert out


def test_a_record_takes_any_text_and_gives_it_back() -> None:
    record = replace(hostile_records()[0], reason=HOSTILE[15])
    assert json.loads(json.dumps(encode(record)))["reason"] == HOSTILE[15]
