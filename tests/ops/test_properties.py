"""Every verification, every recovery and the convolution on whatever may come, against the equations in float64.

A few examples in every run; `--exhaustive` draws hundreds.
"""

from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from specla.ops import pairs
from specla.ops.conv import commit_window, conv_nodes
from specla.ops.reference import reference_commit, reference_conv, reference_verify
from specla.ops.types import HeadShape, NodeInputs, TreeTensors
from specla.topology import MAX_NODES, DraftTree, chain
from tests.ops.cases import GROUPED, ODD, node_inputs, paths, random_state, random_tree, shared
from tests.ops.steps import make, step
from tests.tolerances import assert_close

SHAPES = [GROUPED, ODD, HeadShape(1, 1, 1, 1), HeadShape(3, 3, 7, 5), HeadShape(1, 4, 9, 16), HeadShape(1, 1, 128, 128)]
DECAYS = [0.0, -1e-6, -1.0, -80.0, -1e4]
STRENGTHS = [0.0, 1e-8, 1.0, 2.0]
QUICK = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
THOROUGH = settings(QUICK, max_examples=400, derandomize=False)
SMALLEST = 1e-30
"""Below, float32 has no digits: what decayed so far is as good as zero."""


class Example(NamedTuple):
    """What one step is made of."""

    trees: list[DraftTree]
    """One that all rows share, or one a row."""
    shape: HeadShape
    ends: list[int]
    """The accepted node of every row; -1 accepts nothing."""
    extreme: float
    """The share of nodes whose gates are extreme."""
    one_key: bool
    generator: torch.Generator

    def inputs(self, nodes: int) -> NodeInputs:
        batch = len(self.ends)
        q, k, v, g, beta = node_inputs(batch, nodes, self.shape, self.generator)
        g, beta = self._spiked(g, DECAYS), self._spiked(beta, STRENGTHS)
        return NodeInputs(q, k[:, :1].expand_as(k) if self.one_key else k, v, g, beta)

    def _spiked(self, x: Tensor, values: list[float]) -> Tensor:
        chosen = torch.tensor(values)[torch.randint(len(values), x.shape, generator=self.generator)]
        return torch.where(torch.rand(x.shape, generator=self.generator) < self.extreme, chosen, x)


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Chains, bushes and all between, of sizes around those of blocks as well."""
    nodes = draw(st.integers(1, 20) | st.sampled_from([31, 32, 33, 63, 64, 65, MAX_NODES]))
    if draw(st.booleans()):
        return chain(nodes - 1)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    return random_tree(nodes, generator, reach=draw(st.sampled_from([1, 2, 6, MAX_NODES])))


@st.composite
def examples(draw: st.DrawFn, own_trees: bool = False) -> Example:
    batch = draw(st.integers(1, 3))
    grown = [draw(trees()) for _ in range(batch if own_trees else 1)]
    ends = [draw(st.integers(-1, grown[row % len(grown)].nodes - 1)) for row in range(batch)]
    extreme, one_key = draw(st.sampled_from([0.0, 0.1, 1.0])), draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    return Example(grown, draw(st.sampled_from(SHAPES)), ends, extreme, one_key, generator)


def close(found: Tensor, truth: Tensor, entry: str) -> None:
    if float(truth.abs().max()) < SMALLEST:
        assert float(found.abs().max()) < SMALLEST
    else:
        assert_close(found, truth, entry)


def step_of(example: Example) -> None:
    """Two steps of every pair that can run the tree: the second reads what the first committed."""
    tree = example.trees[0]
    first, second = example.inputs(tree.nodes), example.inputs(tree.nodes)
    start = random_state(len(example.ends), example.shape, example.generator)
    path, length = paths([tree] * len(example.ends), example.ends, padding=tree.nodes - 1)
    wanted = reference_verify(start.double(), first, shared(tree)).out
    between = reference_commit(start.double(), first, path, length)
    wanted_next = reference_verify(between.clone(), second, shared(tree)).out
    after = reference_commit(between, second, path, length)
    for verify, recovers in pairs.RECOVERS_WITH.items():
        if pairs.unsupported(verify, tree) is not None:
            continue
        for recover in recovers:
            state = start.clone()
            verifier, recoverer, layer = make(verify, recover, tree.depth + 1, reflects=True)
            with torch.inference_mode():
                for inputs, truth in ((first, wanted), (second, wanted_next)):
                    out, record = step(verifier, recoverer, layer, state, inputs, tree)
                    close(out, truth, "verify_extreme")
                    recoverer.commit(state, record, path, length)
                recoverer.flush(state)
            close(state, after, "commit_extreme")


def convolution_of(example: Example) -> None:
    """Trees of their own, padded to the largest: every node's path, and the window after the accepted one."""
    tensors = TreeTensors.from_rows(example.trees)
    batch, nodes = len(example.ends), tensors.nodes
    x = torch.randn(batch, nodes, 5, generator=example.generator)
    window = torch.randn(batch, 3, 5, generator=example.generator)
    weight = torch.randn(5, 4, generator=example.generator)
    found = conv_nodes(x, window, weight, None, tensors.taps)
    wanted = reference_conv(x.double(), window.double(), weight.double(), None, tensors.parents.expand(batch, -1))
    close(found, wanted, "conv")
    grown = [example.trees[row % len(example.trees)] for row in range(batch)]
    path, length = paths(grown, example.ends, padding=nodes - 1)
    moved = commit_window(window, x, path, length)
    for row, (tree, end) in enumerate(zip(grown, example.ends, strict=True)):
        accepted = x[row, tree.path(end)] if end >= 0 else x[row, :0]
        assert torch.equal(moved[row], torch.cat((window[row], accepted))[-3:])


@QUICK
@given(examples())
def test_steps(example: Example) -> None:
    step_of(example)


@QUICK
@given(examples(own_trees=True))
def test_convolutions(example: Example) -> None:
    convolution_of(example)


@pytest.mark.exhaustive
@THOROUGH
@given(examples())
def test_many_steps(example: Example) -> None:
    step_of(example)


@pytest.mark.exhaustive
@THOROUGH
@given(examples(own_trees=True))
def test_many_convolutions(example: Example) -> None:
    convolution_of(example)
