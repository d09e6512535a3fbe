"""`specla generate`: continue a text, streamed as it is accepted."""

from typing import Annotated

import typer

from specla.cli.console import ConfigDir, JsonFlag, Overrides, log, print_json
from specla.cli.streams import reader_left
from specla.report.escape import running


def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue.")],
    overrides: Overrides = None,
    json: JsonFlag = False,
    config_dir: ConfigDir = None,
) -> None:
    """Continue a text with any model, drafter, topology and strategy; the text is AR's, whatever drafts it.

    Example: specla generate "def fibonacci(n):" drafter=ngram topology.length=4 workload.max_new_tokens=64
    """
    from specla.bench.plan import plan

    planned = plan("generate", list(overrides or []), config_dir)
    from specla.bench.generate import stream

    pieces = stream(planned, prompt)
    try:
        while not reader_left():
            typer.echo(running(next(pieces)), nl=False)
        return
    except StopIteration as end:
        summary = end.value
    typer.echo()
    for line in (*summary.notes, summary.line):
        log(line)
    if json:
        print_json(summary.document)
