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


@pytest.mark.parametrize("vocabulary", [33, 300])
def test_the_nucleus_ends_where_the_mass_before_a_token_is_top_p(vocabulary: int, device: torch.device) -> None:
    """Three millionths above that mass the token is inside, as far below it is not; float32 sums round less."""
    logits = 2 * torch.randn(vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    p, order = torch.softmax(logits.double() / 0.8, -1).sort(descending=True)
    before = p.cumsum(-1) - p
    for rank in (1, 2, 6, 20):
        for above in (-3e-6, 3e-6):
            sampling = Sampling(0.8, float(before[rank]) + above)
            least, last = kernel._nucleus(logits.view(1, 1, -1).to(device), sampling)
            keys = kernel_keys(logits / 0.8)
            inside = (keys > int(least)) | ((keys == int(least)) & (torch.arange(vocabulary) <= int(last)))
            assert set(inside.nonzero().flatten().tolist()) == set(order[: rank + (above > 0)].tolist())


def kernel_keys(x: Tensor) -> Tensor:
    """Whole numbers in the order of the float32 they come from."""
    bits = x.view(torch.int32)
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@pytest.mark.parametrize("tied", [3, 10])
def test_of_tied_tokens_those_that_are_begun_are_inside(tied: int, device: torch.device) -> None:
    """The mass before the k-th of some equal tokens is k / n: whatever passes that by a little takes one more."""
    logits = torch.full((1, 1, tied), 1.5, device=device)
    for taken in range(1, tied):
        for above, more in ((-1e-4, 0), (1e-4, 1)):
            _, last = kernel._nucleus(logits, Sampling(1.0, taken / tied + above))
            assert int(last) == taken + more - 1


def test_a_nan_gives_a_token_of_the_vocabulary(device: torch.device) -> None:
    logits = torch.full((BATCH, NODES, 50), torch.nan, device=device)
    assert best_of_parts(logits, Sampling(), places(device)).token.max() < 50


def test_a_vocabulary_that_no_program_holds_is_refused(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "LARGEST_NUCLEUS", 32)
    with pytest.raises(SpeclaError, match=r"top_p=0.9 with a vocabulary of 40.*use sampling.top_p=1"):
        best_of_parts(torch.zeros(BATCH, NODES, 40, device=device), Sampling(1.0, 0.9), places(device))
