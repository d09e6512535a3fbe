"""Products of a few rows with what stands before and after them, against the torch form that they replace."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.kernels import skinny
from specla.ops.kernels.skinny import MatrixTiles, Norm, Operands, Product, VectorTiles, Wide
from specla.ops.norm import rms_norm
from tests.tolerances import assert_close

EPSILON = 1e-5
SMALL = MatrixTiles(64, 32, 1, 4, 3)
SPLIT = MatrixTiles(64, 32, 3, 4, 3)
"""Of 200 columns: the last part has fewer."""
ROW = VectorTiles(8, 64)


class Case:
    """x with rows that lie apart, NaN between them, and everything else that a product takes."""

    def __init__(self, rows: int, outputs: int, size: int, dtype: torch.dtype, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(rows + outputs + size)

        def drawn(*shape: int, scale: float = 1.0) -> Tensor:
            return (scale * torch.randn(*shape, generator=generator)).to(device, dtype)

        apart = torch.full((rows, size + 24), torch.nan, dtype=dtype, device=device)
        apart[:, 8 : 8 + size] = drawn(rows, size)
        self.x = apart[:, 8 : 8 + size]
        self.pair = drawn(2 * outputs, size, scale=size**-0.5)
        self.weight = self.pair[:outputs]
        self.norm = Norm(1 + drawn(size, scale=0.1), EPSILON)
        self.residual = drawn(rows, 2 * outputs)[:, outputs:]

    @property
    def normed(self) -> Tensor:
        """x after the norm."""
        return rms_norm(self.x, self.norm.weight, EPSILON)

    def operands(self, kind: str) -> Operands:
        """What a product of that kind takes."""
        weight = Wide(self.weight, skinny.counters_for(self.weight))
        if kind == "plain":
            return Operands(self.x, weight)
        if kind == "normed":
            return Operands(self.x, weight, self.norm, keeps_normed=True)
        if kind == "added":
            return Operands(self.x, weight, residual=self.residual)
        return Operands(self.x, Wide(self.pair, skinny.counters_for(self.pair), gated=True), self.norm)

    def truth(self, kind: str) -> Tensor:
        """In float64, rounded where the torch form rounds."""
        x = self.normed if kind in ("normed", "gated") else self.x
        y = F.linear(x.double(), (self.pair if kind == "gated" else self.weight).double()).to(x.dtype)
        if kind == "gated":
            gate, up = y.chunk(2, dim=-1)
            return F.silu(gate) * up
        return self.residual + y if kind == "added" else y


def check(found: Product, case: Case, kind: str) -> None:
    """y, and what is left beside it."""
    assert_close(found.y, case.truth(kind), f"product_{str(case.x.dtype).removeprefix('torch.')}")
    if kind == "normed":
        assert found.normed is not None
        assert_close(found.normed, case.normed, f"norm_{str(case.x.dtype).removeprefix('torch.')}")
    if found.squares is not None:
        assert_close(found.squares.sum(-1), found.y.float().square().sum(-1), "squares")


KINDS = ("plain", "normed", "added", "gated")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [64, 200, 1032])
def test_one_row(kind: str, size: int, dtype: torch.dtype, device: torch.device) -> None:
    """Sizes that fill their blocks, and that do not; rows of the weight that fill no program."""
    case = Case(1, 20, size, dtype, device)
    check(skinny.by_vector(case.operands(kind), ROW), case, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3, 16, 17, 32])
@pytest.mark.parametrize("tiles", [SMALL, SPLIT], ids=["whole", "split"])
def test_some_rows(kind: str, rows: int, tiles: MatrixTiles, dtype: torch.dtype, device: torch.device) -> None:
    case = Case(rows, 72, 200, dtype, device)
    check(skinny.by_matrix(case.operands(kind), tiles), case, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 5])
def test_columns_that_fill_their_blocks(kind: str, rows: int, dtype: torch.dtype, device: torch.device) -> None:
    case = Case(rows, 64, 256, dtype, device)
    for tiles in (SMALL, SPLIT._replace(split=2)):
        check(skinny.by_matrix(case.operands(kind), tiles), case, kind)
    check(skinny.product(case.operands(kind)), case, kind)


def test_a_stream_goes_from_product_to_product(dtype: torch.dtype, device: torch.device) -> None:
    """The norm takes the sums of squares that the product before it left, of as many parts as it had programs."""
    first, second = Case(4, 200, 64, dtype, device), Case(4, 72, 200, dtype, device)
    stream = skinny.by_matrix(first.operands("added"), SPLIT._replace(split=2))
    assert stream.squares is not None
    assert stream.squares.shape == (4, 4)
    second.x, second.norm = stream.y, second.norm._replace(squares=stream.squares)
    for kind in ("normed", "gated"):
        check(skinny.by_matrix(second.operands(kind), SMALL), second, kind)


def test_a_split_product_has_the_same_bits_every_time(dtype: torch.dtype, device: torch.device) -> None:
    """And leaves its counters as it found them."""
    case = Case(16, 200, 200, dtype, device)
    given = case.operands("added")
    first = skinny.by_matrix(given, SPLIT)
    for _ in range(3):
        again = skinny.by_matrix(given, SPLIT)
        assert torch.equal(again.y, first.y)
        assert not bool(given.weight.counters.any())


@pytest.mark.parametrize("rows", [1, 3])
def test_a_product_lies_where_it_shall(rows: int, dtype: torch.dtype, device: torch.device) -> None:
    case = Case(rows, 40, 64, dtype, device)
    room = case.x.new_full((5, 40), torch.nan)
    found = skinny.product(case.operands("normed")._replace(into=room[1 : 1 + rows]))
    check(found, case, "normed")
    assert found.y.data_ptr() == room[1].data_ptr()
    assert room[0].isnan().all()
    assert room[1 + rows :].isnan().all()
    with pytest.raises(SpeclaError, match="room for the product with strides"):
        skinny.product(case.operands("normed")._replace(into=room.new_empty(rows, 80)[:, ::2]))


def test_a_row_is_the_same_beside_others(dtype: torch.dtype, device: torch.device) -> None:
    case = Case(16, 72, 200, dtype, device)
    given = case.operands("normed")
    alone = given._replace(x=given.x[3:4])
    for tiles in (SMALL, SPLIT):
        assert torch.equal(skinny.by_matrix(given, tiles).y[3:4], skinny.by_matrix(alone, tiles).y)


@pytest.mark.parametrize(("rows", "size"), [(8208, 2048), (2048, 2048), (11264, 2048), (2048, 5632), (32000, 2048)])
@pytest.mark.parametrize("few", [True, False])
def test_tiles_of_the_published_shape_give_every_multiprocessor_work(rows: int, size: int, few: bool) -> None:
    tiles = skinny.matrix_tiles(rows, size, few)
    assert size % (tiles.columns * tiles.split) == 0
    assert -(-rows // tiles.rows) * tiles.split >= skinny.ENOUGH_PROGRAMS


def test_what_a_kernel_cannot_take_is_said(device: torch.device) -> None:
    case = Case(3, 72, 200, torch.float32, device)
    plain, normed, added = (case.operands(kind) for kind in ("plain", "normed", "added"))
    wrong = [
        (plain._replace(x=case.x[:, :8]), "x of"),
        (plain._replace(x=case.x.expand(20, 3, 200).reshape(60, 200)), "1 to 32 rows"),
        (plain._replace(keeps_normed=True), "keeps_normed"),
        (plain._replace(weight=plain.weight._replace(data=case.weight.half())), "a weight of torch.float16"),
        (plain._replace(weight=plain.weight._replace(data=case.weight.T.contiguous().T)), "contiguous"),
        (normed._replace(norm=Norm(case.norm.weight[:8], EPSILON)), "the norm's weight"),
        (normed._replace(norm=Norm(case.norm.weight[:1].expand(200), EPSILON)), "the norm's weight with strides"),
        (added._replace(residual=case.residual[:2]), "a residual"),
    ]
    for given, message in wrong:
        with pytest.raises(SpeclaError, match=message):
            skinny.product(given)
