"""What the timed operations say, in sentences made from them: what is faster, by how much, and where it is not."""

from collections.abc import Iterator

import pandas as pd

from specla.report.load import rows_of
from specla.report.operations import (
    AUTO_ASIDE,
    DEFER,
    POINT,
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
from specla.report.verify_plots import micro, winner_title

_CANDIDATES = ("chain", "tree", "hybrid")
"""What `auto` picks from."""
_NEAR_SHARE, _NEAR_US = 0.03, 0.15
"""How far `auto` may be behind the fastest candidate, as a share of its time or in microseconds."""
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
        yield f"{winner_title(found)}{_distance(found, section)}{_exceptions(found)}{_left_out(section)}."
    yield from _auto(section)
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


def _left_out(section: Section) -> str:
    """That auto is no rival in this sentence, where it was measured."""
    return f". {AUTO_ASIDE}" if (measured(section.kernels, "verify").verify == "auto").any() else ""


def _distance(found: pd.DataFrame, section: Section) -> str:
    over = section.kernels[section.kernels.cell.isin(found.cell)].x_floor.dropna()
    if over.empty:
        return ""
    span = f"{over.min():.1f} to {over.max():.1f}" if len(over) > 1 else f"{over.max():.1f}"
    return f", and {span} times the floor"


def _auto(section: Section) -> Iterator[str]:
    """What auto picked, and apart from that its own time: it is timed by itself, so that the two may disagree."""
    cells = measured(section.kernels, "verify")
    best = cells[cells.verify.isin(_CANDIDATES)].sort_values(["time_us", "verify", "cell"]).drop_duplicates(list(POINT))
    names = ["verify", "label", "time_us", "time_low_us", "time_high_us"]
    best = best[[*POINT, *names]].rename(columns={name: f"best_{name}" for name in names})
    chosen = cells[cells.verify == "auto"].merge(best, on=list(POINT))
    if chosen.empty:
        return
    told = [_picks(chosen)] if (chosen.why != "").any() else []
    yield from [*told, _own_time(chosen)]


def _picks(chosen: pd.DataFrame) -> str:
    """How often the strategy that auto names is the one that was fastest when each was timed by itself."""
    known = chosen[chosen.why != ""]
    known = known.assign(picked=known.why.str.extract(r"^auto: (\w+)", expand=False).fillna(""))
    missed = known[known.picked != known.best_verify]
    told = f"auto picked the fastest of chain, tree and hybrid in {len(known) - len(missed)} of {_cases(len(known))}"
    named = [f"{row.picked} where {row.best_verify} was fastest on {where(row)}" for row in rows_of(missed)][:_NAMED]
    more = f" and {len(missed) - _NAMED} more" if len(missed) > _NAMED else ""
    told += f" (it picked {'; '.join(named)}{more})" if named else ""
    lost = len(chosen) - len(known)
    return f"{told}{f'; of {lost} more no pick is recorded' if lost else ''}."


def _own_time(chosen: pd.DataFrame) -> str:
    """Auto's time beside the best candidate's: near it, or not told apart from it, or behind."""
    over = chosen.time_us - chosen.best_time_us
    near = (over <= _NEAR_SHARE * chosen.best_time_us) | (over <= _NEAR_US)
    behind = ~near & ~(chosen.time_low_us <= chosen.best_time_high_us)
    bounded = chosen.time_low_us.notna() & chosen.best_time_high_us.notna()
    alike, unknown = ~near & ~behind & bounded, ~near & ~bounded
    told = f"auto's own time is within {100 * _NEAR_SHARE:.0f} % or {_NEAR_US} us of the fastest candidate's in "
    told += f"{int(near.sum())} of {_cases(len(chosen))}"
    told += f", not told apart from it in {int(alike.sum())} more (the intervals overlap)" if alike.any() else ""
    told += f", without an interval in {int(unknown.sum())} more" if unknown.any() else ""
    told += f", and behind it in {int((behind & bounded).sum())}" if (behind & bounded).any() else ""
    if near.all():
        return told + "."
    row = next(rows_of(chosen.assign(over=chosen.time_us / chosen.best_time_us).sort_values("over", ascending=False)))
    own = _time_text(row.time_us, row.time_low_us, row.time_high_us)
    rival = _time_text(row.best_time_us, row.best_time_low_us, row.best_time_high_us)
    return f"{told}; at worst {row.over:.2f}x its time: {own} against {row.best_label}'s {rival} on {where(row)}."


def _cases(count: int) -> str:
    return f"{count} case{'s' * (count != 1)}"


def _time_text(time_us: float, low_us: float, high_us: float) -> str:
    return micro(time_us) + (f" ({micro(low_us)} to {micro(high_us)})" if pd.notna(low_us) else " (no interval)")


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
