"""`specla`: the commands, and the one place where errors become exit codes."""

import signal
import sys
from typing import Annotated

import typer

from specla import __version__
from specla.cli import ablate, bench, compare, explain, generate, report, train
from specla.cli.streams import steady_streams, unwritten
from specla.cli.usage import usage_line
from specla.errors import MeasurementError, SpeclaError, is_out_of_memory, told
from specla.interrupt import Interrupt, remembered
from specla.report.escape import shown

SIGNALLED = 128
"""Added to a signal's number, it is the exit code of what the signal ended, as shells have it."""

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
    with steady_streams():
        code = _run(commands)
        if problem := unwritten():
            code = _fail(f"stdout: {problem.strerror}", 4)
    sys.exit(code)


def _run(commands: typer.Typer) -> int:
    """The exit code of a command; what ended it is told."""
    try:
        # Without its standalone mode the library returns the code that a command asked to exit with, and 130 for an
        # interrupt.
        with remembered():
            code = int(commands(standalone_mode=False, prog_name="specla" if commands is app else None) or 0)
        return code if code != SIGNALLED + signal.SIGINT else _interrupted(signal.SIGINT)
    except SpeclaError as problem:
        return _fail(str(problem), 2)
    except MeasurementError as problem:
        return _fail(str(problem), 4)
    except Interrupt as problem:
        return _interrupted(problem.signal)
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted(signal.SIGINT)
    except OSError as problem:
        return _fail(f"{problem.filename or 'disk'}: {problem.strerror or problem}", 4)
    except Exception as problem:
        if is_out_of_memory(problem):
            return _fail(told(problem), 4)
        return _usage_or_bug(problem)


def _usage_or_bug(problem: Exception) -> int:
    # Typer brings its own copy of click in some releases and not in others: its errors are known by how they show.
    if callable(getattr(problem, "format_message", None)):
        if type(problem).__name__ == "NoArgsIsHelpError":
            problem.show()  # type: ignore[attr-defined]
            return 2
        return _fail(usage_line(problem), 2)
    import traceback

    traceback.print_exc()
    return _fail("this is a bug in specla: please report it with the lines above", 70)


def _interrupted(number: signal.Signals) -> int:
    by = "" if number == signal.SIGINT else f" by {number.name}"
    again = "the same command without --no-resume" if "--no-resume" in sys.argv else "the same command"
    return _fail(f"interrupted{by}; what was finished is kept: {again} goes on", SIGNALLED + number)


def _fail(line: str, code: int) -> int:
    print(f"specla: {shown(line, None)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
