"""Float32 products on tensor cores that take 16-bit operands: every float32 is split in a high and a low half.

Three products of halves stand for one: high x high, high x low, low x high. What is left out is as small as the
rounding of the low half: 2^-17 with bfloat16 halves, which have float32's range, and 2^-22 with float16 halves, for
operands that are neither large nor small, or are made so: row by row by `scaled_halves`, by constants where their size
is known.

Bfloat16 will do for the state, which is read anew in every step, and for what is written to it where errors fade. Write
strengths beyond 1 reflect what is there and let none fade, and where keys repeat, their products are rounded the same
way in every step: with REFLECTS, what is written comes from float16 halves, at a tenth of the time more.
"""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
"""The interpreter cuts bfloat16 off where a GPU rounds, and multiplies its raw bits: both are mended here."""


@triton.jit
def _bfloat16(x):
    """Float32 rounded to the nearest bfloat16, ties to even."""
    if INTERPRETED:
        bits = x.to(tl.uint32, bitcast=True)
        bits += 0x7FFF + ((bits >> 16) & 1)
        return (bits & 0xFFFF0000).to(tl.float32, bitcast=True).to(tl.bfloat16)
    return x.to(tl.bfloat16)


@triton.jit
def product(a, b):
    """a b in float32, of 16-bit operands."""
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b)


@triton.jit
def add_product(total, a, b):
    """total + a b in float32, of 16-bit operands."""
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")
    return tl.dot(a, b, total)


@triton.jit
def halves(x, DTYPE: tl.constexpr):
    """(high, low) with high + low = x but for the rounding of low."""
    x = x.to(tl.float32)
    if tl.bfloat16 == DTYPE:
        high = _bfloat16(x)
        low = _bfloat16(x - high.to(tl.float32))
    else:
        high = x.to(DTYPE)
        low = (x - high.to(tl.float32)).to(DTYPE)
    return high, low


@triton.jit
def add_product_of_halves(total, high, low, b, DTYPE: tl.constexpr, EXACT: tl.constexpr):
    """total + (high + low) b in float32, small products first; EXACT where b has DTYPE already and needs no halves."""
    if EXACT:
        return add_product(add_product(total, low, b), high, b)
    b_high, b_low = halves(b, DTYPE)
    return add_product(add_product(add_product(total, low, b_high), high, b_low), high, b_high)


@triton.jit
def product_of_halves(high, low, b, DTYPE: tl.constexpr, EXACT: tl.constexpr):
    """(high + low) b in float32, as above."""
    nothing = tl.zeros([high.shape[0], b.shape[1]], tl.float32)
    return add_product_of_halves(nothing, high, low, b, DTYPE, EXACT)


@triton.jit
def split_product(a, b, DTYPE: tl.constexpr):
    """a b of float32 operands."""
    a_high, a_low = halves(a, DTYPE)
    return product_of_halves(a_high, a_low, b, DTYPE, False)


@triton.jit
def scaled_halves(x, REFLECTS: tl.constexpr):
    """(high, low, down): halves of x [rows, n], and what undoes how each row was scaled.

    With REFLECTS float16 ones of a row times a power of two. The largest element of a row comes to lie between 2^14 and
    2^15, so the halves keep 22 bits of all that is no smaller than 2^-17 of it. Else bfloat16 ones of x as it is.
    """
    if REFLECTS:
        largest = tl.max(tl.abs(x), axis=1)
        # Exponents as they stand in the bits of a float32, 127 too large; that of the inverse is 254 less this one.
        exponent = tl.minimum(268 - (largest.to(tl.int32, bitcast=True) >> 23), 253)
        up = (exponent << 23).to(tl.float32, bitcast=True)
        down = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
        high, low = halves(x * up[:, None], tl.float16)
    else:
        high, low = halves(x, tl.bfloat16)
        down = tl.full([x.shape[0]], 1.0, tl.float32)
    return high, low, down


@triton.jit
def written(high, low, down, b_k, EXACT: tl.constexpr, REFLECTS: tl.constexpr):
    """U^T K [BV, BK] of `scaled_halves` of U^T and keys [n, BK], whose elements are no larger than 1.

    EXACT where the keys are bfloat16.
    """
    if REFLECTS:
        wide = b_k.to(tl.float32) * 32.0
        if b_k.dtype == tl.float32:
            added = product_of_halves(high, low, wide, tl.float16, False)
        else:
            added = product_of_halves(high, low, wide.to(tl.float16), tl.float16, True)
        added *= (down * (1.0 / 32.0))[:, None]
    else:
        added = product_of_halves(high, low, b_k, tl.bfloat16, EXACT)
    return added
