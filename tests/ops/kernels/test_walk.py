"""The walks, state-resident and from memory, against the equations in float64."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specla.errors import SpeclaError
from specla.ops.kernels.parent_pointer import TILES, verify_by_parents
from specla.ops.kernels.tree import verify_tree
from specla.ops.kernels.walk import Tiles, tiles_for, verify_chain, verify_hybrid, verify_sequentially
from specla.ops.kernels.waves import hybrid_waves
from specla.ops.types import HeadShape, NodeInputs, TreeTensors, VerifyOutput
from specla.topology import DraftTree, chain, kary
from tests.ops.cases import random_tree, trees
from tests.ops.kernels.verification import (
    EXTREMES,
    GROUPED,
    HEAD_SIZES,
    PUBLISHED,
    SMALL,
    WIDE,
    Case,
    as_views,
    draw,
    extreme,
    tree_of,
)


class Walk(NamedTuple):
    """One of the kernels, and what it makes."""

    run: Callable[[Case, Tiles | None], VerifyOutput]
    makes: tuple[bool, bool]
    """Factors, states."""
    chains_alone: bool = False


WALKS = {
    "chain": Walk(lambda case, tiles: verify_chain(*case[:3], tiles=tiles), (True, False), True),
    "snapshots": Walk(lambda case, tiles: verify_chain(*case[:3], keeps=True, tiles=tiles), (True, True), True),
    "hybrid": Walk(lambda case, tiles: verify_hybrid(*case[:3], tiles=tiles), (True, False)),
    "sequential": Walk(lambda case, tiles: verify_sequentially(*case[:3], tiles=tiles), (True, True)),
    "parent_pointer": Walk(lambda case, tiles: verify_by_parents(*case[:3], tiles=tiles), (False, True)),
}
FEW_PROGRAMS = None if torch.cuda.is_available() else Tiles(512, 1)
"""The interpreter is slow by the program. A GPU has no room for this, and takes what `tiles_for` gives."""
every_walk = pytest.mark.parametrize("name", WALKS)


def check(name: str, case: Case, device: torch.device, tiles: Tiles | None = FEW_PROGRAMS, of: str = "verify") -> None:
    walk, case = WALKS[name], case.to(device)
    before = case.state.clone()
    found = walk.run(case, tiles)
    assert (found.factors is not None, found.states is not None) == walk.makes
    case.check(found, before, of, "commit" if of == "verify" else of)


def trees_of(name: str, nodes: int) -> list[DraftTree]:
    return [tree_of(kind, nodes) for kind in (["chain"] if WALKS[name].chains_alone else ["chain", "tree"])]


@every_walk
@pytest.mark.parametrize("nodes", [1, 2, 3, 17])
def test_nodes(name: str, nodes: int, dtype: torch.dtype, device: torch.device) -> None:
    for tree in trees_of(name, nodes):
        check(name, draw(tree, dtype=dtype), device)


@every_walk
def test_the_most_nodes(name: str, device: torch.device) -> None:
    check(name, draw(trees_of(name, 128)[-1], HeadShape(1, 1, 16, 16)), device)


@pytest.mark.parametrize("shape", HEAD_SIZES, ids=str)
def test_head_sizes(shape: HeadShape, dtype: torch.dtype, device: torch.device) -> None:
    """Rows and columns beyond the head's size are masked."""
    for name in WALKS:
        check(name, draw(chain(2), shape, dtype=dtype), device)


@every_walk
def test_grouped_value_heads(name: str, device: torch.device) -> None:
    check(name, draw(trees_of(name, 4)[-1], GROUPED, 2), device, Tiles(16, 1))


@every_walk
def test_default_tiles(name: str, device: torch.device) -> None:
    """And such as are no divisor of the state's rows."""
    case = draw(chain(2), HeadShape(1, 1, 16, 48))
    for tiles in (None, Tiles(32, 2)):
        check(name, case, device, tiles)


STARS = {
    "star": (-1, *[0] * 12),
    "comb": (-1, 0, 0, 1, 1, 3, 3, 5, 5, 7, 7),
    "two chains": (-1, 0, 1, 2, 0, 4, 5),
    "a chain, then a star": (-1, 0, 1, 2, 3, 3, 3, 3),
    "last child is heavy": (-1, 0, 0, 0, 3, 4, 5, 3),
}


