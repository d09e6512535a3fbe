"""The tree mask's kernels, against the equations in float64."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.kernels.held import Pendency
from specla.ops.kernels.tree import Tiles, padded_nodes, tiles_for, verify_tree
from specla.ops.reference import reference_verify
from specla.ops.types import Factors, HeadShape, Known, NodeInputs, TreeTensors
from specla.topology import MAX_NODES, DraftTree, chain, kary
from tests.ops.cases import known_factors, random_tree, trees
from tests.ops.kernels.verification import (
    EXTREMES,
    GROUPED,
    HEAD_SIZES,
    PUBLISHED,
    SIZES,
    SMALL,
    VALID,
    WIDE,
    Case,
    as_views,
    draw,
    extreme,
    tree_of,
)
from tests.tolerances import assert_close

FEW_PROGRAMS = Tiles(64, 64, 4, 2, None, 4, 64)
"""The interpreter is slow by the program. A GPU runs what `tiles_for` gives as well."""
CHOICES: dict[Pendency, list[tuple[int, int]]] = {
    "none": [(8, 16), (8, 32), (8, 64), (64, 16), (1024, 16), (64, 32), (1024, 32), (64, 64), (256, 64)],
    "folded": [(8, 16), (8, 32), (8, 64), (64, 16), (64, 32), (64, 64), (256, 16), (256, 32), (256, 64)],
    "beside": [(8, 16), (8, 32), (8, 64), (64, 16), (64, 32), (64, 64)],
}
"""Value heads in a batch, and nodes, for which `tiles_for` gives something of its own."""
SMALL_TILES = Tiles(16, 16, 2, 3, None, 4, 16)


def check(case: Case, device: torch.device, tiles: Tiles | None = FEW_PROGRAMS, of: str = "split") -> None:
    case = case.to(device)
    before = case.state.clone()
    found = verify_tree(*case, tiles=tiles, reflects=bool((case.inputs.beta > 1).any()))
    case.check(found, before, f"verify_{of}", f"commit_{of}")


@pytest.mark.parametrize("kind", ["chain", "tree"])
@pytest.mark.parametrize("nodes", SIZES)
def test_nodes(nodes: int, kind: str, dtype: torch.dtype, device: torch.device) -> None:
    """Deep ones, by halves; more than 64 in two launches."""
    check(draw(tree_of(kind, nodes), dtype=dtype), device)


@pytest.mark.parametrize("nodes", [2, 16, 65])
@pytest.mark.parametrize("branching", [2, 128])
def test_flat_trees(nodes: int, branching: int, dtype: torch.dtype, device: torch.device) -> None:
    """Up to eight levels are solved one by one, some columns of the triangle to a program: binary trees and stars."""
    tree = kary(min(branching, nodes - 1), nodes)
    check(draw(tree, dtype=dtype), device, FEW_PROGRAMS._replace(solve_columns=16))


@pytest.mark.parametrize("depth", [7, 8, 9])
def test_both_ways_to_solve_agree_where_they_meet(depth: int, device: torch.device) -> None:
    """A chain of so many levels, with another one beside it."""
    parents = (*range(-1, depth), 0, *range(depth + 1, 2 * depth))
    check(draw(DraftTree(parents)), device, SMALL_TILES)


@pytest.mark.parametrize("leaves", [1, 33])
def test_the_second_launch_may_begin_at_any_level(leaves: int, device: torch.device) -> None:
    """A chain behind some leaves: the levels of the last 64 nodes lie on both sides of a power of two."""
    parents = (-1, *[0] * leaves, 0, *range(leaves + 1, 127))
    check(draw(DraftTree(parents), HeadShape(1, 1, 32, 32)), device)


@pytest.mark.parametrize("shape", HEAD_SIZES, ids=str)
def test_head_sizes(shape: HeadShape, dtype: torch.dtype, device: torch.device) -> None:
    check(draw(tree_of("tree", 17), shape, dtype=dtype), device)


@pytest.mark.parametrize(("nodes", "tiles"), [(2, None), (15, SMALL_TILES)], ids=["default", "small"])
def test_grouped_value_heads(nodes: int, tiles: Tiles | None, dtype: torch.dtype, device: torch.device) -> None:
    check(draw(tree_of("tree", nodes), GROUPED, 2, dtype, VALID[:2]), device, tiles)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(trees(40), st.integers(0, 2**16), st.lists(st.booleans(), min_size=1, max_size=20) | st.none())
def test_random_trees(tree: DraftTree, seed: int, ring: list[bool] | None) -> None:
    """Of any depth, with a ring of any length in any state or none."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check(draw(tree, ring=None if ring is None else torch.tensor([ring]), seed=seed), device)


