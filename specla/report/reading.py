"""What the figures say, in sentences made from them: the fastest, by how much, where speculation does not pay, and what
was not measured."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from specla.bench.record import Sample
from specla.bench.stats import NO_INTERVAL, step_us
from specla.report.acceptance import even_text
from specla.report.batch_plot import batch_sentences
from specla.report.claims import Judged
from specla.report.escape import for_markdown
from specla.report.evidence import break_even_of, describe, interval_text, passed_decodes, sweeps
from specla.report.length import length_sentences
from specla.report.load import SETTING, Loaded, rows_of
from specla.report.operation_reading import operation_sentences
from specla.report.operations import OPERATIONS
from specla.report.plots import main_cells
from specla.report.tables import MEASURED, Section, by_number, measured_text, number

_NAMED = 4


def section_sentences(section: Section, loaded: Loaded) -> list[str]:
    """The findings of one device, model and dtype."""
    passed = passed_decodes(main_cells(section))
    panels = sorted(passed.panel.unique(), key=by_number)
    found = [sentence for panel in panels for sentence in _fastest(passed[passed.panel == panel])]
    found += _bandwidth(section) + _other_engines(passed)
    trees = passed.why.str.startswith("topology=auto")
    for chosen in (passed[trees], passed[(passed.verify == "auto") & ~trees]):
        found += [f"{why}." for why in sorted(set(chosen.why))[:_NAMED] if why]
    found += _does_not_pay(passed[passed.verify != "ar"])
    found += batch_sentences(section)
    found += _studies(section)
    found += _break_evens(section, loaded)
    found += length_sentences(section)
    found += _step_split(section, loaded)
    return [*found, *_gate(section), *operation_sentences(section)]


def claim_sentences(judged: Iterable[Judged]) -> list[str]:
    """The claims on single operations, each beside the paper's band, and on what it was measured."""
    found = []
    for one in judged:
        operation = OPERATIONS.get(one.claim.id)
        if operation is None or one.measured is None:
            continue
        place = "a CPU" if any(part.endswith("(a CPU)") for part in one.differs) else one.device
        low, high = operation.band
        told = f"{one.claim.id}: on {place}, {operation.ours} against {one.claim.baseline} gives {measured_text(one)}"
        found.append(f"{told}; the paper has {low:.2f}x to {high:.2f}x on an H100 ({one.verdict.replace('_', ' ')}).")
    return found


def conditions(section: Section, loaded: Loaded) -> list[str]:
    """What was decoded, a line for each AR that methods were timed beside."""
    lines = []
    for row in rows_of(section.cells[section.cells.baseline & section.cells.status.isin(("passed", "inconclusive"))]):
        record = loaded.records[row.cell]
        prompts = {prompt for sample in record.samples if isinstance(sample, Sample) for prompt in sample.prompts}
        if record.counts is None or not prompts:
            continue
        greedy = record.sampling.temperature == 0
        how = "greedy" if greedy else f"temperature {record.sampling.temperature:g}, top_p {record.sampling.top_p:g}"
        tokens = record.counts.emitted / len(prompts)
        counted = f"{len(prompts)} prompt{'s' * (len(prompts) != 1)}"
        line = f"{row.panel}: {counted} at batch {record.batch}, {how}, {tokens:.0f} tokens a prompt after "
        lines.append(f"{line}the prefill's.")
    # Several groups of one run time the same AR: one line says it.
    return list(dict.fromkeys(lines))


def _fastest(group: pd.DataFrame) -> list[str]:
    """The fastest of one workload, and whether the next is certainly behind."""
    ordered = list(rows_of(group.sort_values(["speedup", "cell"], ascending=[False, True])))
    best = ordered[0]
    told = f"{best.panel}: the fastest is {_named(best)}, {interval_text(best.speedup, best.low, best.high)} AR"
    told += f" over {int(best.n)} repeats."
    if len(ordered) > 1:
        rival = ordered[1]
        ahead = 100 * (best.speedup / rival.speedup - 1)
        apart = pd.notna(best.low) and pd.notna(rival.high) and best.low > rival.high
        told += f" That is {ahead:.1f} % ahead of {_named(rival)}"
        told += "." if apart else ", but the two intervals overlap."
    real = [row for row in ordered if not row.synthetic and row.verify != "ar"]
    if best.synthetic and real:
        told += f" Without made-up acceptance it is {_named(real[0])}, {number(real[0].speedup, 2)}x."
    return [told]