@pytest.mark.parametrize("shape", [*STARS, "binary", "random"])
def test_hybrid_waves(shape: str, device: torch.device) -> None:
    """Chains of one length and of several, one wave and many, one child or all of them from a stored state."""
    tree = {"binary": kary(2, 31), "random": random_tree(24, torch.Generator().manual_seed(1), reach=24)}.get(shape)
    check("hybrid", draw(tree or DraftTree(STARS[shape]), batch=2), device)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(trees(16), st.integers(0, 2**16))
def test_random_trees(tree: DraftTree, seed: int) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("hybrid", "parent_pointer", "sequential"):
        check(name, draw(tree, HeadShape(1, 1, 32, 16), seed=seed), device)


def test_hybrid_stores_the_states_of_branches_alone(device: torch.device) -> None:
    assert hybrid_waves(chain(9), device)[1] == 0
    waves, slots = hybrid_waves(kary(2, 7), device)
    assert slots == 3 and [wave.nodes.shape[0] for wave in waves] == [1, 2, 1]


@pytest.mark.parametrize("sizes", [(9, 1, 6), (2, 17, 5)], ids=str)
def test_a_tree_per_row(sizes: tuple[int, ...], device: torch.device) -> None:
    """Padded to the largest; what is padding starts from the committed state."""
    generator = torch.Generator().manual_seed(sum(sizes))
    tensors = TreeTensors.from_rows([random_tree(nodes, generator) for nodes in sizes])
    case = draw(chain(max(sizes) - 1), batch=3)
    for trees_ in (tensors.trees, ()):
        unknown = TreeTensors(trees_, tensors.parents, tensors.depths, tensors.ancestors, tensors.taps)
        check("parent_pointer", case._replace(tree=unknown), device)


@every_walk
def test_inputs_may_be_views(name: str, device: torch.device) -> None:
    """Slices of a layer's product, with NaN on both sides; every other row of them; gates that are views."""
    case = draw(chain(1), GROUPED, 3)
    check(name, case._replace(inputs=as_views(case.inputs)), device)
    inputs = NodeInputs(*(x[::2] for x in as_views(case.inputs)))
    check(name, case._replace(inputs=inputs, state=case.state[:2]), device)
    turned = NodeInputs(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in case.inputs))
    check(name, case._replace(inputs=turned), device)


@every_walk
def test_a_row_of_nan_stays_alone(name: str, device: torch.device) -> None:
    """As an uninitialised dummy row of a padded batch."""
    case = draw(trees_of(name, 5)[-1], SMALL, 3).to(device)
    clean = WALKS[name].run(case, FEW_PROGRAMS)
    for x in (case.state, *case.inputs):
        x[1] = torch.nan
    dirty = WALKS[name].run(case, FEW_PROGRAMS)
    assert torch.equal(dirty.out[[0, 2]], clean.out[[0, 2]]) and dirty.out[1].isnan().all()
    if clean.states is not None and dirty.states is not None:
        assert torch.equal(dirty.states[[0, 2]], clean.states[[0, 2]])
    if clean.factors is not None and dirty.factors is not None:
        assert all(torch.equal(x[[0, 2]], y[[0, 2]]) for x, y in zip(dirty.factors, clean.factors, strict=True))


@every_walk
@pytest.mark.parametrize("what", EXTREMES)
def test_extremes(name: str, what: str, device: torch.device) -> None:
    """Repeated keys that reflect, decays of -80 beside 0, strengths of 0 and 1e-8, zero keys."""
    for tree in trees_of(name, 12):
        check(name, extreme(draw(tree, HeadShape(1, 1, 32, 32)), what), device)


@every_walk
def test_large_sums_of_decay(name: str, device: torch.device) -> None:
    """G reaches -2,560, and a float32 sum of it would keep no digit of the small steps between."""
    case = draw(chain(31), HeadShape(1, 1, 16, 16))
    g = torch.where(torch.arange(32)[:, None] % 8 == 0, -640.0, case.inputs.g * 1e-2)
    check(name, case._replace(inputs=case.inputs._replace(g=g)), device)


def resized(case: Case, key_size: int, value_size: int) -> Case:
    shape = HeadShape(1, 1, key_size, value_size)
    return draw(chain(1), shape, case.state.shape[0])


def changed(**parts: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Case], Case]:
    """A case with some of its inputs changed."""
    return lambda case: case._replace(
        inputs=case.inputs._replace(**{name: change(getattr(case.inputs, name)) for name, change in parts.items()})
    )


