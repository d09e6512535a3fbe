"""Products of a few rows with a wide weight, `x @ weight.T`, at the speed at which the weight comes from memory.

A weight never depends on the kernel before, so every program has sent for its part, or its first blocks, when it
begins to wait for x. One row goes without tensor cores (`skinny_vector`), more rows with them (`skinny_matrix`). A norm
before the product, and a gate or a residual after it, are part of it, with the rounding of their torch forms.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from specla.errors import SpeclaError
from specla.ops.kernels.checks import COMPUTE_DTYPES, expect
from specla.ops.kernels.launch import overlapped, side_by_side
from specla.ops.kernels.skinny_matrix import matrix_kernel
from specla.ops.kernels.skinny_vector import vector_kernel

MOST_ROWS = 32
"""Beyond, the vendor's library is faster on an H200."""
LEAST_MATRIX_ROWS = 16
"""What tensor cores take."""
COUNTED_ROWS = 32
"""The fewest rows of a weight to a program of the matrix's kernel, whose programs count arrivals."""
ENOUGH_PROGRAMS = 170
"""With fewer, programs share the columns of a row: a multiprocessor needs more than one to keep memory busy."""
MOST_HELD = 24_576
"""Elements of the weight that a program of the vector's kernel has in its registers."""


class VectorTiles(NamedTuple):
    """How a product with one row is cut: rows of the weight to a program, and columns of its blocks."""

    rows: int
    columns: int


class MatrixTiles(NamedTuple):
    """How a product with more rows is cut.

    Attributes:
        rows: of the weight, to a program.
        columns: of the weight, at a time.
        split: parts that the columns are cut into, each a program's.
        warps: of a program.
        stages: blocks on their way at once.
    """

    rows: int
    columns: int
    split: int
    warps: int
    stages: int


MEASURED = {
    (8208, 2048): MatrixTiles(128, 128, 4, 4, 3),
    (11264, 2048): MatrixTiles(64, 256, 2, 4, 2),
    (2048, 5632): MatrixTiles(32, 128, 11, 2, 3),
}
"""By the weight's rows and columns, what was the fastest for 16 rows of x or fewer of some 36 ways to cut each of the
products of gdn-1.3b, among the others of a cycle, on an H200."""


class Norm(NamedTuple):
    """An RMS norm before a product.

    Attributes:
        weight: [K].
        epsilon: added to the mean of squares.
        squares: [M, parts] float32, which add up to the sums of squares of x; None where nobody left them.
    """

    weight: Tensor
    epsilon: float
    squares: Tensor | None = None


class Wide(NamedTuple):
    """A weight.

    Attributes:
        data: [N, K] contiguous, of a gated pair [2 N, K]: the rows of the gate, then those of up.
        counters: `counters_for(data)`; a launch leaves them zero. Launches at the same time need their own.
        gated: whether it is such a pair: the product is then silu(gate) * up.
    """

    data: Tensor
    counters: Tensor
    gated: bool = False

    @property
    def outputs(self) -> int:
        """N."""
        return self.data.shape[0] // (1 + self.gated)


class Operands(NamedTuple):
    """What a product takes.

    Attributes:
        x: [M, K], bfloat16, float16 or float32; rows may lie apart.
        weight: in x's dtype.
        norm: of x before the product; normalised in float32 and rounded once, as `specla.ops.norm.rms_norm` does.
        residual: [M, N], added to the rounded product, and rounded again; rows may lie apart.
        keeps_normed: return the normed x as well.
        into: [M, N], contiguous: where the product goes; None for new memory.
    """

    x: Tensor
    weight: Wide
    norm: Norm | None = None
    residual: Tensor | None = None
    keeps_normed: bool = False
    into: Tensor | None = None


class Product(NamedTuple):
    """What comes of it.

    Attributes:
        y: [M, N].
        normed: [M, K], x as it was multiplied, where asked for.
        squares: [M, parts] float32, which add up to the sums of squares of y, where a residual was added to more than
            one row: a norm's programs read one row again faster than its sums.
    """

    y: Tensor
    normed: Tensor | None
    squares: Tensor | None


def counters_for(data: Tensor) -> Tensor:
    """Zeros in which programs count who came."""
    return torch.zeros(triton.cdiv(data.shape[0], COUNTED_ROWS), dtype=torch.int32, device=data.device)


def vector_tiles(rows: int, size: int, gated: bool) -> VectorTiles:
    """For a weight [rows, size]; measured on an H200 at the shapes of gdn-1.3b."""
    columns = min(1024, triton.next_power_of_2(size))
    whole = triton.cdiv(size, columns) * columns
    block = 4 if gated or rows > 16_384 else 8
    while block > 2 and block * whole > MOST_HELD:
        block //= 2
    return VectorTiles(block, columns)


