"""`specla report`: tables and plots from run folders."""

from pathlib import Path
from typing import Annotated

import typer

from specla.cli.console import JsonFlag, folder_option, print_json


def report(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders; the newest run where none is given.")] = None,
    out: Annotated[Path, folder_option("--out", "The folder of reports.")] = Path("reports"),
    runs_folder: Annotated[Path, folder_option("--runs", "Where the newest run is looked for.")] = Path("runs"),
    name: Annotated[str | None, typer.Option("--name", help="The report's name; the first run's unless given.")] = None,
    json: JsonFlag = False,
) -> None:
    """Make report.md, summary.json, CSV files and plots from runs, beside the paper's claims.

    Exits with 0 where a report was written, whatever its runs hold: a run of which nothing was measured gives a report
    that says so. Exits with 2 for a run that cannot be read or a folder that cannot be written.
    """
    # Pandas and matplotlib take a second to load: not for --help.
    from specla.bench.store import newest_run
    from specla.report.build import build_report

    chosen = list(runs or [newest_run(runs_folder)])
    result = build_report(chosen, out / (name or chosen[0].resolve().name))
    typer.echo(str(result.path / "report.md"))
    if json:
        print_json(result.document)