@pytest.mark.parametrize(
    ("nodes", "kind"), [(1, "chain"), (2, "chain"), (17, "tree"), (64, "chain"), (65, "tree"), (128, "tree")]
)
def test_known_factors(nodes: int, kind: str, dtype: torch.dtype, device: torch.device) -> None:
    """A ring a row, full, with gaps, empty; what is not valid holds NaN."""
    check(draw(tree_of(kind, nodes), batch=4, dtype=dtype, ring=VALID), device)


@pytest.mark.parametrize("places", [1, 16, 17])
def test_rings_of_any_length(places: int, dtype: torch.dtype, device: torch.device) -> None:
    ring = torch.rand(2, places, generator=torch.Generator().manual_seed(places)) < 0.8
    for nodes, rows in ((9, ring), (70, ring[:1])):
        check(draw(tree_of("tree", nodes), batch=len(rows), dtype=dtype, ring=rows), device)


def test_known_decays_may_be_float32(device: torch.device) -> None:
    """As a ring that keeps half the bytes; the truth is that of the rounded decays."""
    case = draw(tree_of("tree", 9), batch=4, ring=VALID)
    assert case.known is not None
    factors = case.known.factors
    check(case._replace(known=Known(factors._replace(decay=factors.decay.float()), case.known.valid)), device)


@pytest.mark.parametrize(
    ("sizes", "known_to_host"), [((9, 1, 6), True), ((9, 1, 6), False), ((70, 65, 1), False)], ids=str
)
def test_a_tree_per_row(sizes: tuple[int, ...], known_to_host: bool, dtype: torch.dtype, device: torch.device) -> None:
    """Padded to the largest; built on a device, the host does not know how deep they are."""
    generator = torch.Generator().manual_seed(sum(sizes))
    tensors = TreeTensors.from_rows([random_tree(nodes, generator) for nodes in sizes])
    if not known_to_host:
        tensors = TreeTensors((), tensors.parents, tensors.depths, tensors.ancestors, tensors.taps)
    case = draw(chain(max(sizes) - 1), batch=3, dtype=dtype, ring=VALID[[0, 2, 1]])
    check(case._replace(tree=tensors), device)


@pytest.mark.parametrize("nodes", [2, 66])
def test_inputs_may_be_views(nodes: int, dtype: torch.dtype, device: torch.device) -> None:
    """Slices of a layer's product, with NaN on both sides, and every other row of them."""
    case = draw(tree_of("tree", nodes), GROUPED, 1, dtype)
    check(case._replace(inputs=as_views(case.inputs)), device)
    wide = draw(tree_of("tree", nodes), SMALL, 3, dtype)
    inputs = NodeInputs(*(x[::2] for x in as_views(wide.inputs)))
    check(wide._replace(inputs=inputs, state=wide.state[:2]), device)


def test_what_cannot_be_read_in_place_is_copied(device: torch.device) -> None:
    """Heads before nodes, padded heads, a size in steps, and gates, ring and ancestors that are views."""
    case = draw(tree_of("tree", 7), GROUPED, 1, ring=VALID[1:2])
    q, k, v, g, beta = case.inputs
    inputs = NodeInputs(
        q.transpose(1, 2).contiguous().transpose(1, 2),
        torch.cat((k, torch.full_like(k, torch.nan)), dim=3)[..., : k.shape[3]],
        v.repeat_interleave(2, dim=3)[..., ::2],
        g.transpose(1, 2).contiguous().transpose(1, 2),
        beta[..., None].expand(-1, -1, -1, 2).contiguous()[..., 0],
    )
    assert case.known is not None
    factors, valid = case.known[:2]

    def stepped(x: Tensor) -> Tensor:
        return x.repeat_interleave(2, dim=-1)[..., ::2]

    known = Known(Factors(*(stepped(x) for x in factors)), stepped(valid))
    tree = case.tree
    tensors = TreeTensors(tree.trees, *(stepped(x) for x in (tree.parents, tree.depths, tree.ancestors)), tree.taps)
    check(Case(case.state, inputs, tensors, known), device)


