"""The short convolution on trees and sequences, and the window's recovery, against the path of every node."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from specla.ops.conv import commit_window, conv_nodes, conv_sequence
from specla.ops.reference import reference_conv
from specla.ops.types import TreeTensors
from specla.topology import DraftTree, chain
from tests.ops.cases import paths, random_tree, trees
from tests.tolerances import assert_close

CHANNELS = 6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(trees(), st.integers(1, 5), st.booleans(), st.integers(0, 2**16))
def test_nodes(tree: DraftTree, width: int, with_bias: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, tree.nodes, CHANNELS, generator=generator)
    window = torch.randn(2, width - 1, CHANNELS, generator=generator)
    weight = torch.randn(CHANNELS, width, generator=generator)
    bias = torch.randn(CHANNELS, generator=generator) if with_bias else None
    tensors = TreeTensors.from_tree(tree, width=width)
    kept = x.clone()
    found = conv_nodes(x, window, weight, bias, tensors.taps)
    wide_bias = None if bias is None else bias.double()
    parents = tensors.parents.expand(2, -1)
    assert_close(found, reference_conv(x.double(), window.double(), weight.double(), wide_bias, parents), "conv")
    assert torch.equal(x, kept)


def test_nodes_of_a_tree_per_row() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [random_tree(9, generator), random_tree(5, generator), chain(8)]
    tensors = TreeTensors.from_rows(rows)
    x, window = (torch.randn(3, n, CHANNELS, generator=generator) for n in (9, 3))
    weight = torch.randn(CHANNELS, 4, generator=generator)
    found = conv_nodes(x, window, weight, None, tensors.taps)
    wanted = reference_conv(x.double(), window.double(), weight.double(), None, tensors.parents)
    assert_close(found, wanted, "conv")


def test_nodes_round_once() -> None:
    """Bfloat16 in and out, float32 between."""
    generator = torch.Generator().manual_seed(1)
    tree = random_tree(12, generator)
    tensors = TreeTensors.from_tree(tree)
    x, window, weight = (
        torch.randn(*sizes, generator=generator).bfloat16() for sizes in ((1, 12, 6), (1, 3, 6), (6, 4))
    )
    for bias in (None, weight[:, 0]):
        found = conv_nodes(x, window, weight, bias, tensors.taps)
        wide = conv_nodes(
            x.float(), window.float(), weight.float(), None if bias is None else bias.float(), tensors.taps
        )
        assert torch.equal(found, wide.bfloat16())
        sequence, after = conv_sequence(x, window, weight, bias)
        along = conv_nodes(x, window, weight, bias, TreeTensors.from_tree(chain(11)).taps)
        assert sequence.dtype == after.dtype == torch.bfloat16
        torch.testing.assert_close(sequence, along, atol=0, rtol=2**-7)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 17])
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("with_window", [True, False])
def test_sequence(tokens: int, width: int, with_window: bool) -> None:
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(2, tokens, CHANNELS, generator=generator)
    window = torch.randn(2, width - 1, CHANNELS, generator=generator)
    if not with_window:
        window.zero_()
    weight, bias = torch.randn(CHANNELS, width, generator=generator), torch.randn(CHANNELS, generator=generator)
    found, after = conv_sequence(x, window if with_window else None, weight, bias)
    parents = torch.arange(-1, tokens - 1).expand(2, -1)
    assert_close(found, reference_conv(x.double(), window.double(), weight.double(), bias.double(), parents), "conv")
    assert torch.equal(after, torch.cat((window, x), 1)[:, tokens:])
    half = tokens // 2
    first, between = conv_sequence(x[:, :half], window, weight, bias)
    second, end = conv_sequence(x[:, half:], between, weight, bias)
    assert_close(torch.cat((first, second), 1), found.double(), "conv")
    assert torch.equal(end, after)


def test_sequence_has_gradients() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(1, 5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    found = conv_sequence(x, None, weight, None)[0].square().sum()
    wanted = F.silu(F.conv1d(F.pad(x.mT, (3, 0)), weight[:, None], groups=3)).square().sum()
    for ours, theirs in zip(
        torch.autograd.grad(found, (x, weight)), torch.autograd.grad(wanted, (x, weight)), strict=True
    ):
        assert_close(ours, theirs, "conv")


@pytest.mark.parametrize("width", [1, 2, 4, 6])
def test_window_after_every_number_of_accepted_tokens(width: int) -> None:
    """None to more than the window holds, along branches; a row that accepts nothing keeps its window."""
    generator = torch.Generator().manual_seed(3)
    tree = random_tree(15, generator, reach=2)
    ends = [-1, *range(15)]
    rows = len(ends)
    x, window = (torch.randn(rows, n, CHANNELS, generator=generator) for n in (15, width - 1))
    x[:, 14] = torch.where(torch.tensor(ends)[:, None] == 14, x[:, 14], torch.nan)
    path, length = paths([tree] * rows, ends, padding=14)
    kept = window.clone()
    found = commit_window(window, x, path, length)
    for row, end in enumerate(ends):
        accepted = [x[row, node] for node in tree.path(end)] if end >= 0 else []
        inputs = torch.stack([*window[row], *accepted]) if width > 1 or accepted else torch.zeros(0, CHANNELS)
        assert torch.equal(found[row], inputs[len(inputs) - (width - 1) :])
    assert torch.equal(window, kept)


def test_windows_of_stacked_layers() -> None:
    generator = torch.Generator().manual_seed(4)
    tree = random_tree(9, generator)
    x, window = (torch.randn(3, 2, n, CHANNELS, generator=generator) for n in (9, 3))
    path, length = paths([tree] * 2, [8, 1])
    together = commit_window(window.flatten(0, 1), x.flatten(0, 1), path, length)
    apart = torch.cat([commit_window(window[i], x[i], path, length) for i in range(3)])
    assert torch.equal(together, apart)


def test_a_step_follows_the_committed_window() -> None:
    """Verify, accept five nodes of a branch (more than the window holds), verify again: as one long sequence."""
    generator = torch.Generator().manual_seed(5)
    tree = DraftTree((-1, 0, 0, 2, 3, 4, 5))
    tensors = TreeTensors.from_tree(tree)
    window = torch.randn(1, 3, CHANNELS, generator=generator)
    weight = torch.randn(CHANNELS, 4, generator=generator)
    x, following = (torch.randn(1, 7, CHANNELS, generator=generator) for _ in range(2))
    path, length = paths([tree], [5])
    after = commit_window(window, x, path, length)
    accepted = x[:, list(tree.path(5))]
    line = torch.cat((accepted, following[:, list(tree.path(6))]), 1)
    wanted, _ = conv_sequence(line, window, weight, None)
    found = conv_nodes(following, after, weight, None, tensors.taps)[:, list(tree.path(6))]
    assert_close(found, wanted[:, 5:].double(), "conv")
