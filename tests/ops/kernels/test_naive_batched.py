"""flash-linear-attention's kernel as the naive batched baseline, against the equations."""

import pytest
import torch

from specla.ops.reference import reference_verify
from specla.ops.types import HeadShape, TreeTensors
from specla.ops.verify import get_verify, naive_batched
from tests.ops.cases import GROUPED, PLAIN, known_factors, node_inputs, random_state, random_tree, same_bits
from tests.tolerances import assert_close


@pytest.mark.parametrize(("nodes", "shape"), [(1, PLAIN), (9, GROUPED)], ids=["root", "grouped"])
@torch.inference_mode()
def test_paths(
    nodes: int, shape: HeadShape, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths of several lengths, on a state with pending factors; the state keeps its bits."""
    monkeypatch.setattr(naive_batched, "prefill_torch", naive_batched.prefill_fla)
    generator = torch.Generator().manual_seed(nodes)
    tree = random_tree(nodes, generator, reach=4)
    inputs, state = node_inputs(2, nodes, shape, generator, dtype), random_state(2, shape, generator)
    known = known_factors(torch.tensor([[True, True], [True, False]]), shape, generator, dtype)
    wanted = reference_verify(state.double(), inputs, TreeTensors.from_tree(tree), known).out
    moved = state.to(device)
    found = get_verify("naive_batched").verify(
        moved,
        type(inputs)(*(x.to(device) for x in inputs)),
        TreeTensors.from_tree(tree, device),
        type(known)(type(known.factors)(*(x.to(device) for x in known.factors)), known.valid.to(device)),
    )
    assert found.out.dtype == torch.float32
    assert_close(found.out.cpu(), wanted, "verify")
    assert same_bits(moved.cpu(), state)
