"""The convolution's window moved along: by programs beyond those of the state in a commit's launch, or by itself."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.checks import check_path, check_window
from specla.ops.kernels.launch import overlapped
from specla.ops.types import Moving

CHANNELS = 256
"""Of a program."""


def window_programs(window: Tensor, heads: int) -> int:
    """How many programs a head there must be for the window's channels."""
    blocks = triton.cdiv(window.shape[2], CHANNELS)
    return int(triton.cdiv(blocks, heads))


def window_of(moving: Moving | None, like: Tensor) -> Moving:
    """What a commit's launch takes beside `like` [B, ...]: empty where no window is moved along.

    Raises:
        SpeclaError: as `check_window`.
    """
    if moving is None:
        return Moving(*(torch.empty(0, 0, 0, dtype=torch.float32, device=like.device) for _ in range(2)))
    check_window(moving, like.shape[0])
    return moving


@triton.jit
def move_window(p_window, p_raw, p_path, length, i_block, raw_node, C: tl.constexpr, W: tl.constexpr, BC: tl.constexpr):
    """The last W-1 of (old window, then accepted inputs), for one block of channels of one row.

    The pointers are those of the row.
    """
    o_w, o_c = tl.arange(0, 4), i_block * BC + tl.arange(0, BC)
    place = o_w + length
    inside = (o_w < W - 1)[:, None] & (o_c < C)[None, :]
    kept = (place < W - 1)[:, None]
    node = tl.load(p_path + place - (W - 1), mask=(o_w < W - 1) & (place >= W - 1), other=0)
    old = tl.load(p_window + place[:, None] * C + o_c[None, :], mask=inside & kept, other=0.0)
    new = tl.load(p_raw + node[:, None] * raw_node + o_c[None, :], mask=inside & ~kept, other=0.0)
    # A place is read by other threads than those that write it.
    tl.debug_barrier()
    tl.store(p_window + o_w[:, None] * C + o_c[None, :], tl.where(kept, old, new), mask=inside)


@triton.jit(do_not_specialize=["L", "rows"])
def _move_kernel(
    p_window,
    p_raw,
    p_path,
    p_length,
    L,
    rows,
    raw_row,
    raw_node,
    C: tl.constexpr,
    W: tl.constexpr,
    BC: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """A block of channels of one row."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_c, i_b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    length = tl.load(p_length + i_b % rows)
    if length > 0:
        p_window += i_b * (W - 1) * C
        move_window(p_window, p_raw + i_b * raw_row, p_path + i_b % rows * L, length, i_c, raw_node, C, W, BC)


def move(moving: Moving, path: Tensor, length: Tensor) -> None:
    """Move a window along path[b, :length[b]]; where layers are stacked in its rows, paths are those of one layer."""
    window, raw = moving
    check_window(moving, window.shape[0])
    check_path(window.shape[0], path, length)
    _move_kernel[(triton.cdiv(window.shape[2], CHANNELS), window.shape[0])](
        window, raw, path.contiguous(), length.contiguous(), path.shape[1], path.shape[0],
        raw.stride(0), raw.stride(1),
        C=window.shape[2], W=window.shape[1] + 1, BC=CHANNELS, num_warps=4, **overlapped(window),
    )  # fmt: skip
