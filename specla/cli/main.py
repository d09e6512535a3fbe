"""`specla`: what the console script calls. All else is imported once an interrupt meets a handler."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


@contextmanager
def _nothing_to_keep() -> Iterator[None]:
    """Inside, Ctrl-C ends the process at once and in one line, whatever is being imported."""
    before = signal.getsignal(signal.SIGINT)
    # Ignored, as by a job in the background, or a test's own.
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, _frame: object) -> None:
    # What is raised within an import may come out as another error, or not at all.
    os.write(2, b"specla: interrupted\n")
    os._exit(128 + number)


def main(commands: "typer.Typer | None" = None) -> None:
    """Run a command line, specla's own unless other commands are given; the exit codes are those of README.md."""
    with _nothing_to_keep():
        from specla.cli.app import app
        from specla.cli.ending import ended
    sys.exit(ended(commands or app, None if commands else "specla"))


if __name__ == "__main__":
    main()