def test_a_row_of_nan_stays_alone(dtype: torch.dtype, device: torch.device) -> None:
    """As an uninitialised dummy row of a padded batch: inputs, state and ring."""
    for nodes in (2, 66):
        case = draw(tree_of("tree", nodes), SMALL, 2, dtype, VALID[:2]).to(device)
        clean = verify_tree(*case, tiles=FEW_PROGRAMS)
        assert case.known is not None and clean.factors is not None
        for x in (case.state, *case.inputs, *case.known.factors):
            x[1] = torch.nan
        dirty = verify_tree(*case, tiles=FEW_PROGRAMS)
        assert dirty.factors is not None
        assert torch.equal(dirty.out[0], clean.out[0])
        assert all(torch.equal(x[0], y[0]) for x, y in zip(dirty.factors, clean.factors, strict=True))


@pytest.mark.parametrize(("nodes", "kind"), [(2, "chain"), (64, "chain"), (64, "tree"), (128, "chain")])
@pytest.mark.parametrize("what", EXTREMES)
def test_extremes(what: str, nodes: int, kind: str, dtype: torch.dtype, device: torch.device) -> None:
    """Repeated keys that reflect, decays of -80 beside 0, strengths of 0 and 1e-8, zero keys."""
    of = "split"
    if what in ("repeated", "nearly") and nodes > 2:
        of = "split_reflections" if nodes <= 64 else "split_blocks"
    check(extreme(draw(tree_of(kind, nodes), dtype=dtype), what), device, of=of)


def test_extremes_beside_a_ring(dtype: torch.dtype, device: torch.device) -> None:
    """Decays of -80 beside 0 behind known factors that have decayed as far."""
    case = extreme(draw(tree_of("tree", 33), batch=4, dtype=dtype, ring=VALID), "decay")
    assert case.known is not None
    factors = case.known.factors
    check(case._replace(known=Known(factors._replace(decay=factors.decay * 60), case.known.valid)), device)


def test_large_sums_of_decay(dtype: torch.dtype, device: torch.device) -> None:
    """G reaches -10,240, where float32 sums keep no digit of the small steps between recent nodes."""
    for nodes in (64, 128):
        case = draw(chain(nodes - 1), dtype=dtype)
        g = torch.where(torch.arange(nodes)[:, None] % 8 == 0, -640.0, case.inputs.g * 1e-2)
        check(case._replace(inputs=case.inputs._replace(g=g)), device)


@pytest.mark.parametrize("scale", [1e-20, 1e15])
def test_scales_of_the_state(scale: float, device: torch.device) -> None:
    """Halves have float32's range: values and state may be of any size together."""
    case = draw(tree_of("tree", 20), ring=VALID[:1])
    assert case.known is not None
    factors, valid = case.known[:2]
    known = Known(factors._replace(u=factors.u * scale), valid)
    inputs = case.inputs._replace(v=case.inputs.v * scale)
    check(case._replace(state=case.state * scale, inputs=inputs, known=known), device)


def other_dtype(case: Case) -> Case:
    assert case.known is not None
    factors, valid = case.known[:2]
    return case._replace(known=Known(factors._replace(k=factors.k.half()), valid))


def of_nodes(count: int, case: Case) -> Case:
    inputs = NodeInputs(*(torch.cat([x] * count, dim=1)[:, :count] for x in case.inputs))
    return case._replace(inputs=inputs, tree=TreeTensors.from_rows([chain(1)], nodes=count), known=None)


