"""Commits by kernels: factors, cached inputs, a dense state, a ring; each with the convolution's window."""

import pytest
import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.conv import commit_window, move_window
from specla.ops.recover import get_recover, snapshot
from specla.ops.recover.base import Record
from specla.ops.reference import reference_commit, reference_verify
from specla.ops.types import Factors, HeadShape, Moving, NodeInputs, TreeTensors
from specla.topology import chain, kary
from tests.ops.cases import node_inputs, paths, random_state
from tests.tolerances import assert_close

WIDE = HeadShape(2, 4, 64, 48)
ODD = HeadShape(1, 2, 96, 32)
TREE = kary(2, 7)
ENDS = [3, -1, 6, 0]
"""A deep path, nothing accepted, another branch, the root alone."""


class Step:
    """What a verification left, and what its commit must make of it."""

    def __init__(self, shape: HeadShape, dtype: torch.dtype, device: torch.device, width: int = 4) -> None:
        generator = torch.Generator().manual_seed(5)
        batch = len(ENDS)
        self.inputs = node_inputs(batch, TREE.nodes, shape, generator, dtype)
        self.state = random_state(batch, shape, generator)
        self.path, self.length = paths([TREE] * batch, ENDS, padding=5)
        truth = reference_verify(self.state.double(), self.inputs, TreeTensors.from_tree(TREE))
        assert truth.factors is not None and truth.states is not None
        self.truth = reference_commit(self.state.double(), self.inputs, self.path, self.length)
        channels = 2 * shape.heads * shape.key_size + shape.value_heads * shape.value_size + 3
        window = torch.randn(batch, width - 1, channels, generator=generator).to(dtype)
        # As the layers give them: a slice of a wider product.
        raw = torch.randn(batch, TREE.nodes, channels + 5, generator=generator).to(dtype)[..., :channels]
        self.moved = commit_window(window, raw, self.path, self.length)
        decay = truth.factors.decay.double()
        left = self._spoiled(Factors(self.inputs.k, truth.factors.u.float(), decay))
        self.factors = Factors(*(x.to(device) for x in left))
        self.states = truth.states.float().to(device)
        self.inputs = NodeInputs(*(x.to(device) for x in self.inputs))
        self.moving = Moving(window.to(device), raw.to(device))
        self.live, self.path, self.length = self.state.to(device), self.path.to(device), self.length.to(device)

    def _spoiled(self, factors: Factors) -> Factors:
        """What no accepted path touches is not a number, so that reading it shows."""
        touched = torch.zeros(factors.k.shape[:2], dtype=torch.bool)
        for row, (nodes, length) in enumerate(zip(self.path.tolist(), self.length.tolist(), strict=True)):
            touched[row, nodes[:length]] = True
        spoiled = []
        for x in factors:
            mask = touched.view(*touched.shape, *(1 for _ in x.shape[2:]))
            spoiled.append(x.masked_fill(~mask, float("nan")))
        return Factors(*spoiled)

    def check(self, entry: str) -> None:
        """State and window are right, and a row that committed nothing has its bits."""
        assert_close(self.live.cpu(), self.truth, entry)
        assert torch.equal(self.live[1].cpu(), self.state[1])
        assert torch.equal(self.moving.window.cpu(), self.moved)


@pytest.fixture(params=[WIDE, ODD], ids=["grouped", "odd"])
def step(request: pytest.FixtureRequest, dtype: torch.dtype, device: torch.device) -> Step:
    return Step(request.param, dtype, device)


def test_factors(step: Step) -> None:
    from specla.ops.kernels.commit import commit_factors
    from specla.ops.kernels.launch import Taken

    commit_factors(step.live, step.factors, Taken(step.path, step.length), step.moving)
    step.check("commit_split")


def test_replay_in_one_pass(step: Step) -> None:
    from specla.ops.kernels.launch import Taken
    from specla.ops.kernels.replay import replay

    replay(step.live, step.inputs, Taken(step.path, step.length), step.moving)
    step.check("commit")


def test_replay_token_by_token(step: Step) -> None:
    from specla.ops.kernels.launch import Taken
    from specla.ops.kernels.replay import replay

    rows = torch.arange(len(ENDS), device=step.path.device)[:, None]
    tokens = NodeInputs(*(x[rows, step.path] for x in step.inputs))
    order = torch.arange(step.path.shape[1], device=step.path.device).expand(len(ENDS), -1)
    for place in range(step.path.shape[1]):
        moving = step.moving if place == 0 else None
        replay(step.live, tokens, Taken(order, step.length, step.path), moving, (place, 1))
    step.check("commit")


def test_a_dense_state(step: Step) -> None:
    from specla.ops.kernels.launch import Taken
    from specla.ops.kernels.pick import pick_state

    pick_state(step.live, step.states, Taken(step.path, step.length), step.moving)
    step.check("commit")


@pytest.mark.parametrize("width", [2, 4])
def test_a_window_by_itself(width: int, dtype: torch.dtype, device: torch.device) -> None:
    from specla.ops.kernels.window import move

    step = Step(ODD, dtype, device, width)
    move(step.moving, step.path, step.length)
    assert torch.equal(step.moving.window.cpu(), step.moved)