REFUSED: dict[str, Callable[[Case], Case]] = {
    "head_dim 40: kernels take multiples of 16 up to 256": lambda case: resized(case, 40, 64),
    "head_dim 272: kernels take multiples of 16 up to 256": lambda case: resized(case, 272, 64),
    "value head size 24: kernels take multiples of 16 up to 512": lambda case: resized(case, 64, 24),
    "value head size 528: kernels take multiples of 16 up to 512": lambda case: resized(case, 64, 528),
    "a state of torch.float64 .* contiguous float32": lambda case: case._replace(state=case.state.double()),
    "a state of torch.bfloat16 .* contiguous float32": lambda case: case._replace(state=case.state.bfloat16()),
    "a state of torch.float32 with strides .* contiguous float32": lambda case: case._replace(state=case.state.mT),
    "q, k and v of .*torch.float64.*: kernels take one of": changed(q=torch.Tensor.double),
    "q, k and v of torch.float64: kernels take one of": changed(
        q=torch.Tensor.double, k=torch.Tensor.double, v=torch.Tensor.double
    ),
    "q, k and v of .*torch.float16.*: kernels take one of": changed(k=torch.Tensor.half),
    "g of torch.float64, beta of torch.float32: kernels take float32": changed(g=torch.Tensor.double),
    "g of torch.float32, beta of torch.bfloat16: kernels take float32": changed(beta=torch.Tensor.bfloat16),
    "32768 rows of 2 value heads: kernels take up to 65535 states at once": lambda case: case._replace(
        state=torch.zeros(32768, 2, 16, 16)
    ),
    "2 value heads on 3 key heads: kernels take multiples": changed(
        q=lambda q: q.repeat(1, 1, 3, 1), k=lambda k: k.repeat(1, 1, 3, 1)
    ),
    r"q of \(2, 2, 2, 64\): a state of \(2, 2, 32, 64\) takes \(2, 2, 1, 64\)": changed(
        q=lambda q: q.repeat(1, 1, 2, 1)
    ),
    r"k of \(2, 2, 1, 32\): a state of .* takes \(2, 2, 1, 64\)": changed(k=lambda k: k[..., :32]),
    r"v of \(1, 2, 2, 32\): a state of .* takes \(2, 2, 2, 32\)": changed(v=lambda v: v[:1]),
    r"beta of \(2, 1, 2\): a state of .* takes \(2, 2, 2\)": changed(beta=lambda beta: beta[:, :1]),
    "1 trees of 3 nodes: inputs of 2 rows and 2 nodes take others": lambda case: case._replace(
        tree=TreeTensors.from_tree(chain(2))
    ),
    "3 trees of 2 nodes: inputs of 2 rows and 2 nodes take others": lambda case: case._replace(
        tree=TreeTensors.from_rows([chain(1)] * 3)
    ),
}
KERNELS = {**{name: walk.run for name, walk in WALKS.items()}, "tree": lambda case, _: verify_tree(*case)}


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_kernel_can_take(message: str, device: torch.device) -> None:
    """One line that names the limit, from every kernel of verification, before anything is read."""
    case = REFUSED[message](draw(chain(1), HeadShape(1, 2, 64, 32), 2)).to(device)
    for name, run in KERNELS.items():
        if name in ("hybrid", "sequential") and not case.tree.shared:
            continue
        with pytest.raises(SpeclaError, match=message):
            run(case, None)


@pytest.mark.gpu
@every_walk
@pytest.mark.parametrize(("batch", "nodes"), [(1, 1), (1, 64), (8, 2), (8, 64), (33, 1), (33, 15)])
def test_the_published_shape(name: str, nodes: int, batch: int, device: torch.device) -> None:
    """With the tiles that were measured to be fast."""
    if WALKS[name].makes[1] and batch * nodes > 512:
        pytest.skip("states of gigabytes, and the same in float64")
    for tree in trees_of(name, nodes):
        check(name, draw(tree, PUBLISHED, batch, torch.bfloat16), device, None)


CHOICES = {tiles_for(states, nodes, keeps) for states in (8, 1024) for nodes in (1, 9) for keeps in (False, True)}


@pytest.mark.gpu
@every_walk
@pytest.mark.parametrize("tiles", sorted({*CHOICES, TILES}), ids=str)
def test_all_tiles_that_are_chosen(name: str, tiles: Tiles, device: torch.device) -> None:
    """Those of large batches, on two rows, with wide heads of odd sizes besides."""
    for shape in (PUBLISHED, WIDE):
        check(name, draw(trees_of(name, 9)[-1], shape, 2, torch.bfloat16), device, tiles)


def test_no_other_tiles_are_chosen() -> None:
    """Every choice is one that the test above runs."""
    for nodes in range(1, 129):
        for states in range(1, 4097):
            assert {tiles_for(states, nodes, keeps) for keeps in (False, True)} <= CHOICES
