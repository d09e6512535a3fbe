"""Trees that drafts shape, grown without the host: what `specla.drafters.confidence` does, for one row a program.

A level takes three launches: the likeliest tokens after every node that ran (`likely`), which of them and of all drafts
before them stay (here), and what runs next as a tree on what is committed (`lay`). Nothing is sorted: the last draft
that stays is found by bisection, as the end of a nucleus is.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.errors import SpeclaError
from specla.ops.growth import NOBODY, ORPHAN, Kept, Level, Likely, Running
from specla.ops.kernels.checks import expect, expect_filled
from specla.ops.kernels.choose import ordered
from specla.ops.kernels.launch import overlapped

EMPTY: tl.constexpr = tl.constexpr(NOBODY)
LONE: tl.constexpr = tl.constexpr(ORPHAN)


def grow(likely: Likely, above: Tensor | None, kept: Kept, level: Level, margin: float | None) -> tuple[Kept, Running]:
    """Add a level of drafts, and keep the best of all.

    Args:
        likely: after each of the F' nodes that ran last.
        above: [B, F'] float32, q of those nodes; None for the root alone.
        kept: so far; it is left alone.
        level: what runs next.
        margin: how far below the best draft's q another's may be; None for any.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.

    Returns:
        (the drafts that stay, what runs next).
    """
    expect_filled("log probabilities", likely.logs, 3)
    batch, nodes = kept.q.shape
    _, ran_last, count = likely.logs.shape
    expect("log probabilities", likely.logs, (batch, ran_last, count), (torch.float32,), kept.q)
    expect("drafted tokens", likely.tokens, likely.logs.shape, (torch.int64,), kept.q)
    if above is not None:
        expect("q of the nodes above", above, (batch, ran_last), (torch.float32,), kept.q)
    for name, x in kept._asdict().items():
        expect(
            f"{name} of the drafts that stay", x, (batch, nodes), (torch.float32 if name == "q" else torch.int64,), x
        )
    if not all(x.is_contiguous() for x in (*likely, *kept, *([] if above is None else [above]))):
        raise SpeclaError("drafts that do not lie side by side: the kernel takes contiguous tensors")
    stay = Kept(*map(torch.empty_like, kept))
    whole = kept.ids.new_empty
    places = level.ran + level.width
    running = Running(
        q=kept.q.new_empty(batch, level.width),
        tokens=whole(batch, level.width),
        sources=whole(batch, level.width),
        moved=whole(batch, level.ran),
        ids=whole(batch, places),
        parents=whole(batch, places),
    )
    _grow_kernel[(batch,)](
        *(*likely, above, *kept, *stay, *running),
        *(torch.inf if margin is None else margin, level.started, level.next),
        N=nodes,
        F=ran_last,
        COUNT=count,
        RAN=level.ran,
        WIDTH=level.width,
        BC=triton.next_power_of_2(nodes + ran_last * count),
        BT=triton.next_power_of_2(max(1, places)),
        num_warps=1,
        **overlapped(kept.q),
    )
    return stay, running


@triton.jit
def _best(b_q, near, N: tl.constexpr):
    """Which of the near ones are among the N best, the first of equal ones."""
    b_key = tl.where(near, ordered(b_q), 2147483647)
    low = tl.min(b_key, axis=0) - 1
    b_key = tl.where(near, b_key, -2147483647)
    high = tl.max(b_key, axis=0)
    # The lowest key with fewer than N above it.
    while low + 1 < high:
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        if tl.sum((b_key > middle).to(tl.int32), axis=0) < N:
            high = middle
        else:
            low = middle
    above, tied = near & (b_key > high), near & (b_key == high)
    room = N - tl.sum(above.to(tl.int32), axis=0)
    return above | (tied & (tl.cumsum(tied.to(tl.int32), axis=0) <= room))


@triton.jit
def _grow_kernel(
    p_logs,
    p_tokens,
    p_above,
    p_q,
    p_token,
    p_id,
    p_parent,
    p_slot,
    p_kept_q,
    p_kept_token,
    p_kept_id,
    p_kept_parent,
    p_kept_slot,
    p_run_q,
    p_run_token,
    p_source,
    p_moved,
    p_run_id,
    p_run_parent,
    margin,
    started,
    next_id,
    N: tl.constexpr,
    F: tl.constexpr,
    COUNT: tl.constexpr,
    RAN: tl.constexpr,
    WIDTH: tl.constexpr,
    BC: tl.constexpr,
    BT: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row: its N places, then COUNT candidates after each of the F nodes."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_b, o_c, o_t = tl.program_id(0).to(tl.int64), tl.arange(0, BC), tl.arange(0, BT)
    o_old, o_new, root = i_b * N + o_c, o_c - N, o_c == 0
    old, new = o_c < N, (o_c >= N) & (o_c < N + F * COUNT)
    source, o_new = o_new // COUNT, i_b * (F * COUNT) + o_new
    b_q = tl.load(p_q + o_old, mask=old, other=-float("inf"))
    b_more = tl.load(p_logs + o_new, mask=new, other=-float("inf"))
    if p_above is not None:
        b_more += tl.load(p_above + i_b * F + source, mask=new, other=-float("inf"))
    # Plus zero: of two zeros the negative one would come last, and a child be ahead of its parent.
    b_q = tl.where(new, b_more + 0.0, b_q)
    # The root stays in any case, and is no draft.
    b_draft = tl.where(root, -float("inf"), b_q)
    near = (b_draft > -float("inf")) & (b_draft >= tl.max(b_draft, axis=0) - margin)
    stays = _best(b_draft, near, N - 1)
    old_draft, new_draft = stays & old, stays & new
    stays = stays | root
    place = i_b * N + tl.cumsum(stays.to(tl.int32), axis=0) - 1
    before, beside = tl.cumsum(old_draft.to(tl.int32), axis=0) - 1, tl.cumsum(new_draft.to(tl.int32), axis=0) - 1
    b_token = tl.load(p_token + o_old, mask=old, other=0)
    b_token = tl.where(new, tl.load(p_tokens + o_new, mask=new, other=0), b_token)
    b_id, b_parent = tl.load(p_id + o_old, mask=old, other=0), tl.load(p_parent + o_old, mask=old, other=0)
    b_id = tl.where(new, (next_id + beside) if WIDTH > 0 else EMPTY, b_id)
    b_parent = tl.where(new, started + source, b_parent)
    tl.store(p_kept_q + place, b_q, mask=stays)
    tl.store(p_kept_token + place, b_token, mask=stays)
    tl.store(p_kept_id + place, b_id, mask=stays)
    tl.store(p_kept_parent + place, b_parent, mask=stays)
    tl.store(p_kept_slot + place, tl.where(new, RAN + beside, before), mask=stays)
    none = old & (o_c >= tl.sum(stays.to(tl.int32), axis=0))
    tl.store(p_kept_q + o_old, -float("inf"), mask=none)
    tl.store(p_kept_token + o_old, 0, mask=none)
    tl.store(p_kept_id + o_old, EMPTY, mask=none)
    tl.store(p_kept_parent + o_old, LONE, mask=none)
    tl.store(p_kept_slot + o_old, 0, mask=none)
    if WIDTH > 0:
        o_run, o_slot = i_b * WIDTH + o_t, i_b * (RAN + WIDTH) + o_t
        runs = o_t >= RAN
        filled = tl.where(
            runs, o_t - RAN < tl.sum(new_draft.to(tl.int32), axis=0), o_t < tl.sum(old_draft.to(tl.int32), axis=0)
        )
        idle = (o_t < RAN + WIDTH) & (filled == 0)
        tl.store(p_run_id + o_slot, EMPTY, mask=idle)
        tl.store(p_run_parent + o_slot, LONE, mask=idle)
        tl.store(p_moved + i_b * RAN + o_t, 0, mask=idle & (o_t < RAN))
        tl.store(p_run_q + o_run - RAN, -float("inf"), mask=idle & runs)
        tl.store(p_run_token + o_run - RAN, 0, mask=idle & runs)
        tl.store(p_source + o_run - RAN, 0, mask=idle & runs)
        # Where nothing runs any more, one draft more than RAN may be there.
        goes_on = old_draft & (before < RAN)
        slot = tl.load(p_slot + o_old, mask=goes_on, other=0)
        tl.store(p_moved + i_b * RAN + before, slot, mask=goes_on)
        o_slot = i_b * (RAN + WIDTH) + tl.where(new, RAN + beside, before)
        tl.store(p_run_id + o_slot, b_id, mask=goes_on | new_draft)
        tl.store(p_run_parent + o_slot, b_parent, mask=goes_on | new_draft)
        o_run = i_b * WIDTH + beside
        tl.store(p_run_q + o_run, b_q, mask=new_draft)
        tl.store(p_run_token + o_run, b_token, mask=new_draft)
        tl.store(p_source + o_run, source.to(tl.int64), mask=new_draft)
