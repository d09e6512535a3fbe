"""The tables of a report: names of methods as short as they can be told apart, frames for CSV, and Markdown."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from specla.report.claims import Judged
from specla.report.escape import Markdown, bold, file_names, for_markdown
from specla.report.evidence import interval_text, with_drafts_only
from specla.report.load import SETTING, Loaded, rows_of

PANEL = ("workload", "categories", "batch", "temperature", "top_p")
"""The columns that tell a section's panels apart."""
MEASURED = ("passed", "inconclusive")
"""How a cell ends that has performance."""
VERIFY_ORDER = ("ar", "sequential_replay", "naive_batched", "parent_pointer", "chain", "tree", "hybrid", "auto")


@dataclass(frozen=True)
class Section:
    """The cells of one device, model and dtype, with what the plots draw from."""

    device: str
    model: str
    dtype: str
    slug: str
    """Added to the files' names where a report has several sections; empty otherwise."""
    cells: pd.DataFrame
    """Decode cells with `method` (label), `panel` (label), `shown` (the name of the tree, and the length of the text
    where it varies) and `text_told` (that length alone)."""
    kernels: pd.DataFrame
    """Cells that time one operation, with `label`, the strategy's name."""
    ratios: pd.DataFrame
    """Of those, as `Loaded.ratios`."""

    @property
    def title(self) -> str:
        """What the section is about."""
        return f"{self.model}, {self.dtype}, {self.device}"


def sections(loaded: Loaded) -> list[Section]:
    """One section for each device, model and dtype, those with decodes first."""
    groups = [(key, group) for key, group in loaded.cells.groupby(list(SETTING), sort=True)]
    groups.sort(key=lambda pair: bool(pair[1].kernel.all()))
    titles = [f"{device}, {model}, {dtype}" for (device, model, dtype), _ in groups]
    slugs = file_names(titles) if len(titles) > 1 else {}
    found = []
    for key, group in groups:
        device, model, dtype = (str(part) for part in key)
        slug = slugs.get(f"{device}, {model}, {dtype}", "")
        kernels = _operations(group[group.kernel])
        ratios = loaded.ratios[loaded.ratios.cell.isin(kernels.cell)]
        found.append(Section(device, model, dtype, slug, _labelled(group[~group.kernel]), kernels, ratios))
    return found


def _operations(cells: pd.DataFrame) -> pd.DataFrame:
    """Labels by what the ablation varies; the other half of a method is told where a strategy has several of it."""
    label = cells.verify.where(cells.kind == "verify", cells.recover)
    other = cells.recover.where(cells.kind == "verify", cells.verify)
    keys = [cells.kind, label, cells.topology, cells.batch, cells.accepted.fillna(-1), cells.variant]
    several = other.groupby(keys).transform("nunique") > 1
    several = several.groupby([cells.kind, label]).transform("any") if len(cells) else several
    shown = label.map(lambda name: "AR" if name == "ar" else str(name).replace("_", " "))
    shown = shown.where(~several.astype(bool), shown + " (" + other.str.replace("_", " ") + ")")
    shown = shown + cells.tuning
    if cells.variant.nunique() > 1:
        shown = shown + cells.variant.map(lambda words: f", {words}" if words else "")
    return cells.assign(label=shown)


def _labelled(cells: pd.DataFrame) -> pd.DataFrame:
    if cells.empty:
        return cells.assign(method="", panel="", shown="", text_told="")
    text = _text_labels(cells)
    cells = cells.assign(text_told=text, shown=cells.topology.where(cells.topology != "root", "no drafts") + text)
    # A sweep's points and the methods of their own are never drawn together: each is told apart among its like.
    return with_drafts_only(cells).assign(
        method=pd.concat([_method_labels(part) for _, part in cells.groupby(["sweep", "length_sweep"], sort=True)]),
        panel=panel_labels(cells),
    )


def _text_labels(cells: pd.DataFrame) -> pd.Series:
    """The length of each cell's text where a panel has several: a speedup over 24 tokens is none over 128."""
    several = bool((cells.groupby(list(PANEL)).text_tokens.nunique() > 1).any())
    return cells.text_tokens.map(lambda tokens: f" ({tokens:.0f} tokens)" if several and pd.notna(tokens) else "")


