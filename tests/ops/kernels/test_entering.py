"""What goes into an aligned drafter's block, and what it predicts last, against the torch forms that they replace."""

import pytest
import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.kernels.entering import entered, keep_predicted
from specla.ops.kernels.skinny import Norm
from specla.ops.norm import rms_norm
from specla.ops.types import Newest, Sources
from tests.tolerances import assert_close

VOCABULARY = 11


def drawn(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(device, dtype)


def norms(size: int, dtype: torch.dtype, device: torch.device) -> tuple[Norm, Norm]:
    both = 1 + drawn(2, size, dtype=dtype, device=device) / 8
    return Norm(both[0], 1e-5), Norm(both[1], 1e-3)


@pytest.mark.parametrize("size", [16, 200])
@pytest.mark.parametrize("shared", [True, False], ids=["one tree", "a path a row"])
def test_inputs_of_nodes(shared: bool, size: int, dtype: torch.dtype, device: torch.device) -> None:
    # Rows that lie apart, as nodes of a larger tree do.
    hidden = drawn(3, 7, size, dtype=dtype, device=device)[:, 1:6]
    tokens = torch.randint(VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1)).to(device)
    embeddings = drawn(VOCABULARY, size, dtype=dtype, device=device)
    hidden_at = torch.tensor([[4, 0], [1, 1], [2, 3]], device=device)[: 1 if shared else 3]
    tokens_at = torch.tensor([[0, 1]], device=device).expand(1 if shared else 3, -1)
    newest = Newest(*(torch.tensor(x, device=device) for x in ([3, 9, 9], [2, 1, 2])))
    before, behind = norms(size, dtype, device)
    for counted in (None, newest):
        found = entered(Sources(hidden, hidden_at, tokens, tokens_at, counted), embeddings, before, behind)
        for row in range(3):
            for node in range(2):
                start = 0 if counted is None else int(counted.total[row] - counted.length[row])
                token = tokens[row, min(start + node, 8)]
                of_hidden = rms_norm(hidden[row, hidden_at[0 if shared else row, node]], *before[:2])
                of_token = rms_norm(embeddings[token], *behind[:2])
                expected = torch.cat((of_hidden, of_token))
                assert_close(found[row, node], expected, f"norm_{str(dtype).removeprefix('torch.')}")


def test_the_last_prediction_of_rows_that_have_one(dtype: torch.dtype, device: torch.device) -> None:
    stream = drawn(3, 5, 200, dtype=dtype, device=device)
    before = drawn(3, 200, dtype=dtype, device=device)
    length, (norm, _) = torch.tensor([5, 0, 2], device=device), norms(200, dtype, device)
    predicted = before.clone()
    keep_predicted(stream, length, norm, predicted)
    kind = f"norm_{str(dtype).removeprefix('torch.')}"
    assert_close(predicted[0], rms_norm(stream[0, 4], *norm[:2]), kind)
    assert torch.equal(predicted[1], before[1])
    assert_close(predicted[2], rms_norm(stream[2, 1], *norm[:2]), kind)


def test_what_a_kernel_cannot_take_is_said(device: torch.device) -> None:
    kind = torch.float32
    hidden, (norm, other) = drawn(2, 3, 16, dtype=kind, device=device), norms(16, kind, device)
    places = torch.zeros(1, 2, dtype=torch.int64, device=device)
    embeddings = drawn(VOCABULARY, 16, dtype=kind, device=device)
    with pytest.raises(SpeclaError, match=r"embeddings of \(11, 8\): kernels take \(11, 16\)"):
        entered(Sources(hidden, places, places.expand(2, -1), places), embeddings[:, :8], norm, other)
    with pytest.raises(SpeclaError, match=r"places of tokens of \(1, 1\): kernels take \(1, 2\)"):
        entered(Sources(hidden, places, places.expand(2, -1), places[:, :1]), embeddings, norm, other)
    with pytest.raises(SpeclaError, match=r"predictions of \(2, 8\): kernels take \(2, 16\)"):
        keep_predicted(hidden, places[0], norm, embeddings[:2, :8])
    with pytest.raises(SpeclaError, match=r"predictions with strides \(32, 1\)"):
        keep_predicted(hidden, places[0], norm, embeddings.new_zeros(2, 32)[:, :16])
    with pytest.raises(SpeclaError, match="a norm's weight with a stride of 2"):
        keep_predicted(hidden, places[0], Norm(embeddings.new_ones(32)[::2], 1e-5), embeddings[:2])
    with pytest.raises(SpeclaError, match=r"tokens of \(2, 0\): kernels take 2 dimensions, none of them empty"):
        entered(Sources(hidden, places, places.expand(2, -1)[:, :0], places), embeddings, norm, other)
