"""`specla report`: tables and plots from run folders."""

import re
from pathlib import Path
from typing import Annotated

import typer

from specla.cli.console import JsonFlag, folder_option, print_json, say
from specla.errors import SpeclaError


def report(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders; the newest run where none is given.")] = None,
    out: Annotated[Path, folder_option("--out", "The folder of reports.")] = Path("reports"),
    runs_folder: Annotated[Path, folder_option("--runs", "Where the newest run is looked for.")] = Path("runs"),
    name: Annotated[str | None, typer.Option("--name", help="The report's name; the first run's unless given.")] = None,
    json: JsonFlag = False,
) -> None:
    """Make report.md, summary.json, CSV files and plots from runs, beside the paper's claims.

    Exits with 0 where a report was written, whatever its runs hold: a run of which nothing was measured gives a report
    that says so. Exits with 2 for a run that cannot be read or a folder that cannot be written, and
    with 4 for a disk that is full.
    """
    # Pandas and matplotlib take a second to load: not for --help.
    from specla.bench.store import newest_run
    from specla.report.build import build_report
    from specla.report.find import folder_name

    if name is not None and not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", name):
        raise SpeclaError(f"--name={name!r}: use up to 200 letters, digits, '.', '_' and '-', and no '.' first")
    chosen = list(runs or [newest_run(runs_folder)])
    result = build_report(chosen, out / (name or folder_name(chosen[0])))
    say(str(result.path / "report.md"))
    if json:
        print_json(result.document)
