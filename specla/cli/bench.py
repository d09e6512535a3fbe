"""`specla bench`: measure, and leave a run folder behind."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specla.cli.console import ConfigDir, JsonFlag, Overrides, folder_option, log, print_json, progress, say

if TYPE_CHECKING:
    from specla.bench.plan import Plan

app = typer.Typer(
    no_args_is_help=True, help="Measure decoding end to end, beside autoregressive decoding and the baselines."
)

Out = Annotated[Path, folder_option("--out", "The folder of runs.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="List the cells with rough estimates, and check trained drafters; run nothing."),
]
NoResume = Annotated[bool, typer.Option("--no-resume", help="Measure finished cells again.")]
Cfg = Annotated[bool, typer.Option("--cfg", help="Print the composed configuration of the first cell and exit.")]


def measuring(command: str, help_text: str) -> Callable[..., None]:
    """A measuring command for the command line: every one takes the same options."""

    def run(
        overrides: Overrides = None,
        dry_run: DryRun = False,
        json: JsonFlag = False,
        out: Out = Path("runs"),
        no_resume: NoResume = False,
        config_dir: ConfigDir = None,
        cfg: Cfg = False,
    ) -> None:
        measure(
            command,
            list(overrides or []),
            dry_run=dry_run,
            json=json,
            out=out,
            resume=not no_resume,
            config_dir=config_dir,
            cfg=cfg,
        )

    run.__doc__ = help_text
    return run


def measure(
    command: str,
    words: list[str],
    *,
    dry_run: bool,
    json: bool,
    out: Path,
    resume: bool,
    config_dir: str | None,
    cfg: bool,
) -> None:
    """What every measuring command does with its words."""
    # Hydra takes a moment to load: not for --help.
    from specla.bench.inputs import check_inputs
    from specla.bench.plan import composed_yaml, plan

    if cfg:
        typer.echo(composed_yaml(command, words, config_dir), nl=False)
        return
    planned = check_inputs(plan(command, words, config_dir), fetch=not dry_run)
    if dry_run:
        raise typer.Exit(_dry_run(planned, json))
    # Torch is loaded here: a plan, a dry run without trained drafters and every wrong word are answered without it.
    from specla.bench.run import Observer, exit_status, prepare, run
    from specla.cli.results import print_results

    prepared = prepare(planned, partly=True)
    with progress(command) as (total, tick):
        result = run(prepared, out, _slug(command, words), resume, Observer(log, total, tick))
    print_results(result.document)
    say("")
    say(f"{result.path}  (specla report {result.path})")
    if json:
        print_json(result.document)
    raise typer.Exit(exit_status(result.document))


app.command("e2e")(
    measuring(
        "bench e2e",
        """End-to-end decoding: the losslessness gate, then speedup over AR, for every cell of a sweep.

        Examples: specla bench e2e topology=chain,kary drafter=ngram,oracle drafter.alpha=0.6,0.8
        | specla bench e2e experiment=bench --dry-run
        """,
    )
)
app.command("all")(
    measuring(
        "bench all",
        """What `make bench` runs: decoding end to end, then verifying, committing and deferring by themselves.

        Examples: specla bench all --dry-run | specla bench all experiment=bench-verify,bench-recover
        """,
    )
)
app.command("gpu")(
    measuring(
        "bench gpu",
        """What `make bench-gpu` runs: decoding, verifying, committing and deferring at the published GDN-1.3B's shape.

        Examples: specla bench gpu --dry-run | specla bench gpu experiment=gpu-verify workload.batch=32
        """,
    )
)
app.command("paper")(
    measuring(
        "bench paper",
        """Everything that the paper's claims are judged by: decoding, single operations, acceptance.

        Examples: specla bench paper --dry-run | specla bench paper experiment=paper-verify,paper-recover
        """,
    )
)


def _dry_run(planned: "Plan", json: bool) -> int:
    """The exit code that a run would have, as far as is known: 4 for bad inputs of some cells, or too little memory."""
    from dataclasses import replace

    from specla.bench.identity import seen_info
    from specla.bench.inputs import CELLS_FAIL
    from specla.bench.machine import cpu_model
    from specla.bench.planned import planned_record
    from specla.bench.record import Status
    from specla.bench.summary import build_document
    from specla.bench.unseen import unfit_cells
    from specla.cli.results import print_plan

    # Torch reads a drafter; a plan without one is listed without it.
    trained = any(cell.status == "pending" and cell.method.drafter == "aligned" for cell in planned.cells)
    unseen: list[str] = []
    if trained:
        from specla.bench.trained import check_drafters

        unseen = check_drafters(planned)
    notes = dict.fromkeys((*planned.notes, *unseen))
    for note in notes:
        log(note)
    unfit = unfit_cells(planned)
    print_plan(planned, unfit)
    if json:
        models = [seen_info(cell.settings.model, cell.settings.seed, cell.command) for cell in planned.cells]
        records = [
            planned_record(cell, cell.config_hash, "cpu", cell.settings.dtype, model)
            for cell, model in zip(planned.cells, models, strict=True)
        ]
        for place, cell in enumerate(planned.cells):
            if reason := unfit.get(cell.config_hash):
                records[place] = replace(records[place], status=Status.FAILED, reason=reason)
        # Which GPU it is takes torch to tell.
        named = ["cuda" if cell.settings.device == "cuda" else cpu_model() for cell in planned.cells]
        records = [replace(record, device=name) for record, name in zip(records, named, strict=True)]
        print_json(build_document(records, planned.command, "", named[0]))
    return 4 if unfit or any(note.endswith(CELLS_FAIL) for note in notes) else 0


def _slug(command: str, words: list[str]) -> str:
    """The start of a run folder's name: the command, and the experiment where one is named."""
    experiment = next((word.partition("=")[2] for word in words if word.startswith("experiment=")), "null")
    name = "-".join([*command.split(), *([experiment] if experiment != "null" else [])])
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
