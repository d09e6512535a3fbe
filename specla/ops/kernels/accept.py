"""Acceptance without the host: the walk down the tree, the stop rule, and what the next cycle starts from.

One program a row: `specla.engine.accept` and the loop's cut at the end of a text, in one launch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.errors import SpeclaError
from specla.ops.kernels.checks import expect
from specla.ops.kernels.choose import Best
from specla.ops.kernels.launch import overlapped
from specla.ops.texts import Ends, Log, Texts, Walked


def accept(best: Best, tokens: Tensor, parents: Tensor, depth: int, texts: Texts, ends: Ends, log: Log) -> Walked:
    """Walk every row down to its deepest accepted draft, emit, and end rows.

    Args:
        best: the target's tokens, from `choose`.
        tokens: [B, T] int64, drafted; the root's is not looked at.
        parents: [1 or B, T] int64.
        depth: D, of the deepest node.
        texts: written in place.
        ends: the stop rule.
        log: written in place; its paths have room for D + 1 nodes or more.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    batch, nodes, parts = best.score.shape
    expect("drafted tokens", tokens, (batch, nodes), (torch.int64,), best.score)
    expect("parents", parents, (1 if parents.shape[0] == 1 else batch, nodes), (torch.int64,), best.score)
    if not all(x.is_contiguous() for x in (*texts, *log)):
        raise SpeclaError("texts or a log that are no contiguous tensors: the kernel writes them in place")
    tokens, parents = tokens.contiguous(), parents.contiguous()
    cycles, _, places = log.path.shape
    if depth + 1 > places:
        raise SpeclaError(f"paths of {depth + 1} nodes: the log has room for {places}")
    path = torch.empty(batch, depth + 1, dtype=torch.int64, device=tokens.device)
    walked = Walked(path, torch.empty(batch, dtype=torch.int64, device=tokens.device))
    finished = texts.finished.view(torch.int8)
    _accept_kernel[(batch,)](
        *best, tokens, parents, texts.root, texts.length, texts.emitted, texts.tokens, finished, texts.cycle,
        *log, *walked, ends.eos, ends.max_new_tokens, nodes, parts, cycles, texts.emitted.shape[1],
        0 if parents.shape[0] == 1 else nodes, ends.eos.shape[0], places,
        L=depth + 1, BT=triton.next_power_of_2(nodes), BP=triton.next_power_of_2(parts), num_warps=1,
        **overlapped(tokens),
    )  # fmt: skip
    return walked


@triton.jit(
    do_not_specialize=["max_new_tokens", "T", "parts", "cycles", "capacity", "parents_row", "eos_count", "places"]
)
def _accept_kernel(
    p_score,
    p_token,
    p_drafted,
    p_parents,
    p_root,
    p_text_length,
    p_emitted,
    p_count,
    p_finished,
    p_cycle,
    p_log_accepted,
    p_log_kept,
    p_log_path,
    p_path,
    p_length,
    p_eos,
    max_new_tokens,
    T,
    parts,
    cycles,
    capacity,
    parents_row,
    eos_count,
    places,
    L: tl.constexpr,
    BT: tl.constexpr,
    BP: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_b = tl.program_id(0).to(tl.int64)
    o_t, o_p = tl.arange(0, BT), tl.arange(0, BP)
    inside = o_t < T
    o_best = (i_b * T + o_t)[:, None] * parts + o_p[None, :]
    there = inside[:, None] & (o_p < parts)[None, :]
    b_score = tl.load(p_score + o_best, mask=there, other=-float("inf"))
    b_token = tl.load(p_token + o_best, mask=there, other=0)
    # Parts are in the order of the vocabulary: the first of equal bests is the lowest token.
    top = tl.max(b_score, axis=1)
    b_token = tl.where(b_score == top[:, None], b_token, 2147483647)
    chosen = tl.min(b_token, axis=1)
    chosen = tl.where(chosen == 2147483647, 0, chosen)
    drafted = tl.load(p_drafted + i_b * T + o_t, mask=inside, other=-1).to(tl.int32)
    parents = tl.load(p_parents + i_b * parents_row + o_t, mask=inside, other=-2).to(tl.int32)
    count, root = tl.load(p_count + i_b), tl.load(p_root + i_b)
    stopped = tl.load(p_finished + i_b) != 0
    cycle = tl.load(p_cycle + i_b)
    logs = cycle < cycles
    o_log = cycle * tl.num_programs(0) + i_b
    node, accepted, kept = i_b.to(tl.int32) * 0, i_b.to(tl.int32) * 0, i_b.to(tl.int32) * 0
    alive = count >= 0
    for step in range(L):
        tl.store(p_path + i_b * L + step, node)
        tl.store(p_log_path + o_log * places + step, node.to(tl.int16), mask=logs)
        token = tl.sum(tl.where(o_t == node, chosen, 0), axis=0)
        emits = alive & (not stopped)
        tl.store(p_emitted + i_b * capacity + count + kept, token.to(tl.int64), mask=emits & (count + kept < capacity))
        if emits:
            root = token.to(tl.int64)
            kept += 1
            stopped = count + kept >= max_new_tokens
            for i in range(0, eos_count):
                stopped = stopped | (tl.load(p_eos + i) == token)
        child = tl.min(tl.where((parents == node) & (drafted == token) & inside, o_t, BT), axis=0)
        alive = alive & (child < BT) & (step + 1 < L)
        if alive:
            node = child
            accepted += 1
    length = tl.where(stopped, 0, accepted + 1).to(tl.int64)
    tl.store(p_length + i_b, length)
    tl.store(p_root + i_b, root)
    tl.store(p_text_length + i_b, tl.load(p_text_length + i_b) + length)
    tl.store(p_count + i_b, count + kept)
    tl.store(p_finished + i_b, stopped.to(tl.int8))
    tl.store(p_cycle + i_b, cycle + 1)
    tl.store(p_log_accepted + o_log, accepted.to(tl.int16), mask=logs)
    tl.store(p_log_kept + o_log, kept.to(tl.int16), mask=logs)
