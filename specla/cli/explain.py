"""`specla list` and `specla explain`: what there is to choose from, and what it means."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specla.cli.console import ConfigDir, folder_option, log, progress, say
from specla.errors import SpeclaError

if TYPE_CHECKING:
    from specla.bench.record import Record


def list_options(
    group: Annotated[str | None, typer.Argument(help="A config group, or a dial such as engine.verify.")] = None,
) -> None:
    """The options of every config group, or of one group or dial in a line each."""
    from specla.bench.compose import composer
    from specla.bench.confdir import conf_dir
    from specla.bench.strategies import DIALS
    from specla.bench.validate import nearest

    options = composer(conf_dir(), None).options
    if group is None:
        for name, values in options.items():
            say(f"{name}: {', '.join(values)}")
        for dial in ("engine.verify", "engine.recover"):
            say(f"{dial}: {', '.join(DIALS[dial])}")
        return
    dial = group if group in DIALS else f"{group}.name"
    described = DIALS.get(dial, {})
    if group not in options and not described:
        raise SpeclaError(f"no group '{group}'{nearest(group, [*options, *DIALS])}")
    for name in options.get(group, list(described)):
        say(f"{name}: {described[name].summary}" if name in described else name)


def explain(
    name: Annotated[
        str, typer.Argument(help="A strategy, drafter, topology, workload or metric; or topology, or profile.")
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(help="Of topology: a run, or overrides. Of profile: a run, and words of one of its decodes."),
    ] = None,
    runs: Annotated[Path, folder_option("--runs", "Where the newest run is looked for.")] = Path("runs"),
    config_dir: ConfigDir = None,
) -> None:
    """What a name means here, where it comes from, and what other tools call it.

    specla explain topology [RUN | OVERRIDE...] tells how topology=auto came to its tree: in a run, the newest unless
    one is named, or for these overrides, measured now.
    specla explain profile [RUN] [OVERRIDE...] writes the acceptance of a run's decode as drafter.profile reads it.
    """
    given = list(words or [])
    if name == "topology":
        _explain_topology(given, runs, config_dir)
    elif name == "profile":
        folder, rest = _run_of(given, runs)
        _explain_profile(folder, rest)
    elif given:
        raise SpeclaError(f"explain {name} {' '.join(given)}: one name at a time; only topology and profile take words")
    else:
        _explain_name(name)


def _run_of(words: list[str], runs: Path) -> tuple[Path, list[str]]:
    """The run that is named first, else the newest, and the words after it."""
    from specla.bench.store import newest_run

    if words and "=" not in words[0]:
        return Path(words[0]), words[1:]
    return newest_run(runs), words


def _explain_topology(words: list[str], runs: Path, config_dir: str | None) -> None:
    from specla.report.choice import choice_lines, with_choice

    if any("=" in word for word in words):
        records, where = _chosen_now(words, config_dir), " ".join(words)
    else:
        folder, rest = _run_of(words, runs)
        if rest:
            raise SpeclaError(f"explain topology {' '.join(words)}: give one run, or overrides")
        records, where = _records(folder), str(folder)
    for number, record in enumerate(with_choice(records, where)):
        for line in ([""] if number else []) + choice_lines(record):
            say(line)


def _chosen_now(words: list[str], config_dir: str | None) -> "list[Record]":
    from specla.bench.plan import plan

    # What is explained is the chosen tree, whatever the overrides are about.
    named = any(word.startswith("topology=") for word in words)
    planned = plan("bench e2e", words if named else ["topology=auto", *words], config_dir)
    for note in planned.notes:
        log(note)
    from specla.bench.run import Observer, choose_trees, prepare

    with progress("explain topology") as (total, tick):
        return choose_trees(prepare(planned), Observer(log, total, tick))


def _explain_profile(folder: Path, words: list[str]) -> None:
    from specla.bench.store import json_text
    from specla.report.profile import profile_of

    typer.echo(json_text(profile_of(_records(folder), words)), nl=False)


def _records(folder: Path) -> "list[Record]":
    from specla.bench.lines import read_records
    from specla.bench.record import latest
    from specla.bench.store import RECORDS

    return latest(read_records(folder / RECORDS).records)


def _explain_name(name: str) -> None:
    from specla.bench.strategies import DIALS, TERMS, Verify
    from specla.bench.validate import nearest

    found = False
    for dial, choices in DIALS.items():
        if name in choices:
            found, choice = True, choices[name]
            paper = f" (paper, section {choice.paper})" if choice.paper else ""
            say(f"{dial}={name}: {choice.summary}{paper}")
            if isinstance(choice, Verify):
                say(f"  recovers with: {', '.join(choice.recovers)}{'; chains only' if choice.chains_only else ''}")
    if name in TERMS:
        found = True
        say(f"{name}: {TERMS[name]}")
    if not found:
        known = ["topology", "profile", *TERMS, *(choice for choices in DIALS.values() for choice in choices)]
        raise SpeclaError(f"nothing is called '{name}'{nearest(name, known)}; specla list shows the options")