REFUSED: dict[str, Callable[[Case], Case]] = {
    "known k of torch.float16 beside k of torch.float32: kernels take one dtype": other_dtype,
    "129 nodes: the tree's kernels take up to 128": partial(of_nodes, MAX_NODES + 1),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_only_this_kernel_cannot_take(message: str, device: torch.device) -> None:
    case = REFUSED[message](draw(chain(1), batch=2, ring=VALID[:2]))
    with pytest.raises(SpeclaError, match=message):
        verify_tree(*case.to(device))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("batch", "nodes"),
    # The same in float64 takes gigabytes.
    [(rows, nodes) for rows in (1, 8, 33) for nodes in (1, 2, 15, 17, 33, 64, 65, 128) if rows * nodes < 1100],
)
@pytest.mark.parametrize("kind", ["chain", "tree behind a ring"])
def test_the_published_shape(kind: str, nodes: int, batch: int, device: torch.device) -> None:
    """With the tiles that were measured to be fast."""
    ring = torch.rand(batch, 16, generator=torch.Generator().manual_seed(batch)) < 0.7
    ring_or_none = None if kind == "chain" else ring
    check(draw(tree_of(kind, nodes), PUBLISHED, batch, torch.bfloat16, ring_or_none), device, None)


@pytest.mark.gpu
@pytest.mark.parametrize(("heads", "nodes"), CHOICES["none"])
def test_all_tiles_that_are_chosen(heads: int, nodes: int, device: torch.device) -> None:
    """Those of large batches, on two rows: flat and deep, and with wide heads of odd sizes."""
    tiles, flat = tiles_for(heads, nodes), kary(2, nodes)
    check(draw(chain(nodes - 1), PUBLISHED, 2, torch.bfloat16), device, tiles)
    check(draw(flat, WIDE, 2, torch.bfloat16), device, tiles)


@pytest.mark.gpu
@pytest.mark.parametrize(("heads", "nodes"), CHOICES["beside"])
@pytest.mark.parametrize("shape", [PUBLISHED, WIDE], ids=["published", "wide"])
def test_all_tiles_beside_a_ring(heads: int, nodes: int, shape: HeadShape, device: torch.device) -> None:
    check(draw(kary(2, nodes), shape, 2, torch.bfloat16, VALID[:2]), device, tiles_for(heads, nodes, "beside"))


@pytest.mark.gpu
@pytest.mark.parametrize(("heads", "nodes"), CHOICES["folded"])
@pytest.mark.parametrize("shape", [PUBLISHED, WIDE], ids=["published", "wide"])
def test_all_tiles_that_fold(heads: int, nodes: int, shape: HeadShape, device: torch.device) -> None:
    case = draw(kary(2, nodes), shape, 2, torch.bfloat16, VALID[:2]).to(device)
    folded = case.state.double()
    truth = reference_verify(folded, case.inputs, case.tree, case.known, True)
    found = verify_tree(*case, fold=True, tiles=tiles_for(heads, nodes, "folded"))
    assert found.factors is not None and truth.factors is not None
    assert_close(found.out, truth.out, "verify_split")
    assert_close(found.factors.u, truth.factors.u, "verify_split")
    assert_close(case.state, folded, "commit_split")


def test_no_other_tiles_are_chosen() -> None:
    """Every choice is one that the tests above run."""
    for pending, choices in CHOICES.items():
        tested = {(padded_nodes(nodes), tiles_for(heads, nodes, pending)) for heads, nodes in choices}
        for nodes in range(1, 65):
            for heads in range(1, 2049):
                assert (padded_nodes(nodes), tiles_for(heads, nodes, pending)) in tested


@pytest.mark.gpu
def test_it_gives_the_same_bits_again(device: torch.device) -> None:
    """Programs that begin while others end must not read what is not there yet: fifty times the same, back to back."""
    for nodes in (16, 64, 128):
        case = draw(tree_of("tree", nodes), PUBLISHED, 33, torch.bfloat16).to(device)
        first = verify_tree(*case)
        assert first.factors is not None
        for again in [verify_tree(*case) for _ in range(50)]:
            assert again.factors is not None
            assert torch.equal(again.out, first.out) and torch.equal(again.factors.u, first.factors.u)


def test_drawn_rings_hold_nan() -> None:
    """What the tests of known factors rely on."""
    known = known_factors(VALID, SMALL, torch.Generator())
    assert all(x[~VALID].isnan().all() for x in known.factors)
