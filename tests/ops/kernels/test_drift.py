"""What 8,192 tokens leave in a state that kernels verify on and commit to (design section 1)."""

import pytest
import torch

from specla.ops.reference import reference_commit
from specla.ops.types import HeadShape, NodeInputs
from specla.topology import DraftTree, chain, explicit
from tests.ops.cases import node_inputs, random_state
from tests.ops.steps import make, step
from tests.tolerances import assert_close

SHAPE = HeadShape(1, 2, 64, 64)
BRANCHED = explicit([-1, 0, 0, 2, 2, 4, 4, 6])
"""Its path goes on with the second children: 0, 2, 4, 6, 7."""
WAYS = [
    ("ar", "factors"),
    ("ar", "factors_lazy"),
    ("chain", "snapshot"),
    ("chain", "factors_deferred"),
    ("hybrid", "factors_deferred"),
    ("tree", "factors"),
    ("tree", "factors_deferred"),
    ("tree", "factors_lazy"),
    ("tree", "replay_cached"),
    ("tree", "replay_tokens"),
]


def shape_of(verify: str) -> tuple[DraftTree, list[int]]:
    """A tree, and the path of it that is taken."""
    if verify == "ar":
        return chain(0), [0]
    return (chain(4), [0, 1, 2, 3, 4]) if verify == "chain" else (BRANCHED, [0, 2, 4, 6, 7])


ways = pytest.mark.parametrize(("verify", "recover"), WAYS, ids=["-".join(way) for way in WAYS])


@pytest.mark.parametrize("tokens", [24, pytest.param(8192, marks=pytest.mark.gpu)])
@ways
def test_drift(verify: str, recover: str, tokens: int, device: torch.device) -> None:
    """Slow decay, whose errors live long; one to five tokens a step, each row its own; bfloat16 on a GPU."""
    generator = torch.Generator().manual_seed(1)
    drawn = node_inputs(2, tokens + 5, SHAPE, generator, dtype_of(device))
    hold((verify, recover), drawn._replace(g=drawn.g * 1e-3), tokens, device, generator)


@pytest.mark.gpu
@ways
def test_drift_of_reflections(verify: str, recover: str, device: torch.device) -> None:
    """A write strength of 2 and no decay: nothing fades. Keys as a text has them, over 8,192 tokens."""
    generator = torch.Generator().manual_seed(2)
    drawn = node_inputs(2, 8192 + 5, SHAPE, generator, dtype_of(device))
    drawn = drawn._replace(g=torch.zeros_like(drawn.g), beta=torch.full_like(drawn.beta, 2.0))
    hold((verify, recover), drawn, 8192, device, generator)


@pytest.mark.parametrize("tokens", [40, pytest.param(256, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("recover", ["factors", "factors_deferred", "factors_lazy"])
def test_drift_of_one_key_reflected(recover: str, tokens: int, device: torch.device) -> None:
    """The same key, to the last bit, as `specla.ops.reference` says how often it may be."""
    generator = torch.Generator().manual_seed(3)
    drawn = node_inputs(2, tokens + 5, SHAPE, generator, dtype_of(device))
    k, g = drawn.k[:, :1].expand_as(drawn.k).contiguous(), torch.zeros_like(drawn.g)
    drawn = drawn._replace(k=k, g=g, beta=torch.full_like(drawn.beta, 2.0))
    hold(("tree", recover), drawn, tokens, device, generator)


def dtype_of(device: torch.device) -> torch.dtype:
    """The interpreter multiplies the raw bits of bfloat16."""
    return torch.bfloat16 if device.type == "cuda" else torch.float16


def hold(
    way: tuple[str, str], drawn: NodeInputs, tokens: int, device: torch.device, generator: torch.Generator
) -> None:
    """Decode tokens in this way, and hold the state against the equations."""
    verify, recover = way
    inputs = NodeInputs(*(x.to(device) for x in drawn))
    state = random_state(2, SHAPE, generator).to(device)
    total = torch.tensor([tokens, tokens - 3])
    everything = torch.arange(tokens)[None].expand(2, -1)
    truth = reference_commit(state.double(), inputs, everything, total)
    tree, taken = shape_of(verify)
    reflects = bool((inputs.beta > 1).any())
    verifier, recoverer, layer = make(verify, recover, tree.depth + 1, 16, reflects)
    path, places = torch.tensor([taken, taken], device=device), torch.tensor(taken)
    done, rows = torch.zeros(2, dtype=torch.long), torch.arange(2, device=device)[:, None]
    with torch.inference_mode():
        while (done < total).any():
            # Nodes off the path are of no token: any will do.
            ahead = torch.zeros(2, tree.nodes, dtype=torch.long)
            ahead[:, places] = done[:, None] + torch.arange(len(taken))
            nodes = NodeInputs(*(x[rows, ahead.clamp(max=tokens + 4).to(device)] for x in inputs))
            _, record = step(verifier, recoverer, layer, state, nodes, tree)
            count = torch.randint(1, len(taken) + 1, (2,), generator=generator).minimum(total - done)
            recoverer.commit(state, record, path, count.to(device))
            done += count
        recoverer.flush(state)
    assert_close(state, truth, "drift")
