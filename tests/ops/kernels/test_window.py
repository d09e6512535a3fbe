"""The convolution's window after every number of accepted nodes, by every kernel that moves it, told input by input."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specla.ops.conv import conv_sequence
from specla.ops.gates import l2_normalise
from specla.ops.kernels.commit import commit_factors
from specla.ops.kernels.launch import Taken
from specla.ops.kernels.mixer import Products, mix_chain
from specla.ops.kernels.node_inputs import Heads
from specla.ops.kernels.pick import pick_state
from specla.ops.kernels.replay import replay
from specla.ops.kernels.ring import append
from specla.ops.kernels.walk import Pending, Tiles
from specla.ops.kernels.window import move
from specla.ops.types import Bank, Factors, Filled, HeadShape, Moving, NodeInputs
from tests.ops.cases import node_inputs, random_state
from tests.ops.kernels.test_node_inputs import draw

SHAPE = HeadShape(1, 1, 16, 16)
PATH = [0, 2, 3, 5, 6, 8, 9]
"""Of ten nodes; those between were rejected."""
NODES, ROWS, CHANNELS = 10, len(PATH) + 1, 5


def numbered(device: torch.device) -> tuple[Moving, Taken]:
    """Row r accepts r nodes. Input n of row r is 100 r + n, the window before it holds 100 r - 3, - 2 and - 1."""
    row = 100.0 * torch.arange(ROWS)[:, None, None]
    raw = (row + torch.arange(NODES)[:, None]).repeat(1, 1, CHANNELS)
    raw[:, [node for node in range(NODES) if node not in PATH]] = torch.nan
    window = (row + torch.arange(-3, 0)[:, None]).repeat(1, 1, CHANNELS)
    # Behind a row's end stands a rejected node.
    path = torch.tensor([[*PATH[:length], *[1] * (len(PATH) - length)] for length in range(ROWS)])
    moving = Moving(window.to(device), raw.to(device))
    return moving, Taken(path.to(device), torch.arange(ROWS).to(device))


def expected() -> Tensor:
    """The last three of the old window, then of the accepted inputs."""
    rows = [[*range(-3, 0), *PATH[:length]][-3:] for length in range(ROWS)]
    offsets = 100.0 * torch.arange(ROWS)[:, None]
    return (offsets + torch.tensor(rows))[..., None].expand(-1, -1, CHANNELS)


def by_itself(moving: Moving, taken: Taken) -> None:
    move(moving, taken.path, taken.length)


def made(device: torch.device) -> tuple[Tensor, NodeInputs]:
    generator = torch.Generator().manual_seed(0)
    inputs = NodeInputs(*(x.to(device) for x in node_inputs(ROWS, NODES, SHAPE, generator)))
    return random_state(ROWS, SHAPE, generator).to(device), inputs


def with_factors(moving: Moving, taken: Taken) -> None:
    state, inputs = made(taken.path.device)
    commit_factors(state, Factors(inputs.k, inputs.v.float(), inputs.g.double()), taken, moving)


def with_replay(moving: Moving, taken: Taken) -> None:
    state, inputs = made(taken.path.device)
    replay(state, inputs, taken, moving)


def with_a_state(moving: Moving, taken: Taken) -> None:
    state, _ = made(taken.path.device)
    pick_state(state, state[:, None].repeat(1, NODES, 1, 1, 1), taken, moving)


def with_a_ring(moving: Moving, taken: Taken) -> None:
    _, inputs = made(taken.path.device)
    new = Factors(inputs.k, inputs.v.float(), inputs.g.double())
    used = torch.zeros_like(taken.length)
    ring = Factors(*(torch.zeros_like(x) for x in new))
    append(ring, new, taken, Filled(used, torch.zeros_like(used, dtype=torch.bool)), len(PATH), moving)


@pytest.mark.parametrize("commit", [by_itself, with_factors, with_replay, with_a_state, with_a_ring])
def test_after_every_number_of_accepted_nodes(commit: Callable[[Moving, Taken], None], device: torch.device) -> None:
    """From none, which keeps all of it, over four, from which nothing old is left and a node is passed over."""
    moving, taken = numbered(device)
    commit(moving, taken)
    assert torch.equal(moving.window.cpu(), expected())


def test_a_short_chain_goes_on_from_the_window_that_was_rolled_back(device: torch.device) -> None:
    """Steps of three nodes that keep three, none (a finished row), one and two: keys are those of the whole text."""
    kept, tokens = [3, 0, 1, 2], 6
    heads = Heads(1, 1, 16, 16)
    case = draw(1, tokens + 3, heads, torch.float32)
    convolution = case.weights.convolution
    mixed, _ = conv_sequence(case.raw, case.window, convolution, case.weights.bias)
    keys = l2_normalise(mixed[..., 16:32])
    window, state = case.window.to(device).clone(), torch.zeros(1, 1, 16, 16, device=device)
    weights = type(case.weights)(*(None if x is None else x.to(device) for x in case.weights))
    done = 0
    for count in kept:
        # The two drafts are wrong where they are not kept.
        raw = case.raw[:, done : done + 3].clone()
        raw[:, max(1, count) :] += 1
        gates = (x[:, done : done + 3].to(device) for x in case.gates)
        bank = Bank(
            state.new_empty(1, 3, 1, 16), state.new_empty(1, 3, 1, 16),
            state.new_empty(1, 3, 1, dtype=torch.float64), state.new_empty(1, 3, raw.shape[2]),
        )  # fmt: skip
        step = Products(raw.to(device), *gates, window)
        mix_chain(state, step, weights, heads, Pending(None, None), bank, tiles=Tiles(16, 1))
        assert torch.equal(bank.raw.cpu(), raw)
        torch.testing.assert_close(bank.k[0, : max(1, count), 0].cpu(), keys[0, done : done + max(1, count)])
        path = torch.arange(3, device=device)[None]
        move(Moving(window, bank.raw), path, torch.tensor([count], device=device))
        done += count
