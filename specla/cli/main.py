"""`specla`: the commands, and the one place where errors become exit codes."""

import sys
from typing import Annotated

import typer

from specla import __version__
from specla.cli import ablate, bench, compare, explain, generate, report, train
from specla.errors import MeasurementError, SpeclaError
from specla.interrupt import remembered
from specla.report.escape import shown

INTERRUPTED = 130

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


def main(commands: typer.Typer = app) -> None:
    """Run a command line, specla's own unless another is given; the exit codes are those of README.md."""
    try:
        # Without its standalone mode the library returns the code that a command asked to exit with, and 130 for an
        # interrupt.
        with remembered():
            code = commands(standalone_mode=False) or 0
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        sys.exit(code)
    except SpeclaError as problem:
        _fail(str(problem), 2)
    except MeasurementError as problem:
        _fail(str(problem), 4)
    except (KeyboardInterrupt, typer.Abort):
        again = "the same command without --no-resume" if "--no-resume" in sys.argv else "the same command"
        _fail(f"interrupted; what was finished is kept: {again} goes on", INTERRUPTED)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as problem:
        _fail(f"{problem.filename or 'disk'}: {problem.strerror or problem}", 4)
    except MemoryError:
        _fail("out of memory: use a smaller model, batch or tree", 4)
    except Exception as problem:
        _usage_or_bug(problem)


def _usage_or_bug(problem: Exception) -> None:
    # Typer brings its own copy of click in some releases and not in others: its errors are known by how they show.
    show = getattr(problem, "show", None)
    if callable(show):
        show()
        sys.exit(2)
    import traceback

    traceback.print_exc()
    _fail("this is a bug in specla: please report it with the lines above", 70)


def _fail(line: str, code: int) -> None:
    print(f"specla: {shown(line, None)}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
