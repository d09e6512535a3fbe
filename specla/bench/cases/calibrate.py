"""How `topology=auto` comes to its tree: acceptance by depth and rank, then what steps take, on prompts of their own.

A drafter's acceptance is counted on one wide tree; an oracle's is known. Steps are timed on the trees that would be
best for the acceptance alone, and on chains, with the cell's own drafter, strategies and batch: of a drafter that does
not always have a draft, that is what a tree of so many nodes really takes. `specla.best_tree` weighs the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from specla.bench.cells import Cell
from specla.bench.choice import COSTED, Candidate, Cost, TreeChoice
from specla.bench.clock import quiet
from specla.bench.counting import counts
from specla.bench.measure import Method
from specla.bench.methods import make_method
from specla.bench.profile import oracle_alpha
from specla.bench.settings import Settings, put
from specla.bench.subject import Subject, Target
from specla.bench.tally import Tally
from specla.bench.workloads.base import calibration_prompts, prompts_digest
from specla.bench.workloads.prompt import Prompt
from specla.best_tree import FloatArray, Pick, alpha_levels, best_picks, fastest, most_tokens
from specla.drafters.oracle import alpha_table
from specla.engine.decode import Step
from specla.errors import SpeclaError
from specla.ops.verify import DispatchTable
from specla.topology import MAX_NODES, DraftTree, chain

SIZES = (1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Nodes of the trees whose steps are timed, beside the most there may be; between them costs are interpolated."""
STEPS, PASSES = 12, 2
"""Steps of one timed window, and how often each is decoded, the same tokens again: the quicker pass counts."""
LEAST_TOKENS = 256
"""Of a calibration set that acceptance is measured on: a share of a hundred steps or so is good to 0.1."""
PRIOR = ((0.8, 0.1, 0.04, 0.02),)
"""The acceptance that the wide tree is made for: deep along first ranks, four ranks wide near the root."""
WIDER, WIDEST = 4, 64
"""The wide tree has so many times the nodes of the largest that may be chosen, and at least so many."""
DOUBT = 4.0
"""Imagined steps at each depth, as accepting as the depth above: what few steps reached is not taken at its word."""

_ENDED = "topology=auto: every calibration prompt ended with its first token; give others"

Tick = Callable[[str], None]


