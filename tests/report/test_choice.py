"""What specla explain topology prints: all that decided, in 80 columns."""

import pytest

from specla.bench.choice import Candidate, Cost, TreeChoice
from specla.bench.record import Method, Record
from specla.best_tree import FloatArray, alpha_levels, most_tokens
from specla.errors import SpeclaError
from specla.report.choice import choice_lines, with_choice
from specla.topology import DraftTree
from tests.factory import decode_record


def candidate(alpha: FloatArray, nodes: int) -> Candidate:
    tree = DraftTree(most_tokens(alpha, nodes)[-1])
    return Candidate(tree.parents, tree.depth, 1.0 + 0.2 * nodes, 5000.0 + 400 * nodes)


def chosen(nodes: int, levels: int, known: bool) -> Record:
    alpha = alpha_levels([[0.7, 0.15, 0.05, 0.01]], levels)
    choice = TreeChoice(
        most=128,
        alpha=tuple(map(tuple, alpha.tolist())),
        known=known,
        prompts=20,
        costs=tuple(Cost(n, n - 1, 4000.0 + 900 * n, 30.0 * n, True) for n in (1, 2, 3, 5, 8, 128)),
        level_us=123.4,
        picked=candidate(alpha, nodes),
        others=tuple(candidate(alpha, n) for n in range(2, 12)),
        offered=() if known else tuple((1000 // depth,) * 4 for depth in range(1, levels + 1)),
    )
    alpha_asked = ((0.7, 0.15, 0.05, 0.01),) if known else None
    method = Method("auto", "factors_deferred", "oracle" if known else "ngram", "auto-n128")
    device = "NVIDIA H200 with a name that is a little longer than usual"
    return decode_record(method, choice=choice, alpha_asked=alpha_asked, device=device, model="gdn-1.3b-fla")


@pytest.mark.parametrize(
    ("nodes", "levels", "known"), [(1, 3, True), (12, 6, True), (128, 127, False), (40, 20, False)]
)
def test_everything_in_80_columns(nodes: int, levels: int, known: bool) -> None:
    lines = choice_lines(chosen(nodes, levels, known))
    parents = [line for line in lines if line.startswith("  topology.parents=")]
    assert len(parents) == 1 and parents[0].endswith("]") and parents[0].count(",") == nodes - 1
    assert [line for line in lines if line not in parents and (len(line) > 80 or line != line.rstrip())] == []
    text = "\n".join(lines)
    assert ("as it was given" in text) == known and ("of steps" in text) != known
    assert "one level more of drafts, nodes being equal: 123 us of drafting" in text
    assert text.count("% slower") + text.count("% faster") == 6 and "chosen" in text and "4 more numbers" in text
    assert len(lines) < 100


def test_the_drawing_of_a_small_tree() -> None:
    lines = choice_lines(chosen(9, 4, True))
    at = lines.index("  root")
    assert lines[at + 1 : at + 7] == [
        "  |- 1 (0.700)",
        "  |  |- 1 (0.490) and a chain of 2 below it, to (0.240)",
        "  |  `- 2 (0.105)",
        "  |     `- 1 (0.073)",
        "  `- 2 (0.150)",
        "     `- 1 (0.105)",
    ]


def test_no_tree_was_chosen() -> None:
    with pytest.raises(SpeclaError, match="runs/x: no tree of topology=auto was chosen here; give overrides"):
        with_choice([decode_record()], "runs/x")
