"""What an aligned drafter does around its block, a launch each: what goes in for its nodes, and what it predicts last.

In torch forms these are a look-up, gathers, two norms and a concatenation, each a launch that waits for the one before
it to end: as long, together, as the block's products.
"""

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.errors import SpeclaError
from specla.ops.kernels.checks import COMPUTE_DTYPES, WHOLE, expect, expect_filled
from specla.ops.kernels.launch import overlapped, row_stride, side_by_side
from specla.ops.kernels.skinny import Norm
from specla.ops.types import Sources


def entered(given: Sources, embeddings: Tensor, hidden_norm: Norm, embedding_norm: Norm) -> Tensor:
    """The normed hidden state of every node beside the normed embedding of its token, [B, m, 2 D].

    Args:
        given: where they come from.
        embeddings: [vocabulary, D], in the dtype of the hidden states.
        hidden_norm, embedding_norm: computed in float32 and rounded once, as `specla.ops.norm.rms_norm` does.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    for name, x, dims in (
        *(("hidden states", given.hidden, 3), ("tokens", given.tokens, 2), ("embeddings", embeddings, 2)),
        *(("places of hidden states", given.hidden_at, 2), ("places of tokens", given.tokens_at, 2)),
    ):
        expect_filled(name, x, dims)
    hidden, tokens = side_by_side(given.hidden), side_by_side(given.tokens)
    (batch, _, size), nodes = hidden.shape, given.hidden_at.shape[1]
    expect("hidden states", hidden, (batch, hidden.shape[1], size), COMPUTE_DTYPES, hidden)
    expect("tokens", tokens, (batch, tokens.shape[1]), WHOLE, hidden)
    places = side_by_side(given.hidden_at), side_by_side(given.tokens_at)
    for name, place in zip(("places of hidden states", "places of tokens"), places, strict=True):
        expect(name, place, (1 if place.shape[0] == 1 else batch, nodes), WHOLE, hidden)
    expect("embeddings", embeddings, (embeddings.shape[0], size), (hidden.dtype,), hidden)
    for norm in (hidden_norm, embedding_norm):
        expect("a norm's weight", norm.weight, (size,), COMPUTE_DTYPES, hidden)
    for count in given.newest or ():
        expect("a count", count, (batch,), WHOLE, hidden)
    both = hidden.new_empty(batch, nodes, 2 * size)
    block = triton.next_power_of_2(size)
    _enter_kernel[2, nodes, batch](
        *(hidden, places[0], tokens, places[1], *(given.newest or (None, None)), embeddings.contiguous()),
        *(hidden_norm.weight, embedding_norm.weight, both, hidden_norm.epsilon, embedding_norm.epsilon),
        *(tokens.shape[1], *hidden.stride()[:2], row_stride(places[0]), tokens.stride(0), row_stride(places[1])),
        D=size,
        BD=block,
        num_warps=max(1, min(8, block // 512)),
        **overlapped(hidden),
    )
    return both


def keep_predicted(stream: Tensor, length: Tensor, norm: Norm, predicted: Tensor) -> None:
    """Put the normed stream of every row's last node in `predicted`; a row of length 0 keeps what it has.

    Args:
        stream: [B, L, D]; rows and nodes may lie apart.
        length: [B] int64, nodes that count.
        norm: of the stream.
        predicted: [B, D], contiguous, written in place.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernel cannot take.
    """
    expect_filled("a stream", stream, 3)
    stream = side_by_side(stream)
    batch, _, size = stream.shape
    expect("a stream", stream, stream.shape, COMPUTE_DTYPES, stream)
    expect("lengths", length, (batch,), WHOLE, stream)
    expect("a norm's weight", norm.weight, (size,), COMPUTE_DTYPES, stream)
    expect("predictions", predicted, (batch, size), (stream.dtype,), stream)
    if not predicted.is_contiguous():
        raise SpeclaError(f"predictions with strides {predicted.stride()}: the kernel takes them contiguous")
    block = triton.next_power_of_2(size)
    _predict_kernel[(batch,)](
        *(stream, length, norm.weight, predicted, norm.epsilon, *stream.stride()[:2]),
        D=size,
        BD=block,
        num_warps=max(1, min(8, block // 512)),
        **overlapped(stream),
    )


@triton.jit
def _normed(p_x, b_weight, epsilon, o_d, D: tl.constexpr):
    """A row after its norm, float32."""
    b_x = tl.load(p_x + o_d, mask=o_d < D, other=0).to(tl.float32)
    return b_x * tl.rsqrt(tl.sum(b_x * b_x, axis=0) / D + epsilon) * b_weight


@triton.jit
def _enter_kernel(
    p_hidden,
    p_hidden_at,
    p_tokens,
    p_tokens_at,
    p_total,
    p_length,
    p_embeddings,
    p_hidden_weight,
    p_embedding_weight,
    p_both,
    hidden_epsilon,
    embedding_epsilon,
    capacity,
    hidden_row,
    hidden_node,
    hidden_at_row,
    tokens_row,
    tokens_at_row,
    D: tl.constexpr,
    BD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Half of one node's input: its hidden state, or its token's embedding."""
    i_half, i_t, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    o_d = tl.arange(0, BD)
    if OVERLAP:
        gdc_launch_dependents()
    p_both += (i_b * tl.num_programs(1) + i_t) * (2 * D) + i_half * D
    if i_half == 0:
        b_weight = tl.load(p_hidden_weight + o_d, mask=o_d < D, other=0).to(tl.float32)
        if OVERLAP:
            gdc_wait()
        p_hidden += i_b * hidden_row + tl.load(p_hidden_at + i_b * hidden_at_row + i_t) * hidden_node
        tl.store(p_both + o_d, _normed(p_hidden, b_weight, hidden_epsilon, o_d, D), mask=o_d < D)
    else:
        b_weight = tl.load(p_embedding_weight + o_d, mask=o_d < D, other=0).to(tl.float32)
        if OVERLAP:
            gdc_wait()
        at = tl.load(p_tokens_at + i_b * tokens_at_row + i_t)
        if p_total is not None:
            at += tl.load(p_total + i_b) - tl.load(p_length + i_b)
        token = tl.load(p_tokens + i_b * tokens_row + tl.minimum(at, capacity - 1))
        tl.store(p_both + o_d, _normed(p_embeddings + token * D, b_weight, embedding_epsilon, o_d, D), mask=o_d < D)


@triton.jit
def _predict_kernel(
    p_stream,
    p_length,
    p_weight,
    p_predicted,
    epsilon,
    stream_row,
    stream_node,
    D: tl.constexpr,
    BD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row's prediction."""
    i_b, o_d = tl.program_id(0).to(tl.int64), tl.arange(0, BD)
    if OVERLAP:
        gdc_launch_dependents()
    b_weight = tl.load(p_weight + o_d, mask=o_d < D, other=0).to(tl.float32)
    if OVERLAP:
        gdc_wait()
    length = tl.load(p_length + i_b)
    p_stream += i_b * stream_row + tl.maximum(length - 1, 0) * stream_node
    b_predicted = _normed(p_stream, b_weight, epsilon, o_d, D)
    tl.store(p_predicted + i_b * D + o_d, b_predicted, mask=(o_d < D) & (length > 0))
