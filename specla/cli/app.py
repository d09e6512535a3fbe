"""The commands of `specla`."""

from typing import Annotated

import typer

from specla import __version__
from specla.cli import ablate, bench, compare, explain, generate, report, train

app = typer.Typer(
    name="specla",
    help="Speculative decoding on gated delta net models: an engine, its baselines, and honest benchmarks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"specla {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Speculative decoding on gated delta net models: an engine, its baselines, and honest benchmarks."""


app.add_typer(bench.app, name="bench")
app.add_typer(ablate.app, name="ablate")
app.add_typer(train.app, name="train")
app.command()(report.report)
app.command()(compare.compare)
app.command()(generate.generate)
app.command("list")(explain.list_options)
app.command()(explain.explain)
