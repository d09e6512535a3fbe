"""Which verification goes with which recovery, the automatic choice, and what the planner may import."""

import subprocess
import sys

import pytest
import torch

from specla.bench import strategies
from specla.errors import SpeclaError
from specla.ops import pairs
from specla.ops.recover import get_recover
from specla.ops.reference import reference_verify
from specla.ops.types import HeadShape, TreeTensors
from specla.ops.verify import STRATEGIES, get_verify
from specla.ops.verify.auto import Auto, Case, DispatchTable, measure_dispatch
from specla.topology import chain, kary
from tests.ops.cases import PLAIN, node_inputs, random_state, shared
from tests.tolerances import assert_close


def test_the_table_names_what_there_is() -> None:
    assert set(STRATEGIES) == set(pairs.RECOVERS_WITH)
    for verify, recovers in pairs.RECOVERS_WITH.items():
        assert set(recovers) <= set(pairs.NEEDS)
        assert all(strategies.pair_problem(verify, recover) is None for recover in recovers)
    assert pairs.makes("tree") == {"factors"}
    assert pairs.makes("chain") == {"factors", "states"}
    assert pairs.makes("naive_batched") == frozenset()


def test_trees_that_a_verification_does_not_take() -> None:
    assert pairs.unsupported("chain", chain(3)) is None
    assert pairs.unsupported("chain", kary(2, 5)) == "chain verifies chains alone, and kary-b2-n5 has 3 leaves"
    assert pairs.unsupported("ar", chain(2)) == "ar drafts nothing, and chain-l2 has 2 drafts"


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(SpeclaError, match=r"engine.verify=mask: give one of "):
        get_verify("mask")
    with pytest.raises(SpeclaError, match=r"engine.recover=undo: give one of "):
        get_recover("undo")


def test_the_table_needs_no_torch() -> None:
    program = "import sys, specla.ops.pairs; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def table(shape: HeadShape = PLAIN) -> DispatchTable:
    return DispatchTable(
        "cpu",
        shape,
        {
            Case(True, 4, 1): {"chain": 40.0, "tree": 50.0, "hybrid": 60.0},
            Case(True, 32, 1): {"chain": 90.0, "tree": 50.0, "hybrid": 60.0},
            Case(True, 4, 64): {"chain": 90.0, "tree": 80.0, "hybrid": 60.0},
            Case(False, 16, 1): {"tree": 50.0, "hybrid": 49.0},
        },
    )


def test_auto_takes_the_fastest_of_the_nearest_measurement() -> None:
    auto = Auto(table=table())
    strategy, why = auto.choose(chain(4), 1, PLAIN)
    assert strategy.name == "chain"
    assert why == (
        "auto: chain, because it took 40.0 us (tree 50.0, hybrid 60.0) on a chain of 4 nodes, batch 1, on cpu"
    )
    assert auto.choose(chain(20), 1, PLAIN)[0].name == "tree"
    assert auto.choose(chain(4), 32, PLAIN)[0].name == "hybrid"
    assert auto.choose(kary(2, 64), 8, PLAIN)[0].name == "hybrid"


def test_auto_states_its_default() -> None:
    rule = "by default chains of up to 2 nodes walk from 8 rows on, all else takes the mask"
    assert Auto().choose(chain(1), 8, PLAIN)[1] == f"auto: chain, because nothing was measured; {rule}"
    assert Auto().choose(chain(1), 1, PLAIN)[0].name == "tree"
    assert Auto().choose(kary(2, 4), 8, PLAIN)[0].name == "tree"
    assert Auto().choose(chain(0), 8, PLAIN)[1] == "auto: ar, because the tree is its root"
    other = HeadShape(4, 4, 64, 64)
    assert f"because {other} was measured, not {PLAIN}" in Auto(table=table(other)).choose(chain(1), 1, PLAIN)[1]
    chains_alone = DispatchTable("cpu", PLAIN, {Case(True, 2, 1): {"chain": 1.0}})
    assert "because no such topology was measured" in Auto(table=chains_alone).choose(kary(2, 4), 1, PLAIN)[1]


def test_auto_delegates_by_what_it_measured() -> None:
    measured = measure_dispatch(PLAIN, nodes=(2, 6), batches=(1, 2), repeats=2)
    kinds = ((True, 2), (True, 6), (False, 6))
    assert set(measured.times_us) == {Case(chained, nodes, batch) for chained, nodes in kinds for batch in (1, 2)}
    assert all(us > 0 for times in measured.times_us.values() for us in times.values())
    auto = Auto()
    assert "nothing was measured" in auto.choose(chain(5), 2, PLAIN)[1]
    auto.table = measured
    assert "because it took" in auto.choose(chain(5), 2, PLAIN)[1]
    generator = torch.Generator().manual_seed(0)
    for tree in (chain(0), chain(5), kary(2, 6)):
        inputs, state = node_inputs(2, tree.nodes, PLAIN, generator), random_state(2, PLAIN, generator)
        truth = reference_verify(state.double(), inputs, shared(tree))
        assert_close(auto.verify(state, inputs, shared(tree)).out, truth.out, "verify")


def test_tree_tensors_pad_rows_with_childless_nodes() -> None:
    tensors = TreeTensors.from_rows([kary(2, 5), chain(1)], nodes=6)
    assert tensors.nodes == 6
    assert tensors.parents[1].tolist() == [-1, 0, -1, -1, -1, -1]
    assert tensors.ancestors[1].sum().item() == 1
    assert tensors.taps[1, 3].tolist() == [-3, -2, -1]
    assert tensors.depths[0].tolist() == [0, 1, 1, 2, 2, 0]
    assert not tensors.shared
    one = TreeTensors.from_tree(kary(2, 5))
    assert one.shared and one.tree == kary(2, 5)
    assert one.path_sums.dtype == torch.float64
    assert torch.equal(one.unrelated[0, 0], ~(one.ancestors[0] | torch.eye(5, dtype=torch.bool)))
