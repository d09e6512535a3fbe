"""The accepted node's dense state copied over the committed one, the convolution's window included."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.checks import check_path, check_state, expect
from specla.ops.kernels.launch import Taken, overlapped
from specla.ops.kernels.window import CHANNELS, move_window, window_of
from specla.ops.types import Moving

PICK_BLOCK = 4096
"""Numbers that a program copies."""


@triton.jit(do_not_specialize=["L", "rows"])
def _pick_kernel(
    p_state,
    p_states,
    p_path,
    p_length,
    p_window,
    p_raw,
    L,
    rows,
    states_row,
    raw_row,
    raw_node,
    SIZE: tl.constexpr,
    C: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    BC: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """BLOCK numbers of the accepted node's state over the committed one; SIZE is a state's."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_s, i_b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    p_path += i_b % rows * L
    length = tl.load(p_length + i_b % rows)
    if length > 0:
        if i_s >= tl.cdiv(SIZE, BLOCK):
            block = i_s - tl.cdiv(SIZE, BLOCK)
            move_window(p_window + i_b * (W - 1) * C, p_raw + i_b * raw_row, p_path, length, block, raw_node, C, W, BC)
        else:
            node = tl.load(p_path + length - 1)
            o_s = i_s * BLOCK + tl.arange(0, BLOCK)
            chosen = tl.load(p_states + i_b * states_row + node * SIZE + o_s, mask=o_s < SIZE)
            tl.store(p_state + i_b * SIZE + o_s, chosen, mask=o_s < SIZE)


def pick_state(state: Tensor, states: Tensor, taken: Taken, moving: Moving | None = None) -> None:
    """Copy the accepted node's state over `state` [B, HV, V, K] float32, in place.

    Args:
        state: contiguous.
        states: [B, T, HV, V, K] float32, a node's state contiguous.
        taken: the path.
        moving: the convolution's window, moved along in the same launch.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    check_state(state)
    check_path(state.shape[0], taken.path, taken.length)
    expect("states", states, (state.shape[0], states.shape[1], *state.shape[1:]), (torch.float32,), state)
    window, raw = window_of(moving, state)
    path, length = taken.path.contiguous(), taken.length.contiguous()
    size = state.shape[1:].numel()
    if not states[:1, :1].is_contiguous() or states.stride(1) != size:
        states = states.contiguous()
    _pick_kernel[(triton.cdiv(size, PICK_BLOCK) + triton.cdiv(window.shape[2], CHANNELS), state.shape[0])](
        state, states, path, length, window, raw, path.shape[1], path.shape[0],
        states.stride(0), raw.stride(0), raw.stride(1),
        SIZE=size, C=window.shape[2], W=window.shape[1] + 1, BLOCK=PICK_BLOCK, BC=CHANNELS,
        num_warps=4, **overlapped(state),
    )  # fmt: skip
