"""`specla compare`: what became slower, faster or different between two runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specla.cli.console import JsonFlag, print_json
from specla.errors import SpeclaError, is_full, naming

if TYPE_CHECKING:
    from specla.report.compare import Comparison

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""CI's own variable: a file whose Markdown is shown on the job's page."""
EXIT = {"regression": 1, "inconclusive": 3, "passed": 0}

MarkdownFile = Annotated[Path | None, typer.Option("--markdown", help="Write the comparison to this file as well.")]


def compare(
    base: Annotated[Path, typer.Argument(help="The run or report that was.", metavar="BASE")],
    new: Annotated[Path, typer.Argument(help="The run or report that is.", metavar="NEW")],
    least: Annotated[
        float | None,
        typer.Option("--least", help="The least relative change that counts: 0.1 apart, 0.05 side by side."),
    ] = None,
    across_devices: Annotated[
        bool, typer.Option("--across-devices", help="Compare different devices, by their speedups.")
    ] = False,
    absolute: Annotated[
        bool, typer.Option("--absolute", help="Judge runs made apart by the time itself: the machine was quiet.")
    ] = False,
    markdown: MarkdownFile = None,
    json: JsonFlag = False,
) -> None:
    """Compare two runs cell by cell: slower, faster, same or inconclusive, beyond the noise that was measured.

    Exit: 1 regression; 3 inconclusive, unfinished, or a cell of BASE is not measured in NEW; 0 neither; 2 bad input.
    """
    if least is not None and not 0 < least < 1:
        raise SpeclaError(f"--least={least:g}: give a share between 0 and 1, as in 0.05 for 5 %")
    # Scipy and pandas take a second to load: not for --help.
    from specla.report.compare import compare_runs

    found = compare_runs(base, new, least=least, across_devices=across_devices, absolute=absolute)
    show_comparison(found, markdown, json)
    raise typer.Exit(EXIT[found.status])


def show_comparison(found: "Comparison", markdown: Path | None, json: bool) -> None:
    """Print a comparison; write it to a file, and to the job's page where there is one."""
    from specla.cli.results import print_comparison
    from specla.report.compare_text import compare_document, compare_markdown

    print_comparison(found)
    append_summary(compare_markdown(found))
    if markdown is not None:
        try:
            with naming(markdown):
                markdown.write_text(compare_markdown(found), encoding="utf-8")
        except OSError as error:
            if is_full(error):
                raise
            raise SpeclaError(
                f"--markdown={markdown}: cannot be written ({error.strerror}); give another file"
            ) from None
    if json:
        print_json(compare_document(found))


def append_summary(text: str) -> None:
    """Add Markdown to the page of the CI job that this runs in, if it runs in one."""
    page = os.environ.get(STEP_SUMMARY)
    if page:
        with naming(Path(page)), open(page, "a", encoding="utf-8") as file:
            file.write(text + "\n")
