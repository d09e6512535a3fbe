"""The one table of numerical tolerances: relative RMS errors against the reference in float64, everywhere the same.

Raising an entry needs its reason beside it.
"""

import torch
from torch import Tensor

RELATIVE_RMS = {
    # Float32 arithmetic over at most 128 nodes.
    "verify": 2e-6,
    # Repeated keys with write strengths of 2 reflect the state back and forth: rounding adds up, over 128 nodes.
    "verify_extreme": 3e-5,
    "commit_extreme": 3e-5,
    # Sums of at most 128 float64 numbers.
    "decay": 1e-15,
    # Tensor cores take float32 operands in two bfloat16 halves: 2^-18 of each, the state, values and solved triangle.
    "verify_split": 1e-5,
    "commit_split": 1e-5,
    # One key at every node and a write strength of 2: every node reflects what those before it wrote, and the solved
    # triangle is full of twos of either sign. Nodes equally far apart have theirs rounded the same way, so sums cancel
    # and their errors do not; a commit adds the errors of all nodes, which no later one corrects: of up to 64,
    "verify_split_reflections": 3e-5,
    "commit_split_reflections": 3e-5,
    # and of 128, of which those behind the first 64 start from such a sum: 5.8e-5 on an H200. Both are the drift bound.
    "verify_split_blocks": 1e-4,
    "commit_split_blocks": 1e-4,
    # One product over at most 128 factors; the same from cached inputs.
    "commit": 1e-6,
    # 8,192 committed tokens (design section 1, 'Drift bound').
    "drift": 1e-4,
    # Four products and a sum.
    "conv": 5e-7,
    # The same for exponentials of a few units, and for a norm.
    "gates": 5e-7,
    "gated_norm": 5e-7,
    # Sums of a row of squares.
    "squares": 1e-6,
    # Products of up to 5,632 columns summed in float32, held against ones of float64. Rounded to 16 bits, sums that
    # differ by float32's rounding fall to the other neighbour now and then (2^-8 of a bfloat16, 2^-11 of a float16, a
    # few in a hundred of them), before a gate or a residual, and again after it: a share p has sqrt(p) units RMS.
    "product_float32": 2e-6,
    "product_float16": 2e-4,
    "product_bfloat16": 1.6e-3,
    # A norm, whose scale differs in the last bit: the same neighbours, or float32's rounding.
    "norm_float32": 5e-7,
    "norm_float16": 5e-5,
    "norm_bfloat16": 4e-4,
    # Each value by itself: a GPU takes exp(x) as exp2(x log2 e), and that product's rounding grows with x, here to 80.
    "gates_by_value": 1e-6,
    # One triangular solve of 64 tokens, then a product a chunk; its gradients run the same products backwards.
    "chunk": 2e-6,
    "chunk_gradient": 2e-6,
    # Another's kernels round keys, corrections and products to 16 bits inside (2^-9 each): measured at 3.6e-3.
    "prefill_long": 6e-3,
    # A bfloat16 model of two such layers: what they round (2^-9) grows in the norms of the second.
    "prefill_half": 5e-2,
    # Two layers with large random weights: heads whose output is small grow in the norm, and so does their rounding.
    "model": 1e-5,
    # The same against flash-linear-attention, in float32.
    "parity": 1e-5,
}


def relative_rms(value: Tensor, truth: Tensor) -> float:
    """RMS of the difference over RMS of the truth; infinite where the value is not finite."""
    if not bool(value.isfinite().all()):
        return float("inf")
    scale = truth.double().square().mean().sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    return float((value.double() - truth.double()).square().mean().sqrt() / scale)


def assert_close(value: Tensor, truth: Tensor, entry: str) -> None:
    """Hold `value` against the table."""
    assert value.shape == truth.shape, f"{tuple(value.shape)} against {tuple(truth.shape)}"
    error = relative_rms(value, truth)
    assert error <= RELATIVE_RMS[entry], f"relative RMS {error:.2e}, where {entry} allows {RELATIVE_RMS[entry]:.0e}"