def test_layers_stacked_in_the_rows_share_their_paths(device: torch.device) -> None:
    from specla.ops.kernels.commit import commit_factors
    from specla.ops.kernels.launch import Taken

    step = Step(ODD, torch.float32, device)
    twice = Factors(*(torch.cat((x, x)) for x in step.factors))
    state, moving = step.live.repeat(2, 1, 1, 1), Moving(*(torch.cat((x, x)) for x in step.moving))
    commit_factors(state, twice, Taken(step.path, step.length), moving)
    for half, window in zip(state.chunk(2), moving.window.chunk(2), strict=True):
        assert_close(half.cpu(), step.truth, "commit_split")
        assert torch.equal(window.cpu(), step.moved)


def test_a_ring_holds_what_torch_holds(device: torch.device, dtype: torch.dtype) -> None:
    """Steps of differing lengths, folds among them, an empty step too."""
    from specla.ops.kernels.launch import Taken
    from specla.ops.kernels.ring import append
    from specla.ops.types import Filled

    generator = torch.Generator().manual_seed(3)
    batch, places, heads, values = 3, 8, 2, 4
    lazy = get_recover("factors_lazy", ring=places, longest=3)
    ring = Factors(
        torch.zeros(batch, places, heads, 32, dtype=dtype, device=device),
        torch.zeros(batch, places, values, 16, device=device),
        torch.zeros(batch, places, values, dtype=torch.float64, device=device),
    )
    used = torch.zeros(batch, dtype=torch.int64, device=device)
    filled = Filled(used, torch.zeros_like(used, dtype=torch.bool))
    folded = 0
    for _ in range(8):
        known, fold = lazy.pending()
        if known is not None:
            assert isinstance(fold, Tensor)
            folded += int(fold.sum())
            assert torch.equal(filled.fold.cpu(), fold)
            expected = known.in_order()
            counts = expected.valid.sum(1)
            assert torch.equal(filled.used.cpu(), counts)
            for row, count in enumerate(counts.tolist()):
                for x, y in zip(ring, expected.factors, strict=True):
                    assert torch.equal(x[row, :count].cpu(), y[row, :count])
        factors = Factors(
            torch.randn(batch, 7, heads, 32, generator=generator).to(dtype),
            torch.randn(batch, 7, values, 16, generator=generator),
            torch.randn(batch, 7, values, generator=generator).double(),
        )
        path = torch.tensor([[0, 1, 3], [0, 2, 6], [0, 1, 4]])
        length = torch.randint(0, 4, (batch,), generator=generator)
        lazy.commit(torch.zeros(batch, values, 16, 32), Record(factors=factors), path, length)
        there = Factors(*(x.to(device) for x in factors))
        filled = append(ring, there, Taken(path.to(device), length.to(device)), filled, 3)
    assert folded > 2


def test_what_a_commit_cannot_take() -> None:
    from specla.ops.kernels.commit import commit_factors
    from specla.ops.kernels.launch import Taken

    step = Step(ODD, torch.float32, torch.device("cpu"))
    taken = Taken(step.path, step.length)
    with pytest.raises(SpeclaError, match="kernels take contiguous float32"):
        commit_factors(step.live.double(), step.factors, taken)
    wrong = Moving(step.moving.window.half(), step.moving.raw)
    with pytest.raises(SpeclaError, match="kernels take one dtype"):
        commit_factors(step.live, step.factors, taken, wrong)


def test_no_window_moves_on_the_cpu_path() -> None:
    move_window(None, torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, dtype=torch.int64))


def test_a_long_chain(device: torch.device) -> None:
    """More places than one block of a product takes."""
    from specla.ops.kernels.commit import commit_factors
    from specla.ops.kernels.launch import Taken

    generator = torch.Generator().manual_seed(1)
    shape, nodes = HeadShape(1, 1, 32, 16), 40
    inputs, state = node_inputs(2, nodes, shape, generator), random_state(2, shape, generator)
    truth = reference_verify(state.double(), inputs, TreeTensors.from_tree(chain(nodes - 1)))
    assert truth.factors is not None
    path, length = torch.arange(nodes).expand(2, -1), torch.tensor([nodes, 17])
    expected = reference_commit(state.double(), inputs, path, length)
    live = state.to(device)
    factors = Factors(inputs.k.to(device), truth.factors.u.float().to(device), truth.factors.decay.double().to(device))
    commit_factors(live, factors, Taken(path.to(device), length.to(device)))
    assert_close(live.cpu(), expected, "commit_split")


@pytest.mark.parametrize("batch", [1, 2])
def test_states_of_several_layers_are_picked_along_the_paths_of_one(batch: int, device: torch.device) -> None:
    layers, nodes, size = 3, 4, 16
    generator = torch.Generator().manual_seed(batch)
    states = [torch.randn(batch, nodes, 1, size, size, generator=generator).to(device) for _ in range(layers)]
    state = torch.zeros(layers * batch, 1, size, size, device=device)
    path = torch.tensor([[0, 2, 3], [0, 1, 1]], device=device)[:batch]
    length = torch.tensor([3, 2], device=device)[:batch]
    snapshot._pick(state, tuple(states), path, length, None)
    for layer in range(layers):
        for row, node in enumerate((3, 1)[:batch]):
            assert torch.equal(state[layer * batch + row], states[layer][row, node])
