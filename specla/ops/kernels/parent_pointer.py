"""One kernel that walks the nodes of any tree, reloads every parent's state and stores every node's (SGLang's way)."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.checks import check_verify
from specla.ops.kernels.launch import overlapped, row_stride, side_by_side, strided
from specla.ops.kernels.walk import Tiles
from specla.ops.kernels.walk_step import delta_step, load_node
from specla.ops.types import NodeInputs, TreeTensors, VerifyOutput

TILES = Tiles(2, 1)
"""The fastest on an H200 at every batch (`specla.bench.tiles`)."""


@triton.jit(do_not_specialize=["T"])
def _parent_pointer_kernel(
    p_state,
    p_states,
    p_q,
    p_k,
    p_v,
    p_g,
    p_beta,
    p_parents,
    p_out,
    T,
    q_row,
    q_node,
    k_row,
    k_node,
    v_row,
    v_node,
    parents_row,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Some rows of one head's states, node by node."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = (i_bh // HV).to(tl.int64), i_bh % HV
    o_k, o_v = tl.arange(0, BK), i_v * BV + tl.arange(0, BV)
    inside = (o_v[:, None] < V) & (o_k[None, :] < K)
    o_s = o_v[:, None] * K + o_k[None, :]
    p_q += i_b * q_row + (i_h // (HV // H)) * K
    p_k += i_b * k_row + (i_h // (HV // H)) * K
    p_v += i_b * v_row + i_h * V
    o_gate = i_b * T * HV + i_h
    p_g, p_beta = p_g + o_gate, p_beta + o_gate
    p_state += i_bh.to(tl.int64) * (V * K)
    p_states += (i_b * T * HV + i_h) * (V * K)
    p_parents += i_b * parents_row
    for node in range(0, T):
        b_q, b_k, b_v, g, beta = load_node(p_q, p_k, p_v, p_g, p_beta, node, q_node, k_node, v_node, o_k, o_v, HV, K, V)
        parent = tl.load(p_parents + node)
        p_from = p_state
        if parent >= 0:
            p_from = p_states + parent * (HV * V * K)
        b_s = tl.load(p_from + o_s, mask=inside, other=0.0)
        b_s, b_o, _ = delta_step(b_s, b_q, b_k, b_v, g, beta)
        tl.store(p_out + (o_gate + node * HV) * V + o_v, b_o, mask=o_v < V)
        tl.store(p_states + node * (HV * V * K) + o_s, b_s, mask=inside)
        # A child's program may hold other elements of the state in other threads.
        tl.debug_barrier()


def verify_by_parents(state: Tensor, inputs: NodeInputs, tree: TreeTensors, tiles: Tiles | None = None) -> VerifyOutput:
    """Outputs and the state after every node, [B, T, HV, V, K] float32; the committed state is read alone.

    Args:
        state: [B, HV, V, K] float32, contiguous.
        inputs: of T nodes; q, k and v in one of float32, float16, bfloat16.
        tree: shared, or one a row.
        tiles: None for what was measured to be fast.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    check_verify(state, inputs, tree)
    batch, value_heads, value_size, key_size = state.shape
    nodes = tree.nodes
    states = state.new_empty(batch, nodes, value_heads, value_size, key_size)
    out = torch.empty(batch, nodes, value_heads, value_size, dtype=torch.float32, device=state.device)
    q, k, v = (strided(x) for x in (inputs.q, inputs.k, inputs.v))
    parents = side_by_side(tree.parents)
    g, beta = inputs.g.contiguous(), inputs.beta.contiguous()
    values, warps = tiles or TILES
    _parent_pointer_kernel[(triton.cdiv(value_size, values), batch * value_heads)](
        state, states, q.data, k.data, v.data, g, beta, parents, out, nodes,
        q.row, q.node, k.row, k.node, v.row, v.node, row_stride(parents),
        H=inputs.k.shape[2], HV=value_heads, K=key_size, V=value_size,
        BK=triton.next_power_of_2(key_size), BV=values, num_warps=warps, **overlapped(state),
    )  # fmt: skip
    return VerifyOutput(out, None, states)
