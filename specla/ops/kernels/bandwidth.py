"""Reading memory and nothing else: how fast it goes is what every floor is taken from."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048
"""Eight floats a thread, so that all blocks of a program can be on their way at once in its registers."""
_BLOCKS = 16
"""A program reads as many blocks, so that starting it and its one store do not count."""


@triton.jit
def _read_kernel(x, sums, N, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    """One sum for every BLOCKS x BLOCK elements of x [N]."""
    i_p = tl.program_id(0).to(tl.int64)
    o_b = tl.arange(0, BLOCK)
    b_sum = tl.zeros([BLOCK], dtype=tl.float32)
    for i_b in tl.static_range(BLOCKS):
        o_x = (i_p * BLOCKS + i_b) * BLOCK + o_b
        b_sum += tl.load(x + o_x, mask=o_x < N, other=0.0)
    tl.store(sums + i_p, tl.sum(b_sum, axis=0))


def partial_sums(x: Tensor, sums: Tensor) -> None:
    """Read x [N] float32, contiguous, once; `sums` takes what `partial_sums_size(N)` programs added up."""
    _read_kernel[(sums.shape[0],)](x, sums, x.shape[0], BLOCK=_BLOCK, BLOCKS=_BLOCKS, num_warps=8)


def partial_sums_size(count: int) -> int:
    """How many sums there are of so many elements."""
    return -(-count // (_BLOCK * _BLOCKS))


def empty_sums(x: Tensor) -> Tensor:
    """Where the sums of x go."""
    return torch.empty(partial_sums_size(x.shape[0]), dtype=torch.float32, device=x.device)
