"""The target's tokens from kernels: those of `specla.ops.sampling`, wherever they stand in the vocabulary."""

import pytest
import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.kernels import choose as kernel
from specla.ops.kernels.choose import Places, best_of_parts
from specla.ops.sampling import Sampling, choose

BATCH, NODES = 2, 3


def places(device: torch.device, depths_rows: int = 1) -> Places:
    """Rows 5 and 9, at positions 17 and 4."""
    depths = torch.tensor([[0, 1, 1], [0, 1, 2]], device=device)[:depths_rows]
    return Places(torch.tensor([5, 9], device=device), torch.tensor([17, 4], device=device), depths)


def chosen(logits: Tensor, sampling: Sampling, where: Places) -> Tensor:
    """What the kernel's parts come to."""
    best = best_of_parts(logits, sampling, where)
    top = best.score.max(-1, keepdim=True).values
    return torch.where(best.score == top, best.token.long(), 1 << 40).min(-1).values


def expected(logits: Tensor, sampling: Sampling, where: Places) -> Tensor:
    """What torch chooses."""
    positions = where.lengths[:, None] + where.depths + 1
    return choose(logits, sampling, where.rows[:, None].expand_as(positions), positions)


@pytest.mark.parametrize("vocabulary", [37, 4096, 4101, 9000])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(0.8, 1.0, seed=3),
        Sampling(1.3, 0.9, seed=-1),
        Sampling(0.7, 0.2, seed=(1 << 40) + (1 << 31)),
    ],
)
@pytest.mark.parametrize("depths_rows", [1, 2])
def test_tokens_are_those_of_torch(vocabulary: int, sampling: Sampling, depths_rows: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    logits = 3 * torch.randn(BATCH, NODES, vocabulary, generator=generator).to(device)
    where = places(device, depths_rows)
    assert torch.equal(chosen(logits, sampling, where), expected(logits, sampling, where))


def test_of_equal_scores_the_first_token_is_taken(device: torch.device) -> None:
    logits = torch.zeros(BATCH, NODES, 9000, device=device)
    logits[0, 0, [7000, 4500, 8999]] = 2.0
    assert chosen(logits, Sampling(), places(device)).tolist() == [[4500, 0, 0], [0, 0, 0]]


def test_equal_tokens_enter_the_nucleus_in_the_order_of_the_vocabulary(device: torch.device) -> None:
    # Ten equal tokens, a third of which make the nucleus: the noise must not choose any other.
    logits = torch.full((BATCH, NODES, 10), 1.5, device=device)
    where = places(device)
    for seed in range(12):
        sampling = Sampling(1.0, 0.35, seed)
        found = chosen(logits, sampling, where)
        assert found.max() <= 3
        assert torch.equal(found, expected(logits, sampling, where))


def test_a_nan_gives_a_token_of_the_vocabulary(device: torch.device) -> None:
    logits = torch.full((BATCH, NODES, 50), torch.nan, device=device)
    assert best_of_parts(logits, Sampling(), places(device)).token.max() < 50


def test_a_vocabulary_that_no_program_holds_is_refused(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "LARGEST_NUCLEUS", 32)
    with pytest.raises(SpeclaError, match=r"top_p=0.9 with a vocabulary of 40.*use sampling.top_p=1"):
        best_of_parts(torch.zeros(BATCH, NODES, 40, device=device), Sampling(1.0, 0.9), places(device))