def matrix_tiles(rows: int, size: int, few: bool = True) -> MatrixTiles:
    """For a weight [rows, size], and no more rows of x than tensor cores take anyway; measured on an H200."""
    if few and (rows, size) in MEASURED:
        return MEASURED[rows, size]
    block, warps = (128, 8) if 4096 < rows <= 16_384 else (64, 4)
    columns = min(128, max(16, triton.next_power_of_2(size)))
    blocks, programs = triton.cdiv(size, columns), triton.cdiv(rows, block)
    splits = [split for split in range(1, 17) if blocks % split == 0]
    split = next((split for split in splits if programs * split >= ENOUGH_PROGRAMS), splits[-1])
    return MatrixTiles(block, columns, split, warps, 3 if block == 128 or split == 1 else 4)


def product(given: Operands) -> Product:
    """One product, with what stands before and after it.

    Raises:
        SpeclaError: naming the limit, for what the kernels cannot take.
    """
    rows, columns = given.weight.data.shape
    if given.x.shape[0] == 1 and 2 * columns <= MOST_HELD:
        return by_vector(given, vector_tiles(rows, columns, given.weight.gated))
    return by_matrix(given, matrix_tiles(rows, columns, given.x.shape[0] <= LEAST_MATRIX_ROWS))


def by_vector(given: Operands, tiles: VectorTiles) -> Product:
    """A product of one row."""
    given = _checked(given, 1)
    x, weight, norm, residual = given[:4]
    y, normed = _outputs(given)
    vector_kernel[(triton.cdiv(weight.data.shape[0], tiles.rows),)](
        *(x, weight.data, None if norm is None else norm.weight, residual, y, normed),
        0.0 if norm is None else norm.epsilon,
        N=weight.outputs,
        K=x.shape[1],
        BN=tiles.rows,
        BK=tiles.columns,
        GATED=weight.gated,
        num_warps=4,
        **overlapped(x),
    )
    return Product(y, normed, None)


def by_matrix(given: Operands, tiles: MatrixTiles) -> Product:
    """A product of some rows."""
    given = _checked(given, MOST_ROWS)
    x, weight, norm, residual = given[:4]
    y, normed = _outputs(given)
    rows = x.shape[0]
    block = max(LEAST_MATRIX_ROWS, triton.next_power_of_2(rows))
    programs = triton.cdiv(weight.data.shape[0], tiles.rows)
    left = None if residual is None else x.new_empty(rows, programs, dtype=torch.float32)
    shape = (programs, tiles.split, tiles.rows, block)
    partials = x.new_empty(shape, dtype=torch.float32) if tiles.split > 1 else None
    squares = None if norm is None else norm.squares
    matrix_kernel[programs, tiles.split](
        *(x, weight.data, None if norm is None else norm.weight, squares, residual, y, normed, left),
        *(partials, None if partials is None else weight.counters, 0.0 if norm is None else norm.epsilon, rows),
        *(x.stride(0), 0 if residual is None else residual.stride(0)),
        N=weight.outputs,
        K=x.shape[1],
        TILES=1 if squares is None else squares.shape[1],
        BM=block,
        BN=tiles.rows,
        BK=tiles.columns,
        SPLIT=tiles.split,
        GATED=weight.gated,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **overlapped(x),
    )
    return Product(y, normed, left)


def _outputs(given: Operands) -> tuple[Tensor, Tensor | None]:
    """Room for y and the normed x."""
    x = given.x
    y = x.new_empty(x.shape[0], given.weight.outputs) if given.into is None else given.into
    return y, x.new_empty(x.shape) if given.keeps_normed else None


def _checked(given: Operands, most: int) -> Operands:
    """The same with elements side by side, or an error."""
    x, weight, norm, residual, keeps_normed, into = given
    rows = x.shape[0]
    if x.dim() != 2 or not 0 < rows <= most:
        raise SpeclaError(f"x of {tuple(x.shape)}: this product's kernel takes [1 to {most} rows, columns]")
    expect("x", x, (rows, weight.data.shape[1]), COMPUTE_DTYPES, x)
    expect("a weight", weight.data, (weight.outputs * (1 + weight.gated), x.shape[1]), (x.dtype,), x)
    expect("its counters", weight.counters, weight.counters.shape, (torch.int32,), x)
    # No copy would do: it would be read before the kernel that copies has ended.
    for name, kept in (("a weight", weight.data), ("the norm's weight", norm and norm.weight)):
        if kept is not None and not kept.is_contiguous():
            raise SpeclaError(f"{name} with strides {kept.stride()}: kernels take it contiguous")
    if norm is not None:
        expect("the norm's weight", norm.weight, (x.shape[1],), COMPUTE_DTYPES, x)
        if norm.squares is not None:
            expect("sums of squares", norm.squares, (rows, norm.squares.shape[1]), (torch.float32,), x)
    elif keeps_normed:
        raise SpeclaError("keeps_normed without a norm: leave it out, or give a norm")
    if residual is not None:
        expect("a residual", residual, (rows, weight.outputs), (x.dtype,), x)
        residual = side_by_side(residual)
    if into is not None:
        expect("room for the product", into, (rows, weight.outputs), (x.dtype,), x)
        if not into.is_contiguous():
            raise SpeclaError(f"room for the product with strides {into.stride()}: kernels take it contiguous")
    return Operands(side_by_side(x), weight, norm, residual, keeps_normed, into)
