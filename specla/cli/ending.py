"""How a command ends: the one place where errors become exit codes."""

import signal
import sys
from collections.abc import Sequence

import typer

from specla.bench.available import guarded_imports
from specla.cli.streams import steady_streams, unwritten
from specla.cli.usage import usage_line
from specla.errors import AGAIN, MeasurementError, SpeclaError, is_full, is_out_of_memory, is_out_of_threads, told
from specla.interrupt import Interrupt, remembered
from specla.report.escape import shown

SIGNALLED = 128
"""Added to a signal's number, it is the exit code of what the signal ended, as shells have it."""


def ended(commands: typer.Typer, name: str | None) -> int:
    """The exit code of the command line for these commands, called `name`; the codes are those of README.md."""
    with steady_streams():
        code = _run(commands, name)
        if problem := unwritten():
            code = _fail(f"stdout: {problem.strerror}", 4)
    return code


def _run(commands: typer.Typer, name: str | None) -> int:
    """The exit code of a command; what ended it is told."""
    try:
        # Without its standalone mode the library returns the code that a command asked to exit with, and 130 for an
        # interrupt.
        with remembered(), guarded_imports():
            code = int(commands(standalone_mode=False, prog_name=name) or 0)
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
        return _fail(_disk_line(problem), 4)
    except Exception as problem:
        if is_out_of_memory(problem) or is_out_of_threads(problem):
            return _fail(told(problem), 4)
        return _usage_or_bug(problem)


def _disk_line(problem: OSError) -> str:
    advice = f"; {AGAIN}" if is_full(problem) else ""
    return f"{problem.filename or 'disk'}: {problem.strerror or problem}{advice}"


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
    kept = f"; what was finished is kept: {again} goes on" if _keeps(sys.argv[1:]) else ""
    return _fail(f"interrupted{by}{kept}", SIGNALLED + number)


def _keeps(words: Sequence[str]) -> bool:
    """Whether a command line measures or trains, of which something may be finished."""
    return words[:1] in (["bench"], ["ablate"], ["train"]) and not {"--dry-run", "--cfg"} & set(words)


def _fail(line: str, code: int) -> int:
    print(f"specla: {shown(line, None)}", file=sys.stderr)
    return code