class Calibration:
    """The calibration set of cells that share a target and prompts.

    Args:
        target: the model.
        settings: of any of the cells; sampling, workload, seed and measure.calibration count.
        deepest: levels of the deepest tree that may be drafted.
        measured: the prompts that are not to be used.

    Raises:
        SpeclaError: the workload has too few other prompts.
    """

    def __init__(self, target: Target, settings: Settings, deepest: int, measured: Sequence[Prompt]) -> None:
        wanted, workload = settings.measure.calibration, settings.workload
        assert wanted is not None
        prompts = calibration_prompts(workload, wanted, measured)
        self.subject = Subject(target, settings, deepest, prompts)
        self._tokens = len(prompts) * (workload.max_new_tokens or 0)

    @property
    def digest(self) -> str:
        """sha256 of the prompts."""
        return prompts_digest(self.subject.prompts)

    def require(self, cell: Cell) -> None:
        """Raise SpeclaError where the set is too small to measure the acceptance of a cell's drafter on."""
        if cell.settings.drafter.name != "oracle" and self._tokens < LEAST_TOKENS:
            given, prompts = cell.settings.measure.calibration, len(self.subject.prompts)
            raise SpeclaError(
                f"measure.calibration={given}: the {self._tokens} tokens of {prompts} prompts are too few for "
                f"topology=auto, which measures acceptance on at least {LEAST_TOKENS}; raise it or "
                "workload.max_new_tokens"
            )

    def ticks(self) -> int:
        """How often `settle` will call `tick`."""
        return 1 + PASSES * len(self._costed)

    @property
    def _costed(self) -> range:
        """Places of the items that steps are timed on: whole batches."""
        batch = self.subject.settings.workload.batch
        return range(min(len(self.subject.prompts), -(-COSTED // batch) * batch) // batch)

    def forget(self) -> None:
        """Give back what was prefilled and traced; it is made again where it is asked for."""
        for name in ("items", "traces"):
            vars(self.subject).pop(name, None)

    def settle(self, cell: Cell, table: DispatchTable | None, tick: Tick) -> Cell:
        """An open cell with its tree chosen.

        Args:
            cell: of topology=auto.
            table: measured on this device, for engine.verify=auto.
            tick: called after every unit of work.
        """
        choice = self._choose(cell, table, tick)
        return replace(cell, tree=DraftTree(choice.picked.parents, cell.tree.name), choice=choice)

    def _choose(self, cell: Cell, table: DispatchTable | None, tick: Tick) -> TreeChoice:
        most = cell.tree.nodes
        known = cell.settings.drafter.name == "oracle"
        tally = None if known else self._accepted(cell, table)
        tick(f"acceptance: {cell.drafter_label}")
        given = alpha_table(oracle_alpha(cell.settings.drafter)) if tally is None else smoothed(tally)
        alpha = alpha_levels(given, most - 1, repeat_last=known)
        if cell.method.verify == "chain":
            alpha = alpha[:, :1]
        costs = self._costs(cell, alpha, table, tick)
        level_us = level_cost(costs)
        picks = best_picks(alpha, cost_table(costs, level_us, most, alpha.shape[0]))
        best = fastest(picks)
        others = sorted((pick for pick in picks if pick is not best), key=lambda pick: -pick.tok_s)
        return TreeChoice(
            most=most,
            alpha=tuple(tuple(line) for line in alpha[: len(given)].tolist()),
            known=known,
            prompts=len(self.subject.prompts),
            costs=tuple(costs),
            level_us=level_us,
            picked=self._candidate(best),
            others=tuple(map(self._candidate, others)),
            offered=() if tally is None else tally.offered,
        )

    def _accepted(self, cell: Cell, table: DispatchTable | None) -> Tally:
        """Counts by depth and rank of the whole set, decoded with a wide tree."""
        probe = wide_tree(cell.tree.nodes, chains_only=cell.method.verify == "chain")
        method, rows = self._method(cell, probe, table), list[tuple[str, list[tuple[Step, int]]]]()
        for item in self.subject.items:
            _, steps = method.decode(item)
            rows += [("", [(step, row) for step in steps]) for row in range(len(item.categories))]
        method.release()
        tally = counts(rows)
        if not tally.offered:
            raise SpeclaError(_ENDED)
        return tally

    def _costs(self, cell: Cell, alpha: FloatArray, table: DispatchTable | None, tick: Tick) -> list[Cost]:
        trees = timed_trees(alpha, cell.tree.nodes)
        methods = [self._method(cell, tree, table) for tree in trees]
        items = [self.subject.items[place] for place in self._costed]
        for method in methods:
            method.first_steps(items[0], 1)
        seconds = np.full((len(trees), len(items), PASSES), np.inf)
        windows = np.zeros((len(trees), len(items), 2))
        with quiet():
            for turn in range(PASSES):
                for place, item in enumerate(items):
                    for order in range(len(trees)):
                        who = (order + place + turn) % len(trees)
                        one = methods[who].first_steps(item, STEPS)
                        seconds[who, place, turn] = one.seconds
                        # The draft's share of the quickest pass, and steps, which are the same in every pass.
                        if one.seconds <= seconds[who, place].min():
                            windows[who, place] = one.split.draft * one.steps, one.steps
                    tick(f"step costs: {cell.drafter_label}, up to {cell.tree.nodes} nodes")
        for method in methods:
            method.release()
        steps = windows[:, :, 1].sum(axis=1)
        if not steps.all():
            raise SpeclaError(_ENDED)
        step_us = 1e6 * seconds.min(axis=2).sum(axis=1) / steps
        draft_us = windows[:, :, 0].sum(axis=1) / steps
        measured = zip(trees, step_us.tolist(), draft_us.tolist(), strict=True)
        return [Cost(tree.nodes, tree.depth, step, draft, tree.is_chain) for tree, step, draft in measured]

    def _method(self, cell: Cell, tree: DraftTree, table: DispatchTable | None) -> Method:
        settings = put(cell.settings, {"engine.adaptive": False})
        return make_method(replace(cell, tree=tree, settings=settings), self.subject, table)

    def _candidate(self, pick: Pick) -> Candidate:
        batch = self.subject.settings.workload.batch
        return Candidate(pick.parents, pick.depth, pick.tau, 1e6 * pick.seconds, batch)


def wide_tree(most: int, chains_only: bool = False) -> DraftTree:
    """The tree that acceptance is counted on, for trees of at most so many nodes: no deeper than theirs."""
    prior = alpha_levels(PRIOR, most - 1)[:, : 1 if chains_only else None]
    nodes = min(MAX_NODES, max(WIDEST, WIDER * most))
    return DraftTree(most_tokens(prior, nodes)[-1], "wide")


def timed_trees(alpha: FloatArray, most: int) -> list[DraftTree]:
    """Of every size up to `most` the best tree for this acceptance, and the chain."""
    sizes = [size for size in SIZES if size < most] + [most]
    best = {len(parents): parents for parents in most_tokens(alpha, most)}
    chains = {size: chain(size - 1).parents for size in sizes if size - 1 <= alpha.shape[0]}
    shapes = [found[size] for size in sizes for found in (chains, best) if size in found]
    return [DraftTree(parents) for parents in dict.fromkeys(shapes)]


def smoothed(tally: Tally) -> list[list[float]]:
    """alpha by depth and rank of counts, each depth held to the one above as by DOUBT more steps."""
    ranks = max(map(len, tally.offered))
    above, table = [0.0] * ranks, []
    for depth, (offered, right) in enumerate(zip(tally.offered, tally.right, strict=True)):
        line = []
        for rank in range(ranks):
            asked, accepted = (offered[rank], right[rank]) if rank < len(offered) else (0, 0)
            doubt = DOUBT if depth else 0.0
            line.append((accepted + doubt * above[rank]) / (asked + doubt) if asked + doubt else 0.0)
        # Ranks that only some parents had are shares of other steps, and may sum to a little over 1 with the rest.
        above = [share / max(1.0, sum(line)) for share in line]
        table.append(above)
    return table


def level_cost(costs: Sequence[Cost]) -> float:
    """Microseconds that one level more takes in drafting, nodes being equal: least squares over nodes and levels."""
    if all(cost.chain for cost in costs):
        return 0.0
    shapes = np.array([(1.0, cost.nodes, cost.depth) for cost in costs])
    drafting = np.array([cost.draft_us for cost in costs])
    return max(0.0, float(np.linalg.lstsq(shapes, drafting, rcond=None)[0][2]))


def cost_table(costs: Sequence[Cost], level_us: float, most: int, deepest: int) -> FloatArray:
    """Seconds of a step [most + 1, deepest + 1] by nodes and levels; infinite where no tree of that many has them.

    A chain takes what chains took. A tree that branches takes what branching trees of its size took, and drafting's
    part of each level that it has more or fewer.
    """
    seconds = np.full((most + 1, deepest + 1), np.inf)
    chains = sorted((cost for cost in costs if cost.chain), key=lambda cost: cost.nodes)
    # Two nodes are a chain whatever the acceptance: where branching starts.
    trees = [cost for cost in chains if cost.nodes == 2]
    trees += sorted((cost for cost in costs if not cost.chain), key=lambda cost: cost.nodes)
    nodes, depths = np.arange(1, most + 1), np.arange(deepest + 1)
    if any(not cost.chain for cost in trees):
        sizes = [cost.nodes for cost in trees]
        usual = np.interp(nodes, sizes, rising([cost.step_us for cost in trees]))
        levels = np.interp(nodes, sizes, [cost.depth for cost in trees])
        by_depth = usual[:, None] + level_us * (depths[None, :] - levels[:, None])
        possible = (depths[None, :] >= 1) & (depths[None, :] < nodes[:, None] - 1)
        seconds[1:] = np.where(possible, np.maximum(by_depth, level_us) * 1e-6, np.inf)
    alone = np.interp(nodes, [cost.nodes for cost in chains], rising([cost.step_us for cost in chains]))
    for count, step_us in zip(nodes.tolist(), alone.tolist(), strict=True):
        if count - 1 <= deepest:
            seconds[count, count - 1] = step_us * 1e-6
    return seconds


def rising(values: Sequence[float]) -> list[float]:
    """The nearest sequence that never falls: neighbours in the wrong order take their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, few), (high, many) = pools.pop(-2), pools.pop()
            pools.append(((low * few + high * many) / (few + many), few + many))
    return [mean for mean, count in pools for _ in range(count)]
