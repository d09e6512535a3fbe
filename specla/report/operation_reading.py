"""What the timed operations say, in sentences made from them: what is faster, by how much, and where it is not."""

from collections.abc import Iterator

import pandas as pd

from specla.report.load import rows_of
from specla.report.operations import (
    DEFER,
    RECOVER,
    VERIFY,
    Operation,
    against,
    measured,
    span_text,
    where,
    winners,
)
from specla.report.panels import ordered_strategies
from specla.report.tables import Section
from specla.report.verify_plots import winner_title

_NEAR = 1.05
"""`auto` picked well where it takes at most this many times as long as the fastest."""
_NAMED = 3


def operation_sentences(section: Section) -> list[str]:
    """The findings of the ablations of one setting."""
    return [*_verification(section), *_commits(section), *_deferral(section)]


def _verification(section: Section) -> Iterator[str]:
    rows = against(section.kernels, section.ratios, VERIFY)
    rows = rows[(rows.verify != "ar")]
    for chain, kind in ((False, "trees"), (True, "chains")):
        part = rows[rows.chain == chain]
        if len(part):
            spans = [f"{label} {span_text(some)}{_from_nodes(some)}" for label, some in _by_strategy(part, "verify")]
            yield f"Verifying {kind}, as a multiple of sequential replay's speed ({_points(part)}): {'; '.join(spans)}."
    found = winners(section.kernels, section.ratios)
    if len(found) and (found.next != "").any():
        yield f"{winner_title(found)}{_distance(found, section)}{_exceptions(found)}."
    yield from _auto(section, found)
    yield from _behind(rows, VERIFY, "Verification")


def _by_strategy(rows: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    for _, label in ordered_strategies(rows, column):
        yield label, rows[rows.label == label]


def _points(rows: pd.DataFrame) -> str:
    batches = sorted(int(batch) for batch in rows.batch.unique())
    nodes = sorted(int(count) for count in rows.nodes.unique())
    size = f"{nodes[0]} to {nodes[-1]} nodes" if len(nodes) > 1 else f"{nodes[0]} nodes"
    return f"{size}, batch {', '.join(str(batch) for batch in batches)}"


def _from_nodes(rows: pd.DataFrame) -> str:
    """From how many nodes up every cell is surely ahead; empty where all are, or where that cannot be told."""
    known = rows[rows.ratio_low.notna()]
    sizes = sorted(int(count) for count in known.nodes.unique())
    ahead = [size for size in sizes if bool((known[known.nodes >= size].ratio_low > 1).all())]
    if not sizes or ahead[:1] == sizes[:1]:
        return ""
    return f" (ahead from {ahead[0]} nodes up)" if ahead else " (ahead at no size throughout)"


def _exceptions(found: pd.DataFrame) -> str:
    """Where another than the most frequent winner is ahead, and how often the first two are not told apart."""
    lead = found.winner.value_counts().sort_index().idxmax()
    others = found[found.winner != lead].assign(kind="verify")
    told = ""
    if len(others):
        named = [f"{str(row.winner).replace('_', ' ')} on {where(row)}" for row in rows_of(others)][:_NAMED]
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        told = f". Another than {str(lead).replace('_', ' ')}: {'; '.join(named)}{more}"
    unsure = int((~found.sure.astype(bool)).sum())
    return told + (f". The first two are not told apart in {unsure}" if unsure else "")


def _distance(found: pd.DataFrame, section: Section) -> str:
    over = section.kernels[section.kernels.cell.isin(found.cell)].x_floor.dropna()
    if over.empty:
        return ""
    span = f"{over.min():.1f} to {over.max():.1f}" if len(over) > 1 else f"{over.max():.1f}"
    return f", and {span} times the floor"


def _auto(section: Section, found: pd.DataFrame) -> Iterator[str]:
    cells = measured(section.kernels, "verify")
    chosen = cells[cells.verify == "auto"].merge(found[["topology", "batch", "variant", "winner_us"]])
    if len(chosen):
        near = int((chosen.time_us <= _NEAR * chosen.winner_us).sum())
        worst = float((chosen.time_us / chosen.winner_us).max())
        told = f"What auto picks is within 5 % of the fastest in {near} of {len(chosen)} cases"
        yield f"{told}, at worst {worst:.2f}x its time."


def _behind(rows: pd.DataFrame, operation: Operation, what: str) -> Iterator[str]:
    """The cells that are surely slower than their baseline."""
    slower = rows[rows.ratio_high < 1]
    baseline = operation.baseline.replace("_", " ")
    if slower.empty:
        return
    ordered = slower.sort_values(["ratio", "cell"])
    named = [f"{row.label} {row.ratio:.2f}x on {where(row)}" for row in rows_of(ordered.head(_NAMED))]
    more = f" and {len(slower) - _NAMED} more" if len(slower) > _NAMED else ""
    yield f"{what} slower than {baseline} in {len(slower)} of {len(rows)} cells: {'; '.join(named)}{more}."


def _commits(section: Section) -> Iterator[str]:
    rows = against(section.kernels, section.ratios, RECOVER)
    if rows.empty:
        return
    spans = [f"{label} {span_text(some)}{_from_accepted(some)}" for label, some in _by_strategy(rows, "recover")]
    yield f"Committing, as a multiple of token replay's speed: {'; '.join(spans)}."
    cells = measured(section.kernels, "recover")
    keys = ["topology", "batch", "accepted", "variant"]
    best = cells.sort_values(["time_us", "cell"]).drop_duplicates(keys)
    counts = best.label.value_counts()
    order = sorted(counts.index, key=lambda name: (-int(counts[name]), name))
    told = f"The fastest commit: {', '.join(f'{name} in {counts[name]}' for name in order)} of {len(best)} cases"
    yield f"{told}{_kept(cells)}."
    yield from _behind(rows, RECOVER, "A commit is")


def _kept(cells: pd.DataFrame) -> str:
    """The memory that a dense state a draft takes beside compact factors."""
    kept = cells[cells.kept_bytes > 0].groupby("recover").kept_bytes.max()
    if {"snapshot", "factors"} <= set(kept.index):
        times = kept["snapshot"] / kept["factors"]
        return f"; a snapshot keeps {times:,.0f} times the bytes of factors for each draft token"
    return ""


def _from_accepted(rows: pd.DataFrame) -> str:
    known = rows[rows.ratio_low.notna()]
    counts = sorted(int(count) for count in known.accepted.dropna().unique())
    ahead = [count for count in counts if bool((known[known.accepted >= count].ratio_low > 1).all())]
    if not counts or ahead[:1] == counts[:1]:
        return ""
    return f" (ahead from {ahead[0]} accepted on)" if ahead else " (ahead at no length throughout)"


def _deferral(section: Section) -> Iterator[str]:
    rows = against(section.kernels, section.ratios, DEFER)
    names = {"factors_deferred": "Deferring the commit into the next verification", "factors_lazy": "A lazy ring"}
    for name, words in names.items():
        part = rows[rows.recover == name]
        if part.empty:
            continue
        spans = [f"{span_text(some)} at batch {batch}" for batch, some in part.groupby("batch")]
        sure, unsure = int((part.ratio_low > 1).sum()), int(((part.ratio_low <= 1) & (part.ratio_high >= 1)).sum())
        told = f"{words}, as a multiple of the speed of committing at once: {', '.join(spans)}"
        told += f"; ahead for certain in {sure} of {len(part)} cells"
        yield told + (f", not told apart in {unsure}." if unsure else ".")
    yield from _behind(rows, DEFER, "Putting the commit off is")
