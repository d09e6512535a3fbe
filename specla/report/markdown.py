"""report.md: claims first, then what the figures say, tables and pictures, at the foot what they were measured on."""

from collections.abc import Mapping, Sequence
from typing import Any

from specla.report.claims import Judged
from specla.report.escape import NAME, SENTENCE, bold, for_markdown, shown
from specla.report.evidence import with_drafts_only
from specla.report.kernel_appendix import appendix
from specla.report.kernel_tables import HEADINGS, kernel_markdown
from specla.report.length import length_markdown
from specla.report.load import DAMAGED, Loaded, Run
from specla.report.reading import bullet_list, claim_sentences, conditions, section_sentences, unmeasured_sentences
from specla.report.style import Plot
from specla.report.tables import MEASURED, Section, claims_markdown, speed_markdown

_VERDICTS = (
    "A verdict compares the 95 % interval with the claim's band: *reproduced* meets it, *exceeded* lies above, *short* "
    "lies below (for ACCEPT lower is better). A range 'over' several cells goes from the lowest bound to the highest. "
    "For VERIFY, RECOVER, DEFER and ACCEPT an interval that overlaps the band and is wider than it (high over low, as "
    "a ratio) is too noisy to judge: such a cell is left out, and where most are there is no verdict. One wholly "
    "outside of the band counts, however wide. ACCEPT's break-even is interpolated between the points swept. "
    "*not_measured*: no cell here speaks to it, or the reason that stands beside it. Synthetic acceptance never earns "
    "a verdict for E2E.\n"
)
_FACTS = (
    *(("date", "date"), ("device", "device"), ("GPU", "gpu"), ("CPU", "cpu"), ("cores", "cores")),
    *(
        ("torch threads", "torch_threads"),
        ("versions", "versions"),
        ("commit", "commit"),
        ("uncommitted edits", "dirty"),
    ),
    *(("diff", "diff_hash"), ("earlier sessions", "earlier")),
)
_EXPECTED = ("date", "device", "cpu", "versions", "commit", "dirty")


def report_markdown(
    loaded: Loaded, judged: Sequence[Judged], parts: Sequence[tuple[Section, Sequence[Plot]]], status: str
) -> str:
    """The whole report as Markdown; the pictures lie beside it."""
    text = f"# SpecLA: measured beside claimed\n\nStatus: **{status}**. {for_markdown(_covers(loaded))}\n\n"
    text += _warning(loaded)
    text += f"## Claims\n\n{claims_markdown(judged)}\n{_VERDICTS}\n"
    text += "## Reading\n\n"
    if beside := claim_sentences(judged):
        text += bullet_list(beside) + ("\n" if len(parts) > 1 else "")
    for section, _ in parts:
        heading = f"{bold(section.title)}\n\n" if len(parts) > 1 else ""
        text += heading + bullet_list(section_sentences(section, loaded)) + ("\n" if heading else "")
    text += bullet_list(unmeasured_sentences(loaded)) + "\n"
    text += "".join(_section_text(section, plots, loaded) for section, plots in parts)
    text += "## Measured on\n\n" + "\n".join(_run_text(run) for run in loaded.runs)
    text += appendix(loaded)
    return text + "\nEvery figure is computed from `records/`; `specla report` on this folder rebuilds the report.\n"


def _section_text(section: Section, plots: Sequence[Plot], loaded: Loaded) -> str:
    """One setting: its decodes, then each ablation of one operation, every part with its tables and pictures."""
    text = f"## {for_markdown(section.title)}\n\n"
    several = len(section.cells) and len(section.kernels)
    if len(section.cells):
        text += "### End to end\n\n" if several else ""
    if table := speed_markdown(section):
        text += "Speedup is the median over paired repeats of AR's time per token over the method's, with its 95 % "
        text += (
            "interval; n repeats are in the CSV. tok/s is of the method's own windows: AR ran beside each method, so "
        )
        text += "methods compare by speedup. An oracle's figures in brackets are its alpha by depth and rank.\n\n"
        text += bullet_list(conditions(section, loaded)) + "\n" + table + "\n"
    elif len(section.cells):
        text += "No decode was measured.\n\n"
    if len(section.cells):
        lengths = length_markdown(section)
        text += f"Speedup by levels of drafts, the best of each row in bold:\n\n{lengths}\n" if lengths else ""
        text += "".join(_picture(plot) for plot in plots if plot.about == "e2e")
    for kind, heading in HEADINGS.items():
        tables = kernel_markdown(section, kind)
        if tables:
            text += f"### {heading}\n\n{tables}\n"
            text += "".join(_picture(plot) for plot in plots if plot.about == kind)
    return text


def _warning(loaded: Loaded) -> str:
    """What is missing, damaged or foreign in the records, before any figure is read; empty where nothing is."""
    if not loaded.notes:
        return ""
    lines = bullet_list(f"Partial: {note}." for note in loaded.notes)
    return f"{bold(DAMAGED)}\n\n{lines}\n"


def _covers(loaded: Loaded) -> str:
    decodes = loaded.cells[~loaded.cells.kernel & (loaded.cells.status == "passed")]
    synthetic = int(with_drafts_only(decodes).synthetic.sum())
    runs = ", ".join(shown(run.name) for run in loaded.runs)
    count, of = int(loaded.cells.status.isin(MEASURED).sum()), len(loaded.cells)
    told = f"{of} cells from {runs}." if count == of else f"{count} of {of} cells were measured, from {runs}."
    have, say = ("has", "says") if synthetic == 1 else ("have", "say")
    told += f" {synthetic} of them {have} synthetic acceptance and {say} so." if synthetic else ""
    operations = int(loaded.cells.kernel.sum())
    return told + (f" {operations} time one operation on random inputs." if operations else "")


def _picture(plot: Plot) -> str:
    image = f"![{for_markdown(plot.title)}]({plot.name}.png)"
    return f"{image}\n\n{for_markdown(plot.note)} Figures: [{plot.name}.csv]({plot.name}.csv)\n\n"


def _run_text(run: Run) -> str:
    """One run's machine and code; what was not recorded is said to be so."""
    told = {label: run.env[key] for label, key in _FACTS if run.env.get(key) not in (None, "", {}, [])}
    known = [f"- {label}: {for_markdown(_value(value), SENTENCE)}" for label, value in told.items()]
    lost = [label for label, key in _FACTS if key in _EXPECTED and run.env.get(key) is None]
    if lost:
        known.append(f"- not recorded: {', '.join(lost)}")
    return f"### {for_markdown(run.name, NAME)}\n\n" + "\n".join(known) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(part)}" for name, part in value.items())
    if isinstance(value, list):
        return "; ".join(_value(part) for part in value)
    return str(value)
