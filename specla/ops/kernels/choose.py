"""The target's token at every node, without the host: the scores of `specla.ops.sampling`, and their argmax.

The vocabulary is cut in parts, a program each, whose best scores `accept` compares. With top-p a program per node first
finds where the nucleus ends, by bisection over the scores: nothing is sorted.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.errors import SpeclaError
from specla.ops.kernels.checks import COMPUTE_DTYPES, WHOLE, expect, expect_filled
from specla.ops.kernels.launch import overlapped
from specla.ops.sampling import Sampling

PART = 4096
"""Tokens of a program."""
LARGEST_NUCLEUS = 1 << 17
"""A vocabulary that one program holds on chip."""


class Best(NamedTuple):
    """The best of every part of the vocabulary, ranks of them beside each other; of equal ones the first."""

    score: Tensor
    """[B, T, parts x ranks] float32."""
    token: Tensor
    """[B, T, parts x ranks] int32."""


class Places(NamedTuple):
    """Where nodes stand in the noise: the token after node t of row b is at lengths[b] + depths[t] + 1."""

    rows: Tensor
    """[B] int64, identities of the rows."""
    lengths: Tensor
    """[B] int64, the root's position."""
    depths: Tensor
    """[1 or B, T] int64."""


class Room(NamedTuple):
    """Where drafted tokens go."""

    tokens: Tensor
    """[B, S] int64, written in place; rows may lie apart."""
    columns: Tensor
    """[T x ranks] int64: for every node's best, then its second best, and so on, one of the S, or -1 for nowhere."""
    ids: Tensor | None = None
    """[V'] int64: the tokens that the scores are of; None where they are the first V'."""