def panel_labels(cells: pd.DataFrame) -> pd.Series:
    """The workload, and of batch and sampling what varies."""
    label = cells.workload.astype(str)
    if cells.categories.nunique() > 1:
        label = label + cells.categories.map(lambda told: f" ({told})" if told else "")
    if cells.batch.nunique() > 1:
        label = label + ", batch " + cells.batch.astype(str)
    if cells.temperature.nunique() > 1 or cells.top_p.nunique() > 1:
        label = label + ", T = " + cells.temperature.map("{:g}".format)
    if cells.top_p.nunique() > 1:
        # Greedy decoding has none.
        told = ", top-p = " + cells.top_p.map("{:g}".format)
        label = label + told.where(cells.temperature > 0, "")
    return label


def _method_labels(cells: pd.DataFrame) -> pd.Series:
    """The verification strategy, then what else it takes to tell the methods of a tree apart."""
    label = cells.verify.map(lambda name: "AR" if name == "ar" else name.replace("_", " "))
    drafting = cells[cells.verify != "ar"]
    varies = {
        "recover": bool((cells.groupby("verify").recover.nunique() > 1).any()),
        "drafter": drafting.drafter.nunique() > 1,
        "engine": cells.engine.nunique() > 1,
    }
    for column, told in varies.items():
        if told:
            extra = cells[column].where(~cells[column].isin(("none", "specla")), "").str.replace("_", " ")
            label = label + extra.map(lambda text: f", {text}" if text else "")
    place = [cells[name] for name in (*PANEL, "shown")]
    alike = label.groupby([label, *place]).transform("size") > 1
    asked = cells.asked.map(lambda told: f", alpha {told}" if told[:1].isdigit() or told[:1] == "[" else f", {told}")
    asked = asked.where(cells.asked != "", "")
    # An axis or a heading says what was asked for of a curve's points, nothing else does of a bar. What was paid for is
    # told wherever it stands: beside drafts for nothing it would look slow.
    label = label.where(~alike & cells.study & ~cells.asked.str.contains(" paid"), label + asked)
    return label + _told_apart(cells, [label, *place])


def _told_apart(cells: pd.DataFrame, keys: Sequence[pd.Series]) -> pd.Series:
    """For cells that no name tells apart, the overrides that not all of them share; else their section, or run."""
    told = pd.Series("", index=cells.index)
    for _, part in cells.groupby(list(keys), dropna=False):
        words = part.overrides.str.split()
        shared = set.intersection(*map(set, words))
        own = words.map(lambda line, shared=shared: "".join(f", {word}" for word in line if word not in shared))
        ways = own, ", " + part.group.astype(str), ", " + part.run.astype(str)
        if len(part) > 1:
            told[part.index] = next((way for way in ways if way.nunique() == len(part)), own)
    return told


def by_number(name: str) -> list[tuple[int, str]]:
    """A key that puts `n8` before `n16`."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def verify_rank(name: str) -> int:
    """A strategy's place in tables and legends."""
    return VERIFY_ORDER.index(name) if name in VERIFY_ORDER else len(VERIFY_ORDER)


def claims_frame(judged: Iterable[Judged]) -> pd.DataFrame:
    """claims.csv."""
    rows = []
    for one in judged:
        data = one.to_json()
        measured = data.pop("measured") or {}
        band = data.pop("band")
        row = {"id": data["id"], "part": data["part"], "claimed": data["claimed"]}
        row |= {"band_low": band["low"], "band_high": band["high"]}
        row |= {f"measured_{name}": measured.get(name) for name in ("median", "low", "high")}
        row |= {name: data[name] for name in ("baseline", "verdict", "device", "method")}
        rows.append({**row, "differs": "; ".join(data["differs"])})
    return pd.DataFrame(rows)


