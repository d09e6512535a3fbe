"""An oracle's drafts made on the device: `specla.drafters.oracle` for one row a program."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.ops.kernels.checks import expect
from specla.ops.kernels.launch import overlapped
from specla.ops.texts import Drafts, Texts, Traces


def draft(tokens: Tensor, parents: Tensor, texts: Texts, traces: Traces, drafts: Drafts, vocabulary: int) -> None:
    """Fill tokens [B, T] int64: the right token where the draws say so, wrong ones elsewhere.

    Args:
        tokens: written.
        parents: [1, T] int64, in topological order.
        texts: of the rows.
        traces: of the rows.
        drafts: of this tree: kept, or drafted again.
        vocabulary: number of tokens.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    batch, nodes = tokens.shape
    expect("parents", parents, (1, nodes), (torch.int64,), tokens)
    expect("roots", texts.root, (batch,), (torch.int64,), tokens)
    expect("kept drafts", drafts.tokens, (drafts.tokens.shape[0], batch, nodes), (torch.int64,), tokens)
    expect("luck", traces.luck, traces.text.shape, (torch.float64,), tokens)
    depths, ranks = traces.thresholds.shape
    _oracle_kernel[(batch,)](
        tokens, parents, texts.root, texts.tokens, texts.cycle, *traces, drafts.tokens, drafts.again.view(torch.int8),
        vocabulary, nodes, traces.text.shape[1], depths, ranks, drafts.tokens.shape[0],
        BT=triton.next_power_of_2(nodes), BR=triton.next_power_of_2(ranks), num_warps=1, **overlapped(tokens),
    )  # fmt: skip


@triton.jit(do_not_specialize=["vocabulary", "T", "capacity", "depths", "ranks", "cycles"])
def _oracle_kernel(
    p_tokens,
    p_parents,
    p_root,
    p_count,
    p_cycle,
    p_text,
    p_length,
    p_luck,
    p_thresholds,
    p_kept,
    p_again,
    vocabulary,
    T,
    capacity,
    depths,
    ranks,
    cycles,
    BT: tl.constexpr,
    BR: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_b, o_t, o_r = tl.program_id(0).to(tl.int64), tl.arange(0, BT), tl.arange(0, BR)
    inside = o_t < T
    parents = tl.load(p_parents + o_t, mask=inside, other=-2).to(tl.int32)
    root, at = tl.load(p_root + i_b).to(tl.int32), tl.load(p_count + i_b) - 1
    length = tl.load(p_length + i_b)
    tokens = (root + o_t) % vocabulary
    node, depth = 0, 0
    goes_on = at + 1 < length
    while goes_on:
        place = i_b * capacity + at + depth + 1
        right, drawn = tl.load(p_text + place).to(tl.int32), tl.load(p_luck + place)
        p_line = p_thresholds + tl.minimum(depth, depths - 1) * ranks
        threshold = tl.load(p_line + o_r, mask=o_r < ranks, other=-1.0)
        # The first rank whose share covers the draw; BR where none does.
        rank = tl.min(tl.where(drawn < threshold, o_r, BR), axis=0)
        sibling = parents == node
        order = tl.cumsum(sibling.to(tl.int32), axis=0) - 1
        tokens = tl.where(sibling, (right + 1 + order) % vocabulary, tokens)
        hit = sibling & (order == rank) & (rank < ranks)
        tokens = tl.where(hit, right, tokens)
        child = tl.min(tl.where(hit, o_t, BT), axis=0)
        depth += 1
        node = child
        goes_on = (child < BT) & (at + depth + 1 < length)
    b_tokens = tokens.to(tl.int64)
    cycle = tl.load(p_cycle + i_b)
    keeps = inside & (cycle < cycles)
    p_kept += (cycle * tl.num_programs(0) + i_b) * T + o_t
    if tl.load(p_again) != 0:
        b_tokens = tl.load(p_kept, mask=keeps, other=0)
    else:
        tl.store(p_kept, b_tokens, mask=keeps)
    tl.store(p_tokens + i_b * T + o_t, b_tokens, mask=inside)
