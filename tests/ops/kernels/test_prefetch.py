"""Sending for memory: it changes nothing, whatever the size."""

import pytest
import torch

from specla.errors import SpeclaError
from specla.ops.kernels.prefetch import prefetch


@pytest.mark.gpu
@pytest.mark.parametrize("most_bytes", [0, 16, 4100, 1 << 20, 1 << 30])
def test_memory_that_was_sent_for_is_as_it_was(most_bytes: int) -> None:
    x = torch.arange(100_003, device="cuda")
    prefetch(x, most_bytes)
    assert torch.equal(x.cpu(), torch.arange(100_003))


def test_what_cannot_be_sent_for_is_said() -> None:
    with pytest.raises(SpeclaError, match="only a GPU"):
        prefetch(torch.zeros(4), 16)
