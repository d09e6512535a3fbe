"""Accepted nodes run again from their q, k, v, g and b, in place: all in one pass over the state, or one a launch."""

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.checks import check_inputs, check_path, check_state
from specla.ops.kernels.launch import Taken, overlapped, strided
from specla.ops.kernels.walk_step import delta_step, load_node
from specla.ops.kernels.window import CHANNELS, move_window, window_of, window_programs
from specla.ops.types import Moving, NodeInputs


@triton.jit(do_not_specialize=["T", "L", "rows", "first", "count"])
def _replay_kernel(
    p_state,
    p_q,
    p_k,
    p_v,
    p_g,
    p_beta,
    p_path,
    p_along,
    p_length,
    p_window,
    p_raw,
    T,
    L,
    rows,
    first,
    count,
    q_row,
    q_node,
    k_row,
    k_node,
    v_row,
    v_node,
    raw_row,
    raw_node,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    W: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    BC: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Up to `count` nodes of the path, from place `first` on, through BV rows of one head's state, in place."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = (i_bh // HV).to(tl.int64), i_bh % HV
    p_path += i_b % rows * L
    p_along += i_b % rows * L
    length = tl.load(p_length + i_b % rows)
    end = tl.minimum(first + count, length)
    if first < end:
        if i_v >= V // BV:
            p_window += i_b * (W - 1) * C
            move_window(
                p_window, p_raw + i_b * raw_row, p_along, length, (i_v - V // BV) * HV + i_h, raw_node, C, W, BC
            )
        else:
            o_k, o_v = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
            p_q += i_b * q_row + (i_h // (HV // H)) * K
            p_k += i_b * k_row + (i_h // (HV // H)) * K
            p_v += i_b * v_row + i_h * V
            p_g, p_beta = p_g + i_b * T * HV + i_h, p_beta + i_b * T * HV + i_h
            p_s = p_state + (i_bh.to(tl.int64) * V + o_v[:, None]) * K + o_k[None, :]
            b_s = tl.load(p_s, mask=(o_k < K)[None, :], other=0.0)
            for place in range(first, end):
                node = tl.load(p_path + place)
                b_q, b_k, b_v, g, beta = load_node(
                    p_q, p_k, p_v, p_g, p_beta, node, q_node, k_node, v_node, o_k, o_v, HV, K, V
                )
                # Nobody reads the output, so the compiler leaves it out.
                b_s, _, _ = delta_step(b_s, b_q, b_k, b_v, g, beta)
            tl.store(p_s, b_s, mask=(o_k < K)[None, :])


def replay(
    state: Tensor,
    inputs: NodeInputs,
    taken: Taken,
    moving: Moving | None = None,
    span: tuple[int, int] | None = None,
) -> None:
    """Run the accepted nodes again through `state` [B, HV, V, K] float32, in place.

    Args:
        state: contiguous.
        inputs: of the T nodes.
        taken: the path.
        moving: the convolution's window, moved along in the same launch.
        span: (first, count) places of the path; None for all of them in one pass over the state.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    check_state(state)
    check_inputs(state, inputs)
    check_path(state.shape[0], taken.path, taken.length)
    batch, value_heads, value_size, key_size = state.shape
    window, raw = window_of(moving, state)
    path, length = taken.path.contiguous(), taken.length.contiguous()
    along = path if taken.along is None else taken.along.contiguous()
    first, count = span or (0, path.shape[1])
    q, k, v = (strided(x) for x in inputs[:3])
    g, beta = inputs.g.contiguous(), inputs.beta.contiguous()
    values = 8 if batch * value_heads >= 64 else 4
    _replay_kernel[(value_size // values + window_programs(window, value_heads), batch * value_heads)](
        state, q.data, k.data, v.data, g, beta, path, along, length, window, raw,
        g.shape[1], path.shape[1], path.shape[0], first, count,
        q.row, q.node, k.row, k.node, v.row, v.node, raw.stride(0), raw.stride(1),
        H=k.data.shape[2], HV=value_heads, K=key_size, V=value_size, C=window.shape[2], W=window.shape[1] + 1,
        BK=triton.next_power_of_2(key_size), BV=values, BC=CHANNELS, num_warps=1, **overlapped(state),
    )  # fmt: skip