def _bandwidth(section: Section) -> list[str]:
    """How much of the memory's bandwidth AR needs, by batch: a speedup over a slow AR is worth little."""
    rows = section.cells[section.cells.baseline & section.cells.mbu.notna() & section.cells.status.isin(MEASURED)]
    first = sorted(rows_of(rows.drop_duplicates("panel")), key=lambda row: by_number(row.panel))
    told = [f"{100 * row.mbu:.0f} % on {row.panel}" for row in first]
    return [f"AR's mbu, the share of the memory bandwidth that does needed work: {'; '.join(told)}."] if told else []


def _other_engines(passed: pd.DataFrame) -> list[str]:
    """How other ways of decoding without drafts compare: what a speedup against them would be worth."""
    rows = passed[passed.verify == "ar"].sort_values(["panel", "speedup", "cell"], ascending=[True, False, True])
    if rows.empty:
        return []
    told = [
        f"{row.engine if row.engine != 'specla' else row.recover} {interval_text(row.speedup, row.low, row.high)}"
        f" on {row.panel}"
        for row in rows_of(rows)
    ]
    return [f"Other AR, as a multiple of ours: {'; '.join(told)}."]


def _does_not_pay(passed: pd.DataFrame) -> list[str]:
    if passed.empty:
        return []
    slower = passed[passed.high < 1]
    unsure = passed[(passed.low <= 1) & (passed.high >= 1)]
    if slower.empty:
        told = f"Every one of the {len(passed)} methods measured is at least as fast as AR, as far as intervals tell."
    else:
        told = f"Speculation does not pay in {len(slower)} of {len(passed)} cells (the interval lies below 1): "
        told += _by_verify(slower, passed) + "."
    if len(unsure):
        rest = f"{len(unsure)} of them" if slower.empty else f"{len(unsure)} more"
        told += f" In {rest} the interval includes 1: no difference was shown."
    few = int((passed.low.isna()).sum())
    if few:
        told += f" {few} cells have too few repeats for an interval."
    return [told]


def _studies(section: Section) -> list[str]:
    """The points of sweeps over acceptance and length, which no other count has: how many are slower than AR."""
    points = passed_decodes(section.cells)
    points = points[points.study & (points.verify != "ar")]
    if points.empty:
        return []
    slower, unsure = int((points.high < 1).sum()), int(((points.low <= 1) & (points.high >= 1)).sum())
    told = (
        f"Sweeps of acceptance and length are counted apart: of their {len(points)} points {slower} are slower than AR"
    )
    return [told + (f", and in {unsure} the interval includes 1." if unsure else ".")]


def _by_verify(slower: pd.DataFrame, passed: pd.DataFrame) -> str:
    whole = dict(passed.verify.value_counts())
    parts = []
    for name, count in sorted(slower.verify.value_counts().items(), key=lambda pair: (-pair[1], str(pair[0]))):
        worst = number(slower[slower.verify == name].speedup.min(), 2)
        share = "always" if count == whole[name] else f"{count} of {whole[name]}"
        parts.append(f"{name} ({share}, down to {worst}x)")
    return ", ".join(parts)


