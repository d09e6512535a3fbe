"""Prompts: short ones by the chunk form, long ones on a GPU by another's kernels, to the same end."""

import pytest
import torch

from specla.ops.chunk import chunk_gated_delta_rule
from specla.ops.prefill import LONG, prefill_gated_delta_rule
from specla.ops.types import NodeInputs
from tests.tolerances import assert_close


def inputs(tokens: int, heads: int, device: str, dtype: torch.dtype) -> NodeInputs:
    """Two rows, four value heads."""
    generator = torch.Generator().manual_seed(tokens)

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(2, tokens, *sizes, generator=generator).to(device)

    q, k = (torch.nn.functional.normalize(draw(heads, 64), dim=-1).to(dtype) for _ in "qk")
    return NodeInputs(q, k, draw(4, 64).to(dtype), -0.1 * draw(4).abs(), draw(4).sigmoid())


def test_on_a_cpu_it_is_the_chunk_form() -> None:
    given = inputs(70, 2, "cpu", torch.float32)
    for found, expected in zip(prefill_gated_delta_rule(*given), chunk_gated_delta_rule(*given), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [2, 4])
@torch.no_grad()
def test_long_prompts_come_to_the_same_state(heads: int) -> None:
    given = inputs(LONG + 37, heads, "cuda", torch.bfloat16)
    state = torch.randn(2, 4, 64, 64, generator=torch.Generator().manual_seed(1)).cuda()
    out, after = prefill_gated_delta_rule(*given, state)
    expected = chunk_gated_delta_rule(*given, state)
    assert out.dtype == after.dtype == torch.float32
    assert_close(out, expected[0], "prefill_long")
    assert_close(after, expected[1], "prefill_long")
