"""A short chain in one kernel, against the two that it replaces: its nodes' inputs, then a walk."""

import pytest
import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.kernels.mixer import Products, mix_chain
from specla.ops.kernels.node_inputs import Heads, node_inputs
from specla.ops.kernels.walk import Pending, Tiles, verify_chain
from specla.ops.types import Bank, Factors, Fold, Known, NodeInputs, TreeTensors
from specla.topology import chain
from tests.ops.kernels.test_node_inputs import Case, draw

ROWS, PLACES = 3, 4
ROUNDINGS = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2**-9, torch.bfloat16: 2**-6}
SIZES = {"64": Heads(1, 1, 64, 64), "grouped": Heads(2, 4, 32, 48), "256": Heads(1, 1, 256, 256)}


def bank_of(case: Case, heads: Heads) -> Bank:
    """Not a number anywhere."""
    key_heads, value_heads, key_size, value_size = heads
    rows, nodes, _ = case.raw.shape
    return Bank(
        case.raw.new_full((rows, nodes, key_heads, key_size), torch.nan),
        case.raw.new_full((rows, nodes, value_heads, value_size), torch.nan, dtype=torch.float32),
        case.raw.new_full((rows, nodes, value_heads), torch.nan, dtype=torch.float64),
        case.raw.new_full(case.raw.shape, torch.nan).contiguous(),
    )


def known_of(heads: Heads, dtype: torch.dtype, device: torch.device) -> Known:
    """Rings with two, no and four factors."""
    generator = torch.Generator().manual_seed(3)
    key_heads, value_heads, key_size, value_size = heads
    k = torch.nn.functional.normalize(torch.randn(ROWS, PLACES, key_heads, key_size, generator=generator), dim=-1)
    u = torch.randn(ROWS, PLACES, value_heads, value_size, generator=generator)
    decay = -torch.rand(ROWS, PLACES, value_heads, generator=generator, dtype=torch.float64).cumsum(1)
    factors = Factors(k.to(device, dtype), u.to(device), decay.to(device))
    return Known(factors, torch.tensor([2, 0, 4], device=device))


CASES = [(size, "all fold", 1, False) for size in SIZES]
CASES += [("grouped", pending, 1, True) for pending in ("nothing", "some fold", "beside")]
CASES += [("grouped", pending, 3, False) for pending in ("nothing", "all fold", "some fold", "beside")]


@pytest.mark.parametrize(("size", "pending", "nodes", "bias"), CASES)
def test_it_is_the_two_kernels(
    size: str, pending: str, nodes: int, bias: bool, dtype: torch.dtype, device: torch.device
) -> None:
    heads = SIZES[size]
    case = draw(ROWS, nodes, heads, dtype, bias=bias)
    case = Case(*(to(x, device) for x in case))
    state = torch.randn(ROWS, heads.value_heads, heads.value_size, heads.key_size, device=device)
    fold: Fold = {"all fold": True, "some fold": torch.tensor([True, True, False], device=device)}.get(pending)
    held = Pending(None if pending == "nothing" else known_of(heads, dtype, device), fold)
    apart, at_once = (state.clone(), bank_of(case, heads)), (state.clone(), bank_of(case, heads))
    tree = TreeTensors.from_tree(chain(nodes - 1), device, case.weights.convolution.shape[1])
    inputs = node_inputs(case.raw, case.gates, case.window, tree.taps, case.weights, heads, False, apart[1])
    expected = verify_chain(apart[0], NodeInputs(*inputs), tree, held, bank=apart[1])
    step = Products(case.raw, *case.gates, case.window)
    # The interpreter is slow by the program.
    tiles = Tiles(32, 1) if device.type == "cpu" else None
    output = mix_chain(at_once[0], step, case.weights, heads, held, at_once[1], tiles=tiles)
    pairs = [(output.out, expected.out), (at_once[0], apart[0]), *zip(at_once[1], apart[1], strict=True)]
    for found, wanted in pairs:
        # A compiler may round other sums and products at once.
        if device.type == "cpu":
            assert torch.equal(found, wanted)
        else:
            torch.testing.assert_close(found, wanted, rtol=ROUNDINGS[found.dtype], atol=2e-5)


def to(x: Tensor | tuple[Tensor | None, ...], device: torch.device) -> object:
    """A tensor, or those of a named tuple, there."""
    if isinstance(x, Tensor):
        return x.to(device)
    moved = [None if one is None else one.to(device) for one in x]
    return type(x)(*moved) if hasattr(x, "_fields") else tuple(moved)


def test_what_it_cannot_take_is_said(device: torch.device) -> None:
    heads = SIZES["64"]
    case = Case(*(to(x, device) for x in draw(2, 4, heads, torch.float32)))
    state = torch.zeros(2, 1, 64, 64, device=device)
    long = Products(case.raw, *case.gates, case.window)
    with pytest.raises(SpeclaError, match="a chain of 4 nodes: this kernel takes 1 to 3"):
        mix_chain(state, long, case.weights, heads, Pending(None, None), bank_of(case, heads))
    one = Case(*(to(x, device) for x in draw(2, 1, heads, torch.float32)))
    step = Products(one.raw, *one.gates, one.window)
    with pytest.raises(SpeclaError, match=r"a state of \(2, 1, 64, 32\): kernels take \(2, 1, 64, 64\)"):
        mix_chain(state[..., :32].contiguous(), step, one.weights, heads, Pending(None, None), bank_of(one, heads))
    apart = bank_of(one, heads)._replace(u=state.new_empty(2, 1, 1, 128)[..., ::2])
    with pytest.raises(SpeclaError, match="a bank's u with strides"):
        mix_chain(state, step, one.weights, heads, Pending(None, None), apart)
    uneven, bank = Heads(2, 3, 16, 16), bank_of(one, heads)
    with pytest.raises(SpeclaError, match="value heads that are a multiple of key heads"):
        mix_chain(state, step, one.weights, uneven, Pending(None, None), bank)
    lazy = known_of(heads, torch.float32, device).rows(0, 2)
    lazy = lazy._replace(factors=lazy.factors._replace(decay=lazy.factors.decay.float()))
    with pytest.raises(SpeclaError, match="no copy would do"):
        mix_chain(state, step, one.weights, heads, Pending(lazy, True), bank)
    grouped = SIZES["grouped"]
    case = Case(*(to(x, device) for x in draw(2, 1, grouped, torch.float32)))
    weights = case.weights._replace(a_log=case.weights.a_log.new_zeros(8)[::2])
    state, step = torch.zeros(2, 4, 48, 32, device=device), Products(case.raw, *case.gates, case.window)
    with pytest.raises(SpeclaError, match="a_log with a stride of 2"):
        mix_chain(state, step, weights, grouped, Pending(None, None), bank_of(case, grouped))
