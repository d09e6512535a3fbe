"""`specla list` and `specla explain`: what there is to choose from, and what it means."""

from typing import Annotated

import typer

from specla.errors import SpeclaError


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
            typer.echo(f"{name}: {', '.join(values)}")
        for dial in ("engine.verify", "engine.recover"):
            typer.echo(f"{dial}: {', '.join(DIALS[dial])}")
        return
    dial = group if group in DIALS else f"{group}.name"
    described = DIALS.get(dial, {})
    if group not in options and not described:
        raise SpeclaError(f"no group '{group}'{nearest(group, [*options, *DIALS])}")
    for name in options.get(group, list(described)):
        typer.echo(f"{name}: {described[name].summary}" if name in described else name)


def explain(name: Annotated[str, typer.Argument(help="A strategy, drafter, topology, workload or metric.")]) -> None:
    """What a name means here, where it comes from, and what other tools call it."""
    from specla.bench.strategies import DIALS, TERMS, Verify
    from specla.bench.validate import nearest

    found = False
    for dial, choices in DIALS.items():
        if name in choices:
            found, choice = True, choices[name]
            paper = f" (paper, section {choice.paper})" if choice.paper else ""
            typer.echo(f"{dial}={name}: {choice.summary}{paper}")
            if isinstance(choice, Verify):
                typer.echo(
                    f"  recovers with: {', '.join(choice.recovers)}{'; chains only' if choice.chains_only else ''}"
                )
    if name in TERMS:
        found = True
        typer.echo(f"{name}: {TERMS[name]}")
    if not found:
        known = [*TERMS, *(choice for choices in DIALS.values() for choice in choices)]
        raise SpeclaError(f"nothing is called '{name}'{nearest(name, known)}; specla list shows the options")
