"""The fused convolution, norms and gates, against the torch forms that they replace."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from specla.models.layers import GatedDeltaNet
from specla.ops.conv import conv_nodes
from specla.ops.gates import gates, l2_normalise
from specla.ops.kernels import grid
from specla.ops.kernels.node_inputs import Heads, Weights, node_inputs
from specla.ops.lost import marked
from specla.ops.types import NodeInputs, TreeTensors
from specla.topology import explicit
from tests.models.cases import VARIANTS, tiny_config
from tests.ops.cases import random_tree
from tests.ops.kernels.rounding import assert_same
from tests.tolerances import assert_close

SMALL = Heads(1, 2, 64, 64)
SHAPES = {
    "64": SMALL,
    "96": Heads(2, 2, 96, 192),
    "128": Heads(1, 2, 128, 128),
    "192": Heads(1, 1, 192, 384),
    "256": Heads(1, 1, 256, 512),
    "grouped": Heads(2, 6, 24, 40),
}


@pytest.fixture(autouse=True)
def eight_nodes_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is slow by the program, not by its size."""
    monkeypatch.setattr(grid, "ENOUGH_PROGRAMS", 1)


class Case(NamedTuple):
    """A layer's products and weights."""

    raw: Tensor
    gates: tuple[Tensor, Tensor]
    window: Tensor
    weights: Weights

    def torch_form(self, taps: Tensor, heads: Heads, allow_neg_eigval: bool = False) -> NodeInputs:
        """What the kernel replaces."""
        mixed = conv_nodes(self.raw, self.window, self.weights.convolution, self.weights.bias, taps)
        keys = heads.key_heads * heads.key_size
        q, k, v = mixed.split([keys, keys, heads.value_heads * heads.value_size], dim=-1)
        q, k = (x.unflatten(-1, (heads.key_heads, heads.key_size)) for x in (q, k))
        g, beta = gates(*self.gates, self.weights.a_log, self.weights.dt_bias, allow_neg_eigval)
        v = v.unflatten(-1, (heads.value_heads, heads.value_size))
        return NodeInputs(l2_normalise(q, heads.key_size**-0.5), l2_normalise(k), v, g, beta)


def draw(batch: int, nodes: int, heads: Heads, dtype: torch.dtype, width: int = 4, bias: bool = False) -> Case:
    """Slices of a wide product, as a layer has them; what lies between them is NaN."""
    generator = torch.Generator().manual_seed(nodes + width)

    def random(*sizes: int, of: torch.dtype = dtype) -> Tensor:
        return torch.randn(*sizes, generator=generator).to(of)

    channels = 2 * heads.key_heads * heads.key_size + heads.value_heads * heads.value_size
    wide = torch.full((batch, nodes, channels + 5 + 2 * heads.value_heads), torch.nan, dtype=dtype)
    raw, _, a, b = wide.split([channels, 5, heads.value_heads, heads.value_heads], dim=-1)
    for part in (raw, a, b):
        part.copy_(random(*part.shape))
    # As a layer packs it: channels next to each other.
    weight = random(width, channels).t()
    decay = random(heads.value_heads, of=torch.float32), random(heads.value_heads, of=torch.float32) - 4
    weights = Weights(weight, random(channels) if bias else None, *decay)
    return Case(raw, (a, b), random(batch, width - 1, channels), weights)


def check(case: Case, tensors: TreeTensors, heads: Heads, device: torch.device, allow_neg_eigval: bool = False) -> None:
    wanted = case.torch_form(tensors.taps, heads, allow_neg_eigval)
    wide = case.raw._base.to(device)  # type: ignore[union-attr]
    raw, a, b = (wide.as_strided(x.shape, x.stride(), x.storage_offset()) for x in (case.raw, *case.gates))
    weights = Weights(*(None if x is None else x.to(device) for x in case.weights))
    window, taps = case.window.to(device), tensors.taps.to(device)
    found = NodeInputs(*node_inputs(raw, (a, b), window, taps, weights, heads, allow_neg_eigval))
    assert_same(found.q, wanted.q, "conv", roundings=2)
    assert_same(found.k, wanted.k, "conv", roundings=2)
    assert_same(found.v, wanted.v.contiguous(), "conv")
    assert_same(found.g, wanted.g, "gates")
    assert_same(found.beta, wanted.beta, "gates")


@pytest.mark.parametrize("shape", SHAPES)
def test_head_sizes(shape: str, dtype: torch.dtype, device: torch.device) -> None:
    """Powers of two and others, wide values, grouped value heads."""
    heads = SHAPES[shape]
    tree = random_tree(15, torch.Generator().manual_seed(1))
    check(draw(2, 15, heads, dtype), TreeTensors.from_tree(tree), heads, device)


@pytest.mark.parametrize("nodes", [1, 2, 17, 64, 65])
def test_nodes(nodes: int, dtype: torch.dtype, device: torch.device) -> None:
    tree = random_tree(nodes, torch.Generator().manual_seed(nodes))
    check(draw(1, nodes, SMALL, dtype), TreeTensors.from_tree(tree), SMALL, device)


