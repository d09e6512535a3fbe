"""Why topology=auto chose its tree, from a record, in lines of at most 80 columns."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from specla.bench.choice import Candidate, Cost, TreeChoice
from specla.bench.model_labels import model_labels
from specla.bench.record import Record
from specla.bench.validate import show
from specla.bench.workload_labels import workload_labels, workload_of
from specla.errors import SpeclaError
from specla.report.escape import SENTENCE, shown
from specla.topology import DraftTree

_WIDTH, _MOST_DEPTHS, _MOST_NODES, _MOST_OTHERS = 80, 16, 32, 6
_MOST_INDENT = 36
"""Where a tree is deeper, what lies below is counted rather than drawn."""
_CHAIN_OF_LEVELS = 3
"""Only children in a row, from this many on, are drawn on one line."""


def with_choice(records: Iterable[Record], where: str) -> list[Record]:
    """The records whose tree was chosen. Raises SpeclaError, which opens with `where`, if there is none."""
    found = [record for record in records if record.choice is not None]
    if not found:
        raise SpeclaError(
            f"{where}: no tree of topology=auto was chosen here; give overrides to choose one for, as in "
            "specla explain topology drafter=ngram"
        )
    return found


def choice_lines(record: Record) -> list[str]:
    """Acceptance, what steps cost, the tree, what is expected of it, and what came next."""
    choice = record.choice
    assert choice is not None
    method = record.method
    asked = record.profile or (None if record.alpha_asked is None else show(record.alpha_asked))
    what = f"{method.verify} + {method.recover}, drafter {method.drafter} {asked or ''}".strip()
    names = f"{model_labels([record])[0]}, {workload_labels([workload_of(record)])[0]}"
    where = f"{names}, batch {record.batch}, on {record.device}"
    text = [
        f"topology=auto, at most {choice.most} nodes",
        *(
            line
            for told in (what, where)
            for line in wrap(shown(told, SENTENCE), _WIDTH, initial_indent="  ", subsequent_indent="    ")
        ),
        "",
        *_alpha(choice),
        "",
        *_costs(choice),
        "",
        "The tree: ranks among siblings (and the chance to be accepted)",
        *_drawn(choice.picked, choice.alpha),
        f"  topology.parents={show(choice.picked.parents)}",
        "",
        "Expected, the best of each number of nodes",
        *_table(choice),
    ]
    return [line.rstrip() for line in text]


def _wrapped(told: str) -> list[str]:
    return wrap(shown(told, SENTENCE), _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _alpha(choice: TreeChoice) -> Iterator[str]:
    source = "as it was given" if choice.known else f"measured on {choice.prompts} prompts"
    yield f"alpha, P(draft of this rank right | parent accepted), {source}"
    ranks = max(map(len, choice.alpha))
    yield (
        "  depth"
        + "".join(f"{f'rank {rank}':>9}" for rank in range(1, min(ranks, 6) + 1))
        + ("" if choice.known else f"{'of steps':>10}")
    )
    shown = choice.alpha[:_MOST_DEPTHS]
    for depth, line in enumerate(shown, start=1):
        asked = choice.offered[depth - 1][0] if depth <= len(choice.offered) and choice.offered[depth - 1] else 0
        of = "" if choice.known else f"{asked:>10}"
        yield f"  {depth:>5}" + "".join(f"{share:>9.3f}" for share in line[:6]) + of
    if len(choice.alpha) > len(shown):
        yield f"  ... and {len(choice.alpha) - len(shown)} deeper levels"
    elif choice.known:
        yield "  deeper as the last"


def _costs(choice: TreeChoice) -> Iterator[str]:
    yield f"A step's cost, on {choice.prompts} prompts that are not among those measured"
    yield f"  {'nodes':>5}{'levels':>8}  {'shape':<9}{'step':>10}{'of it drafting':>17}"
    for cost in sorted(choice.costs, key=_by_size):
        shape = ("chain" if cost.depth else "root") if cost.chain else "branching"
        yield f"  {cost.nodes:>5}{cost.depth:>8}  {shape:<9}{_time(cost.step_us):>10}{_time(cost.draft_us):>17}"
    yield f"  one level more of drafts, nodes being equal: {_time(choice.level_us)} of drafting"


def _by_size(cost: Cost) -> tuple[int, bool]:
    return cost.nodes, not cost.chain


def _drawn(picked: Candidate, alpha: Sequence[Sequence[float]]) -> Iterator[str]:
    """The tree from its root, a line a draft, and one line for a run of only children."""
    tree = DraftTree(picked.parents)
    chances = _chances(tree, alpha)
    yield "  root"
    lines = list(_below(tree, chances, 0, ""))
    yield from lines[:_MOST_NODES]
    if len(lines) > _MOST_NODES:
        yield f"  ... and {len(lines) - _MOST_NODES} more lines"


def _below(tree: DraftTree, chances: Sequence[float], node: int, indent: str) -> Iterator[str]:
    for child in tree.children[node]:
        last = child == tree.children[node][-1]
        run = [child]
        while len(tree.children[run[-1]]) == 1:
            run.append(tree.children[run[-1]][0])
        run = run if len(run) >= _CHAIN_OF_LEVELS else run[:1]
        told = f"{int(tree.ranks[child]) + 1} ({chances[child]:.3f})"
        if len(run) > 1:
            told += f" and a chain of {len(run) - 1} below it, to ({chances[run[-1]]:.3f})"
        if len(indent) >= _MOST_INDENT and (hidden := int(tree.ancestors[:, run[-1]].sum())):
            yield f"  {indent}{'`' if last else '|'}- {told} and {hidden} below"
            continue
        yield f"  {indent}{'`' if last else '|'}- {told}"
        yield from _below(tree, chances, run[-1], indent + ("   " if last else "|  "))


def _chances(tree: DraftTree, alpha: Sequence[Sequence[float]]) -> list[float]:
    chances = [1.0] * tree.nodes
    for node in range(1, tree.nodes):
        line, rank = alpha[min(int(tree.depths[node]), len(alpha)) - 1], int(tree.ranks[node])
        chances[node] = chances[tree.parents[node]] * (line[rank] if rank < len(line) else 0.0)
    return chances


def _table(choice: TreeChoice) -> Iterator[str]:
    yield f"  {'nodes':>5}{'levels':>8}{'tau':>7}{'step':>11}{'tok/s':>8}"
    best = choice.picked
    for place, one in enumerate((best, *choice.others[:_MOST_OTHERS])):
        behind = "chosen" if not place else f"{100 * (1 - one.tok_s / best.tok_s):.1f} % slower"
        yield f"  {one.nodes:>5}{one.depth:>8}{one.tau:>7.2f}{_time(one.step_us):>11}{one.tok_s:>8.0f}  {behind}"
    if len(choice.others) > _MOST_OTHERS:
        yield f"  ... and {len(choice.others) - _MOST_OTHERS} more numbers of nodes, all slower"


def _time(time_us: float) -> str:
    return f"{time_us / 1000:.2f} ms" if time_us >= 1000 else f"{time_us:.0f} us"
