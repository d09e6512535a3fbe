"""Text shown for what it is: a line, not too long, and never read as markup."""

import csv
import io
import unicodedata

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from specla.report.escape import (
    NAME,
    Markdown,
    bold,
    code,
    file_names,
    for_csv,
    for_figure,
    for_markdown,
    for_terminal,
    running,
    shown,
    shown_apart,
)
from tests.report.hostile import HOSTILE, LONG

ANY = st.text(st.characters(), max_size=120) | st.sampled_from(HOSTILE)
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gsm8k-main", "gsm8k-main"),
        ("Prüfung 漢字 🙂", "Prüfung 漢字 🙂"),
        ("a\nb\tc", "a\\u{a}b\\u{9}c"),
        ("\x1b[31m", "\\u{1b}[31m"),
        ("\u202eabc", "\\u{202e}abc"),
        ("a\u00a0b", "a\\u{a0}b"),
        ("\ud800", "\\u{d800}"),
        ("C:\\temp \\frac", "C:\\temp \\frac"),
    ],
)
def test_what_cannot_be_seen_is_spelt_out(text: str, expected: str) -> None:
    assert shown(text) == expected


@settings(deadline=None)
@given(ANY)
@example("漢" * 60)
def test_shown_is_one_line_of_at_most_so_many_columns(text: str) -> None:
    found = shown(text)
    assert cell_len(found) <= NAME
    assert not [letter for letter in found if unicodedata.category(letter) in UNSEEN]
    assert shown(found) == found, "a label made of what was shown stays as it is"


@pytest.mark.parametrize("blank", [" ", "\u3000 ", "\u3164", "\u2800\u2800", "\x00", "\u200b"])
def test_a_name_that_cannot_be_seen_is_seen(blank: str) -> None:
    """Alone, in a heading, an alt text, a figure: by the numbers of its letters, so that two stay apart."""
    numbered = "".join(f"\\u{{{ord(letter):x}}}" for letter in blank)
    assert shown(blank) == for_figure(blank) == numbered and shown(shown(blank)) == numbered
    assert for_markdown(blank) == numbered.replace("\\", "\\\\") and numbered in code(blank)
    assert shown(f"a{blank}b") == (f"a{blank}b" if not blank.strip(" \u3000") else f"a{numbered}b")


def test_running_text_keeps_its_lines_and_moves_no_cursor() -> None:
    assert (
        running("def f(x):\n\treturn 'ä \u3000 \u00a0中👩\u200d💻'\n")
        == "def f(x):\n\treturn 'ä \u3000 \u00a0中👩\u200d💻'\n"
    )
    assert running("\x1b]0;title\x07\x1b[2J\r\x9b1m\u202e") == (r"\u{1b}]0;title\u{7}\u{1b}[2J\u{d}\u{9b}1m\u{202e}")


def test_what_was_cut_is_told_apart() -> None:
    first, second = shown(LONG + "a"), shown(LONG + "b")
    assert first != second and first[:30] == second[:30] and len(first) == len(second) == NAME
    assert shown(LONG + "x" + LONG) != shown(LONG + "y" + LONG), "by what is in the middle"


def test_of_several_no_two_look_alike() -> None:
    texts = ["a\nb", "a\\u{a}b", "ab", LONG]
    found = shown_apart(texts)
    assert len(set(found.values())) == len(texts) and found["ab"] == "ab"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("factors_deferred 1.52x (1.49 to 1.55)", "factors_deferred 1.52x (1.49 to 1.55)"),
        ("<img src=x>", "&lt;img src=x>"),
        ("[x](javascript:alert(1))", "\\[x\\]\\(javascript:alert(1))"),
        ("a|b", "a\\|b"),
        ("# heading", "&#35; heading"),
        ("- item", "&#45; item"),
        ("12. item", "&#49;2. item"),
        ("---", "&#45;--"),
        ("    code", "&#32;   code"),
        ("$\\frac{$", "&#36;\\\\frac{&#36;"),
        ("_x_ a_b", "\\_x\\_ a_b"),
        ("https://a.b", "https&#58;//a.b"),
        ("&lt; R&D", "&amp;lt; R&D"),
    ],
)
def test_markdown_shows_it_as_it_stands(text: str, expected: str) -> None:
    assert for_markdown(text) == expected
    assert for_markdown(Markdown(text)) == text, "what is Markdown already is left alone"
    assert bold(text) == f"**{expected}**"


def test_code_and_file_names() -> None:
    assert code("a`b|c\nd") == "`a'b\u00a6c\\u{a}d`"
    found = file_names(["NVIDIA H200, gdn-mini", "漢字", "字漢", LONG + "a", LONG + "b"])
    assert found["NVIDIA H200, gdn-mini"] == "nvidia-h200-gdn-mini"
    assert len(set(found.values())) == 5
    assert all(name.isascii() and 0 < len(name) < 120 and "/" not in name for name in found.values())


@settings(deadline=None)
@given(ANY)
@example("a\\")
@example("a\\\\")
def test_a_terminal_prints_it_and_nothing_else(text: str) -> None:
    found = for_terminal(text)
    assert Text.from_markup(found, emoji=False).plain == shown(text, 400)
    assert Text.from_markup(f"[bold]{found}[/] end", emoji=False).plain == f"{shown(text, 400)} end"
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=2000, highlight=False, emoji=False).print(found, soft_wrap=True)
    assert "\x1b" not in out.getvalue() and out.getvalue().count("\n") == 1


@settings(deadline=None)
@given(ANY)
def test_a_figure_has_the_letters_and_a_legend_keeps_it(text: str) -> None:
    found = for_figure(text, 40)
    assert len(found) <= 41 and not found.startswith("_")
    assert not any(unicodedata.category(letter) in UNSEEN for letter in found)


def test_letters_that_a_font_lacks_are_told_apart() -> None:
    assert for_figure("漢") == "\\u{6f22}" and for_figure("字") == "\\u{5b57}" and for_figure("Prüfung") == "Prüfung"


@settings(deadline=None)
@given(st.lists(ANY, min_size=1, max_size=5))
def test_a_csv_holds_no_formula_and_reads_back(texts: list[str]) -> None:
    frame = pd.DataFrame({"text": pd.Series(texts, dtype=object), "number": [-1.5] * len(texts)})
    rows = list(csv.reader(io.StringIO(for_csv(frame).to_csv(index=False, lineterminator="\n"))))
    assert len(rows) == len(texts) + 1 and all(len(row) == 2 and row[1] == "-1.5" for row in rows[1:])
    for text, row in zip(texts, rows[1:], strict=True):
        assert row[0].removeprefix("'") == shown(text, None).removeprefix("'")
        assert len(row[0]) < 2 or not row[0].lstrip().startswith(("=", "+", "-", "@"))