@pytest.mark.parametrize("nodes", [1, 5, 17])
def test_one_node_a_program(
    nodes: int, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where there are few."""
    monkeypatch.setattr(grid, "ENOUGH_PROGRAMS", 512)
    test_nodes(nodes, dtype, device)


def test_a_tree_per_row(dtype: torch.dtype, device: torch.device) -> None:
    """Rows padded to the largest tree."""
    generator = torch.Generator().manual_seed(2)
    tensors = TreeTensors.from_rows([random_tree(nodes, generator) for nodes in (9, 1, 6)])
    check(draw(3, 9, SMALL, dtype), tensors, SMALL, device)


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_widths(width: int, bias: bool, dtype: torch.dtype, device: torch.device) -> None:
    """With doubled write strengths besides."""
    tensors = TreeTensors.from_tree(random_tree(6, torch.Generator().manual_seed(3)), width=width)
    check(draw(2, 6, SMALL, dtype, width, bias), tensors, SMALL, device, allow_neg_eigval=True)


SPOILT = [
    *(("q", value, [], None, []) for value in (torch.nan, torch.inf)),
    *(("k", value, [1, 3], "beta", [2, 3]) for value in (torch.nan, torch.inf, -torch.inf)),
    *(("v", value, [1, 3], "g", [3]) for value in (torch.nan, torch.inf, -torch.inf)),
    *(("a", value, [1], "g", [3]) for value in (torch.nan, torch.inf)),
    ("b", torch.nan, [1], "beta", [3]),
]
"""What is spoilt in the last head of node 1, and how, then the nodes, the gate and the value heads that are marked."""


@pytest.mark.parametrize(("what", "value", "nodes", "gate", "heads"), SPOILT, ids=str)
def test_what_is_not_finite_is_marked(
    what: str,
    value: float,
    nodes: list[int],
    gate: str | None,
    heads: list[int],
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Its convolution spoils node 3, a child, as well; node 2, a sibling, and row 1 are as ever."""
    sizes = Heads(2, 4, 16, 24)
    tensors = TreeTensors.from_tree(explicit([-1, 0, 0, 1, 2]))
    case = draw(2, 5, sizes, dtype)
    if what in "ab":
        case.gates["ab".index(what)][0, 1, -1] = value
    else:
        case.raw[0, 1, {"q": 31, "k": 63, "v": 159}[what]] = value
    plain = case.torch_form(tensors.taps, sizes)
    raw, a, b, window, taps = (x.to(device) for x in (case.raw, *case.gates, case.window, tensors.taps))
    weights = Weights(*(None if x is None else x.to(device) for x in case.weights))
    found = NodeInputs(*(x.cpu() for x in node_inputs(raw, (a, b), window, taps, weights, sizes)))
    for name in ("g", "beta"):
        marks = torch.zeros(2, 5, 4, dtype=torch.bool)
        if name == gate:
            marks[0, torch.tensor(nodes)[:, None], torch.tensor(heads)] = True
        assert torch.equal(getattr(found, name).isnan(), marks)
    assert torch.equal(found.k == 0, ~plain.k.isfinite() | (plain.k == 0))
    wanted = marked(plain)
    for name in ("k", "v", "g", "beta"):
        ours, theirs = (getattr(x, name).nan_to_num(0.0, 0.0, 0.0).contiguous() for x in (found, wanted))
        assert_same(ours, theirs, "gates" if name in ("g", "beta") else "conv", roundings=2 if name == "k" else 1)


def test_gates_keep_their_digits_at_both_ends(device: torch.device) -> None:
    """Softplus from 1e-13 to 80, each value by itself: exp and log as they stand lose all digits of the small ones."""
    heads = Heads(1, 1, 16, 16)
    shift = torch.cat((torch.linspace(-30, 30, 29), torch.tensor([-80.0, 80.0])))
    case = draw(1, 31, heads, torch.float32)
    zero = torch.zeros(1)
    case.gates[0].copy_(shift[None, :, None])
    tensors = TreeTensors.from_tree(random_tree(31, torch.Generator().manual_seed(4)))
    weights = Weights(*(x.to(device) for x in (case.weights.convolution, zero.expand(48).contiguous(), zero, zero)))
    moved = (x.to(device) for x in (case.raw, *case.gates, case.window, tensors.taps))
    raw, a, b, window, taps = moved
    g = node_inputs(raw, (a, b), window, taps, weights, heads)[3]
    truth = torch.nn.functional.softplus(shift.double(), threshold=1e9)
    assert_close(-g.cpu().flatten() / truth, torch.ones_like(truth), "gates_by_value")


@pytest.mark.parametrize("variant", ["plain", "grouped value heads", "convolution bias", "negative eigenvalues"])
@torch.inference_mode()
def test_a_layer_on_a_gpu_reads_the_same(variant: str, device: torch.device) -> None:
    """Of the nodes of a tree, and of an accepted path again."""
    torch.manual_seed(5)
    mixer = GatedDeltaNet(tiny_config(**VARIANTS[variant]))
    mixer.pack()
    x, window = torch.randn(2, 9, 32), torch.randn(2, 3, mixer.config.conv_dim)
    taps = TreeTensors.from_tree(random_tree(9, torch.Generator().manual_seed(5))).taps
    raw, _, a, b = mixer.project(x)
    mixed = conv_nodes(raw, window, *mixer._conv_weights(), taps)
    wanted = [mixer.delta_inputs(mixed, a, b), mixer.regenerate(x, window)]
    mixer = mixer.to(device)
    mixer.pack()
    raw, a, b, window, taps = (part.to(device) for part in (raw, a, b, window, taps))
    line = mixer._chain_taps(window, x.shape[1])
    for inputs, chosen in zip(wanted, (taps, line), strict=True):
        found = mixer._fused_inputs(raw, (a, b), window, chosen)
        for name in NodeInputs._fields:
            assert_same(getattr(found, name), getattr(inputs, name).contiguous(), "conv")
