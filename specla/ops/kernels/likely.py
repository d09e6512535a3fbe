"""The likeliest tokens after a node, with their probabilities: of noisy scores, where the target samples."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specla.errors import SpeclaError
from specla.ops.growth import Likely
from specla.ops.kernels.checks import expect, expect_filled
from specla.ops.kernels.choose import PART, Places, best_of_parts, take_best
from specla.ops.kernels.launch import overlapped
from specla.ops.sampling import Sampling


def likeliest(logits: Tensor, sampling: Sampling, places: Places, count: int, ids: Tensor | None = None) -> Likely:
    """The likeliest tokens after every node, by the target's own choice: of noisy scores where it samples.

    Args:
        logits: [B, F, vocabulary].
        sampling: how the target chooses.
        places: of the nodes.
        count: k, no more than the vocabulary.
        ids: [vocabulary] int64, the tokens that the logits are of; None for the first ones.

    Raises:
        SpeclaError: naming the limit, for tensors that the kernels cannot take.
    """
    expect_filled("logits", logits, 3)
    if not 0 < count <= logits.shape[2]:
        raise SpeclaError(f"the {count} likeliest of {logits.shape[2]} tokens: the kernel takes one to all of them")
    if ids is not None:
        expect("a draft vocabulary", ids, (logits.shape[2],), (torch.int64,), logits)
    batch, nodes, vocabulary = logits.shape
    totals = torch.empty(batch, nodes, triton.cdiv(vocabulary, PART), dtype=torch.float32, device=logits.device)
    best = best_of_parts(logits, sampling, places, count, totals)
    logs = torch.empty(batch, nodes, count, dtype=torch.float32, device=logits.device)
    likely = Likely(logs, torch.empty_like(logs, dtype=torch.int64))
    candidates, parts = best.score.shape[2], totals.shape[2]
    _likely_kernel[nodes, batch](
        *(*best, totals, *likely, ids, candidates, parts),
        COUNT=count,
        BP=triton.next_power_of_2(candidates),
        num_warps=1,
        **overlapped(logits),
    )
    return likely


@triton.jit(do_not_specialize=["candidates", "parts"])
def _likely_kernel(
    p_score,
    p_token,
    p_total,
    p_logs,
    p_tokens,
    p_ids,
    candidates,
    parts,
    COUNT: tl.constexpr,
    BP: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """The likeliest of all parts after one node, in their order."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    i_n, o_p = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0), tl.arange(0, BP)
    b_total = tl.load(p_total + i_n * parts + o_p, mask=o_p < parts, other=-float("inf"))
    most = tl.max(b_total, axis=0)
    total = most + tl.log(tl.sum(tl.exp(b_total - most), axis=0))
    inside = o_p < candidates
    b_score = tl.load(p_score + i_n * candidates + o_p, mask=inside, other=-float("inf"))
    b_token = tl.load(p_token + i_n * candidates + o_p, mask=inside, other=0)
    for rank in tl.static_range(COUNT):
        top, token, b_score = take_best(b_score, b_token, o_p, candidates, p_ids)
        tl.store(p_logs + i_n * COUNT + rank, tl.minimum(top - total, 0.0))
        tl.store(p_tokens + i_n * COUNT + rank, token)
