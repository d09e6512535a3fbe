"""`make regress` and `make baseline`: whether this working tree is slower, or does something else, than a base commit.

Tools of this checkout rather than of its users, so `specla --help` does not list them.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specla.cli.compare import EXIT, MarkdownFile, append_summary, show_comparison
from specla.cli.console import JsonFlag, folder_option, log, print_json, progress, say
from specla.errors import SpeclaError
from specla.report.escape import code

if TYPE_CHECKING:
    from specla.bench.exact import Baseline
    from specla.report.compare import Comparison

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def regress(
    base: Annotated[
        str, typer.Option("--base", help="The commit to compare with; where HEAD left origin/main, or before it.")
    ] = "",
    rounds: Annotated[
        int | None, typer.Option("--rounds", help="Rounds of new processes; an interval takes 5.")
    ] = None,
    exact_only: Annotated[bool, typer.Option("--exact-only", help="Check the exact figures and time nothing.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Record the exact figures as they are now.")] = False,
    out: Annotated[Path, folder_option("--out", "The folder that gets both sides' runs.")] = Path("runs/regress"),
    markdown: MarkdownFile = None,
    json: JsonFlag = False,
) -> None:
    """Time a base commit and the working tree side by side, and hold exact figures against the tracked ones.

    Exit: 1 regression, 3 inconclusive, 0 neither, 2 bad input, 4 a side could not be measured.
    """
    from specla.bench.checkout import repository

    if rounds is not None and rounds < 1:
        raise SpeclaError(f"--rounds={rounds}: give 1 or more; an interval takes 5")
    root = repository()
    if record:
        _record(root)
        return
    from specla.bench.exact import TRACKED, read_baseline

    # Read first: a missing file should not cost three minutes of timing.
    tracked = read_baseline(root / TRACKED)
    timed = None if exact_only else _times(root, base, rounds, out)
    if timed is not None:
        show_comparison(timed, markdown, json=False)
    exact = _exact(tracked)
    statuses = [exact["status"], *([timed.status] if timed is not None else [])]
    status = next(name for name in EXIT if name in statuses)
    say(f"regress: {status}")
    if json:
        from specla.report.compare_text import compare_document

        print_json({**(compare_document(timed) if timed is not None else {}), "exact": exact, "status": status})
    raise typer.Exit(EXIT[status])


def _times(root: Path, asked: str, rounds: int | None, out: Path) -> "Comparison":
    from specla.bench.checkout import checked_out, choose_base
    from specla.bench.sidebyside import ROUNDS, Watch, measure_side_by_side
    from specla.report.compare import compare_runs

    base = choose_base(root, asked)
    log(f"base: {base.commit[:12]} ({base.why})")
    with checked_out(root, base.commit) as folder, progress("regress") as (total, tick):
        before, after = measure_side_by_side(folder, root, out, Watch(log, total, tick), rounds or ROUNDS)
    log(f"specla compare {before} {after}")
    return compare_runs(before, after)


def _record(root: Path) -> None:
    from specla.bench.exact import TRACKED, measure_exact, write_baseline

    write_baseline(root / TRACKED, measure_exact())
    say(f"{TRACKED}: recorded; commit it with the change that it comes from")


def _exact(tracked: "Baseline") -> dict[str, Any]:
    """Check the exact figures, print what differs, and return it for the JSON document."""
    from specla.bench.exact import RECORD, deviations, difference_lines, measure_exact

    found, notes = deviations(tracked, measure_exact())
    lines = difference_lines(found)
    told = f"exact figures of {len(tracked.cells)} cells: {f'{len(found)} differences' if found else 'as tracked'}"
    if found:
        told += f"; where that is intended, `{RECORD}` records it"
    for line in (*lines, *notes, told):
        say(line)
    append_summary(f"## Exact figures\n\n{told}\n\n" + "".join(f"- {code(line)}\n" for line in (*lines, *notes)))
    return {
        "status": "regression" if found else "passed",
        "differences": [vars(one) for one in found],
        "notes": notes,
    }


if __name__ == "__main__":
    from specla.cli.main import main

    main(app)