def best_of_parts(
    logits: Tensor, sampling: Sampling, places: Places, ranks: int = 1, totals: Tensor | None = None
) -> Best:
    """The best tokens of every node, so many of every part.

    Args:
        logits: [B, T, vocabulary], contiguous, float32, bfloat16 or float16.
        sampling: greedy, or with the noise that drafters share.
        places: of the nodes.
        ranks: how many of every part, best first.
        totals: [B, T, parts] float32, contiguous, takes the log of the sum of exp(score) of every part.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    expect_filled("logits", logits, 3)
    if ranks < 1:
        raise SpeclaError(f"{ranks} ranks: the kernel takes one or more")
    batch, nodes, vocabulary = logits.shape
    expect("logits", logits, (batch, nodes, vocabulary), COMPUTE_DTYPES, logits)
    expect("identities of rows", places.rows, (batch,), WHOLE, logits)
    expect("lengths", places.lengths, (batch,), WHOLE, logits)
    expect("depths", places.depths, (1 if places.depths.shape[0] == 1 else batch, nodes), WHOLE, logits)
    logits, depths = logits.contiguous(), places.depths.contiguous()
    parts = triton.cdiv(vocabulary, PART)
    if totals is not None:
        expect("room for totals", totals, (batch, nodes, parts), (torch.float32,), logits)
    score = torch.empty(batch, nodes, parts * ranks, dtype=torch.float32, device=logits.device)
    best = Best(score, torch.empty_like(score, dtype=torch.int32))
    nucleus = not sampling.greedy and sampling.top_p < 1.0
    least, last = _nucleus(logits, sampling) if nucleus else (best.token, best.token)
    _best_kernel[(parts, batch * nodes)](
        logits, least, last, places.rows, places.lengths, depths, *best, totals,
        *_key_of(sampling.seed), sampling.temperature, nodes, vocabulary, 0 if depths.shape[0] == 1 else nodes,
        BV=PART, RANKS=ranks, SAMPLED=not sampling.greedy, NUCLEUS=nucleus, num_warps=4, **overlapped(logits),
    )  # fmt: skip
    return best


def place_best(logits: Tensor, sampling: Sampling, places: Places, count: int, room: Room) -> None:
    """Put the best tokens of every node, best first, where they belong; see `best_of_parts`.

    A vocabulary of fewer tokens than `count` gives its last one again.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernels cannot take.
    """
    best = best_of_parts(logits, sampling, places, count)
    batch, nodes, candidates = best.score.shape
    expect_filled("room for drafted tokens", room.tokens, 2)
    expect("room for drafted tokens", room.tokens, (batch, room.tokens.shape[1]), (torch.int64,), logits)
    if room.tokens.stride(1) != 1:
        raise SpeclaError(f"room for drafted tokens with strides {room.tokens.stride()}: a row's lie side by side")
    expect("their columns", room.columns, (nodes * count,), WHOLE, logits)
    if room.ids is not None:
        expect("a draft vocabulary", room.ids, (logits.shape[2],), WHOLE, logits)
    _merge_kernel[nodes, batch](
        *(*best, room.tokens, room.columns, room.ids, candidates, room.tokens.stride(0)),
        COUNT=count,
        BP=triton.next_power_of_2(candidates),
        num_warps=1,
        **overlapped(logits),
    )


def _key_of(seed: int) -> tuple[int, int]:
    """The lowest 64 bits of a seed as two signed words, which is how a kernel takes them whatever they are."""
    words = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    low, high = (word - (1 << 32) if word >= 1 << 31 else word for word in words)
    return low, high


def _nucleus(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """(the lowest key inside the nucleus, the last token that has it inside), [B * T] int32 each."""
    batch, nodes, vocabulary = logits.shape
    if vocabulary > LARGEST_NUCLEUS:
        raise SpeclaError(
            f"sampling.top_p={sampling.top_p} with a vocabulary of {vocabulary}: the kernel takes up to "
            f"{LARGEST_NUCLEUS}; use sampling.top_p=1"
        )
    least = torch.empty(batch * nodes, dtype=torch.int32, device=logits.device)
    last = torch.empty_like(least)
    block = triton.next_power_of_2(vocabulary)
    _nucleus_kernel[(batch * nodes,)](
        logits, least, last, sampling.temperature, sampling.top_p, vocabulary,
        BV=block, num_warps=max(1, min(32, block // 1024)), **overlapped(logits),
    )  # fmt: skip
    return least, last


@triton.jit
def take_best(b_score, b_token, o_p, candidates, p_ids):
    """(the best score of the candidates, its token, the scores without it)."""
    top = tl.max(b_score, axis=0)
    # Candidates of equal scores are in the order of the vocabulary.
    place = tl.min(tl.where((b_score == top) & (o_p < candidates), o_p, candidates - 1), axis=0)
    token = tl.sum(tl.where(o_p == place, b_token, 0), axis=0).to(tl.int64)
    if p_ids is not None:
        token = tl.load(p_ids + token)
    return top, token, tl.where(o_p == place, -float("inf"), b_score)


@triton.jit(do_not_specialize=["candidates"])
def _merge_kernel(
    p_score,
    p_token,
    p_room,
    p_columns,
    p_ids,
    candidates,
    room_row,
    COUNT: tl.constexpr,
    BP: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """The best of all parts at one node, in their order."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_t, i_b, o_p = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, BP)
    o_n = (i_b * tl.num_programs(0) + i_t) * candidates
    inside = o_p < candidates
    b_score = tl.load(p_score + o_n + o_p, mask=inside, other=-float("inf"))
    b_token = tl.load(p_token + o_n + o_p, mask=inside, other=0)
    for rank in tl.static_range(COUNT):
        _, token, b_score = take_best(b_score, b_token, o_p, candidates, p_ids)
        column = tl.load(p_columns + i_t * COUNT + rank)
        tl.store(p_room + i_b * room_row + column, token, mask=column >= 0)


@triton.jit
def ordered(x):
    """Whole numbers in the order of the float32 they come from."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _nucleus_kernel(p_logits, p_least, p_last, temperature, top_p, vocabulary, BV: tl.constexpr, OVERLAP: tl.constexpr):
    """The smallest set of most probable tokens that reaches top_p: equal ones enter in the order of the vocabulary."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_n, o_v = tl.program_id(0).to(tl.int64), tl.arange(0, BV)
    inside = o_v < vocabulary
    b_x = tl.load(p_logits + i_n * vocabulary + o_v, mask=inside, other=-float("inf")).to(tl.float32) / temperature
    top = tl.max(b_x, axis=0)
    b_p = tl.where(inside, tl.exp(b_x - top), 0.0)
    goal = top_p * tl.sum(b_p, axis=0)
    b_key = ordered(b_x)
    # The lowest key with less than the goal above it: tokens of that key are in, as long as there is room.
    low, high = tl.min(b_key, axis=0) - 1, tl.max(b_key, axis=0)
    while low + 1 < high:
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        above = tl.sum(tl.where(b_key > middle, b_p, 0.0), axis=0)
        if above < goal:
            high = middle
        else:
            low = middle
    tied = (b_key == high) & inside
    room = goal - tl.sum(tl.where(b_key > high, b_p, 0.0), axis=0)
    each = tl.max(tl.where(tied, b_p, 0.0), axis=0)
    taken = tl.ceil(room / each)
    first, last = -1, vocabulary - 1
    while first + 1 < last:
        middle = (first + last) // 2
        if tl.sum((tied & (o_v <= middle)).to(tl.float32), axis=0) >= taken:
            last = middle
        else:
            first = middle
    tl.store(p_least + i_n, high)
    tl.store(p_last + i_n, last)