def _break_evens(section: Section, loaded: Loaded) -> list[str]:
    setting = (section.device, section.model, section.dtype)
    told: list[tuple[float, str]] = []
    for sweep in sweeps(loaded):
        row = sweep.iloc[0]
        if tuple(row[list(SETTING)]) != setting:
            continue
        alpha = break_even_of(loaded, sweep, "alpha_asked")
        share = break_even_of(loaded, sweep, "draft_efficiency").interval
        words = f"{describe(row, swept=True)} on {row.workload} {even_text(alpha, 'alpha ')}"
        bounds = f", {share.low:.2f} to {share.high:.2f}" if share.has_bounds else ""
        words += f" (draft_efficiency {share.median:.2f}{bounds})" if share.median is not None else ""
        at = alpha.interval.median
        told.append((at if at is not None else float(alpha.side == "above"), words))
    told.sort()
    found = [f"With synthetic acceptance, {words}." for _, words in told[:_NAMED]]
    return found + ([f"{len(told) - _NAMED} more sweeps are in speedup-alpha.csv."] if len(told) > _NAMED else [])


def _step_split(section: Section, loaded: Loaded) -> list[str]:
    """The median step, and apart from it the phases: medians of parts do not add up to the median of the whole."""
    cells = passed_decodes(main_cells(section))
    cells = cells[cells.verify_us.notna()]
    if cells.empty:
        return []
    best = next(rows_of(cells.sort_values("speedup", ascending=False, kind="stable")))
    parts = {name: float(getattr(best, f"{name}_us")) for name in ("draft", "verify", "accept", "commit")}
    whole = sum(parts.values()) or 1.0
    told = ", ".join(f"{name} {100 * value / whole:.0f} %" for name, value in parts.items())
    decoding = loaded.records[best.cell].decoding
    step = step_us(decoding.samples) if decoding else NO_INTERVAL
    if step.median is None:
        return []
    takes = f"{step.median:.0f} us" + (f" ({step.low:.0f} to {step.high:.0f})" if step.has_bounds else "")
    where = f"A step of {_named(best)} on {best.panel} takes {takes}, median over repeats"
    return [f"{where}. Of the sum of its phases' medians, {whole:.0f} us: {told}."]


def _gate(section: Section) -> list[str]:
    cells = section.cells[section.cells.status == "passed"]
    exact, near = cells[cells.lossless == "exact"], cells[cells.lossless == "near_tie"]
    if exact.empty and near.empty:
        return []
    told = f"Losslessness: {len(exact)} cells exact"
    if len(near):
        told += f", {len(near)} with near ties ({near.near_ties.sum()} of {near.gate_positions.sum()} positions)"
        worst = near.worst_tie.max()
        told += "" if pd.isna(worst) else f", the worst at {worst:.2f} of its bound"
    return [told + "."]


def unmeasured_sentences(loaded: Loaded) -> list[str]:
    """What failed, was inconclusive or does not apply; what is missing stands at the report's top."""
    told = []
    words = {"failed": "failed", "inconclusive": "ended inconclusive", "not_applicable": "not applicable"}
    for status, said in words.items():
        cells = loaded.cells[loaded.cells.status == status]
        if len(cells):
            told.append(f"{_count(len(cells))} {said}: {_reasons(cells)}.")
    if loaded.repeated:
        told.append(f"{_count(loaded.repeated)} measured in more than one run; the newest counts.")
    return told


def _reasons(cells: pd.DataFrame) -> str:
    """Cells by reason, the most frequent reason first."""
    groups = [(str(reason), group) for reason, group in cells.groupby("reason")]
    groups.sort(key=lambda pair: (-len(pair[1]), pair[0]))
    parts = []
    for reason, group in groups[:_NAMED]:
        names = list(dict.fromkeys(_named(row) for row in rows_of(group)))
        parts.append(f"{_some(names)} ({reason or 'no reason given'})")
    return "; ".join(parts) + (f"; and {len(groups) - _NAMED} other reasons" if len(groups) > _NAMED else "")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _count(number_of: int) -> str:
    return f"{number_of} cell" + ("s" if number_of != 1 else "")


def _named(row: Any) -> str:
    """A cell's method in words, marked where its acceptance is made up."""
    return describe(row) + (" (synthetic)" if row.synthetic else "")


def bullet_list(sentences: Iterable[str]) -> str:
    """Markdown bullets, a sentence each, in which data is shown as it stands."""
    return "".join(f"- {for_markdown(sentence)}\n" for sentence in sentences)