def claims_markdown(judged: Sequence[Judged]) -> str:
    """The table that a report opens with."""
    rows = []
    for one in judged:
        name = f"{one.claim.id} {one.claim.part}".strip()
        why = f": {one.barred}" if one.barred else ""
        verdict = bold(one.verdict) if one.verdict != "not_measured" else f"not_measured{why}"
        cells = (name, one.claim.claimed, measured_text(one), one.claim.baseline, verdict, one.method, one.device)
        rows.append([*cells, "; ".join(one.differs)])
    return markdown(("id", "claimed", "measured", "against", "verdict", "judged by", "device", "differs"), rows)


def measured_text(one: Judged) -> str:
    """A claim's measurement in words; a break-even outside of the sweep is a bound."""
    found, unit = one.measured, "" if one.claim.id == "ACCEPT" else "x"
    if found is None:
        return "-"
    if found.median is None:
        bound = f"below {found.high:.2f}" if found.high is not None else f"above {found.low:.2f}"
        return bound + " (the sweep's edge)"
    if one.cells > 1 and found.low is not None and found.high is not None:
        return f"{found.low:.2f}{unit} to {found.high:.2f}{unit} over {one.cells} cells"
    return interval_text(found.median, found.low, found.high, unit)


def speed_markdown(section: Section, most: int = 30) -> str:
    """The fastest cells of each panel and AR; empty without any. What did not pass is left to the reading."""
    passed = section.cells[section.cells.status.isin(MEASURED) & section.cells.tok_s.notna()]
    passed = passed[~passed.study]
    drafted = passed[~passed.baseline].panel
    passed = passed[passed.panel.isin(drafted)] if len(drafted) else passed
    rows = []
    for panel in sorted(passed.panel.unique(), key=by_number):
        group = passed[passed.panel == panel]
        drafting = group[group.verify != "ar"].sort_values(["speedup", "cell"], ascending=[False, True])
        others = group[(group.verify == "ar") & ~group.baseline]
        # Every length of text has an AR of its own; of one length, groups of cells time the same.
        baselines = group[group.baseline].drop_duplicates("text_told")
        shown = pd.concat([baselines, others, drafting.head(most)])
        rows += [[f"{panel}{row.text_told}", *_speed_row(row)] for row in rows_of(shown)]
        if len(drafting) > most:
            rows.append([str(panel), f"{len(drafting) - most} more in cells.csv", *[""] * 9])
    if not rows:
        return ""
    heads = (
        "workload",
        "method",
        "recover",
        "drafter",
        "tree",
        "speedup",
        "tok/s",
        "mbu",
        "tau",
        "draft_efficiency",
        "lossless",
    )
    return markdown(heads, rows)


def _speed_row(row: Any) -> list[str]:
    speedup = "1 (baseline)" if row.baseline else interval_text(row.speedup, row.low, row.high)
    marks = [mark for mark, on in (("synthetic", row.synthetic), ("inconclusive", row.status != "passed")) if on]
    lossless = tie_text(row.near_ties, row.worst_tie) if row.lossless == "near_tie" else row.lossless or "-"
    return [
        row.verify + (f" ({row.engine})" if row.engine != "specla" else ""),
        row.recover if row.recover != "none" else "-",
        f"{row.drafter} {row.asked}".strip() if row.drafter != "none" else "-",
        row.topology if row.topology != "root" else "-",
        Markdown(speedup + (f" *{', '.join(marks)}*" if marks else "")),
        number(row.tok_s, 1),
        "-" if pd.isna(row.mbu) else f"{100 * row.mbu:.0f} %",
        number(row.tau, 2),
        number(row.draft_efficiency, 2),
        lossless,
    ]


def tie_text(count: int, worst: float | None) -> str:
    """'near_tie (2, the worst at 0.31 of its bound)'; older records do not say how near."""
    near = "" if worst is None or pd.isna(worst) else f", the worst at {worst:.2f} of its bound"
    return f"near_tie ({count}{near})"


def number(value: float | None, digits: int) -> str:
    """A figure, or '-' where there is none."""
    return "-" if value is None or pd.isna(value) else f"{value:.{digits}f}"


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its text escaped where it is not `Markdown` already."""
    lines = ["| " + " | ".join(map(for_markdown, heads)) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(map(for_markdown, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"