@triton.jit
def _gumbel(o_v, key_low, key_high, position, row, BV: tl.constexpr):
    """The noise of `specla.ops.noise` at BV tokens that begin at a multiple of four."""
    o_block = tl.min(o_v, axis=0) // 4 + tl.arange(0, BV // 4)
    zero = tl.zeros((BV // 4,), tl.uint32)
    c_0, c_1, c_2, c_3 = o_block.to(tl.uint32), zero + position.to(tl.uint32), zero + row.to(tl.uint32), zero
    k_0, k_1 = zero + key_low.to(tl.uint32, bitcast=True), zero + key_high.to(tl.uint32, bitcast=True)
    for _ in tl.static_range(10):
        high_a, low_a = tl.umulhi(c_0, zero + 0xD2511F53), c_0 * 0xD2511F53
        high_b, low_b = tl.umulhi(c_2, zero + 0xCD9E8D57), c_2 * 0xCD9E8D57
        c_0, c_1, c_2, c_3 = high_b ^ c_1 ^ k_0, low_b, high_a ^ c_3 ^ k_1, low_a
        k_0, k_1 = k_0 + 0x9E3779B9, k_1 + 0xBB67AE85
    # Word w of block i belongs to token 4 i + w.
    words = tl.reshape(tl.join(tl.join(c_0, c_2), tl.join(c_1, c_3)), (BV,))
    uniform = ((words >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07
    return -tl.log(-tl.log(uniform))


@triton.jit(do_not_specialize=["key_low", "key_high", "T", "depths_row"])
def _best_kernel(
    p_logits,
    p_least,
    p_last,
    p_rows,
    p_lengths,
    p_depths,
    p_score,
    p_token,
    p_total,
    key_low,
    key_high,
    temperature,
    T,
    vocabulary,
    depths_row,
    BV: tl.constexpr,
    RANKS: tl.constexpr,
    SAMPLED: tl.constexpr,
    NUCLEUS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One part of the vocabulary at one node."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_p, i_n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i_b, i_t = i_n // T, i_n % T
    o_v = i_p * BV + tl.arange(0, BV)
    b_x = tl.load(p_logits + i_n * vocabulary + o_v, mask=o_v < vocabulary, other=-float("inf")).to(tl.float32)
    if SAMPLED:
        b_x = b_x / temperature
        position = tl.load(p_lengths + i_b) + tl.load(p_depths + i_b * depths_row + i_t) + 1
        b_score = b_x + _gumbel(o_v, key_low, key_high, position, tl.load(p_rows + i_b), BV)
        if NUCLEUS:
            b_key, least = ordered(b_x), tl.load(p_least + i_n)
            outside = (b_key < least) | ((b_key == least) & (o_v > tl.load(p_last + i_n)))
            b_score = tl.where(outside, -float("inf"), b_score)
        b_x = b_score
    if p_total is not None:
        top = tl.max(b_x, axis=0)
        top = tl.where(top == -float("inf"), 0.0, top)
        tl.store(p_total + i_n * tl.num_programs(0) + i_p, top + tl.log(tl.sum(tl.exp(b_x - top), axis=0)))
    o_best = (i_n * tl.num_programs(0) + i_p) * RANKS
    for rank in tl.static_range(RANKS):
        best = tl.max(b_x, axis=0)
        # The first of equal ones; where nothing compares, as with NaN, still a token of the vocabulary.
        token = tl.min(tl.where((b_x == best) & (o_v < vocabulary), o_v, vocabulary - 1), axis=0)
        tl.store(p_score + o_best + rank, best)
        tl.store(p_token + o_best + rank, token)
        b_x = tl.where(o_v == token, -float("inf"), b_x)
