"""What the commands share: the progress bar, plain lines where there is no terminal, tables, JSON last."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from specla.errors import SpeclaError
from specla.interrupt import check
from specla.report.escape import for_terminal, shown

DIAL = "OVERRIDE"
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Hydra overrides: model=gdn-mini topology=chain,kary topology.length=2,4 ...", metavar=DIAL),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="The last line of stdout is one JSON document.")]
ConfigDir = Annotated[
    str | None, typer.Option("--config-dir", help="A conf folder of your own; its options come first.")
]

_LINE_EVERY_SECONDS = 10.0


def folder_option(name: str, help_text: str) -> Any:
    """An option that names a folder. An empty word, most often a variable that was not set, is refused."""

    def folder(text: str | Path) -> Path:
        if not str(text):
            raise SpeclaError(f"{name}='': name a folder, or leave the option out")
        return Path(text)

    return typer.Option(name, parser=folder, metavar="FOLDER", help=help_text)


def say(line: str) -> None:
    """One line on stdout, whatever names are in it."""
    typer.echo(shown(line, None))


def log(line: str) -> None:
    """One line on stderr."""
    print(shown(line, None), file=sys.stderr, flush=True)


def print_json(document: Mapping[str, Any]) -> None:
    """The document on one line of stdout, in ASCII: no terminal takes anything in it for a command."""
    print(json.dumps(document, separators=(",", ":"), allow_nan=False))


@contextmanager
def progress(title: str) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """(set the total, advance by one with a description), on stderr: a bar on a terminal, plain lines elsewhere.

    Raises:
        KeyboardInterrupt: from advancing, where one was lost in what was done.
    """
    if sys.stderr.isatty():
        with _bar(title) as hooks:
            yield hooks
        return
    done, total, last = 0, 0, time.monotonic()

    def set_total(count: int) -> None:
        nonlocal total
        total = count

    def tick(what: str) -> None:
        nonlocal done, last
        check()
        done += 1
        if time.monotonic() - last >= _LINE_EVERY_SECONDS:
            last = time.monotonic()
            log(f"{title} {done}/{total}: {what}")

    yield set_total, tick


@contextmanager
def _bar(title: str) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.fields[title]}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", table_column=None),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", title=title, total=None)

        def tick(what: str) -> None:
            check()
            bar.update(task, advance=1, description=for_terminal(what))

        yield lambda count: bar.update(task, total=count), tick
