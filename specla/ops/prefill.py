"""Prompts: the gated delta rule over many tokens, by whatever is fast there."""

from torch import Tensor, is_grad_enabled

from specla.ops.chunk import chunk_gated_delta_rule

LONG = 1024
"""Tokens from which flash-linear-attention's chunk kernels serve prompts on a GPU. They are tuned when they first run,
which takes most of a minute: a few short prompts are through sooner without."""


def prefill_gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`chunk_gated_delta_rule`, its arguments and its results; long prompts on a GPU take flash-linear-attention's.

    Its kernels take 16-bit inputs and round to 16 bits inside, where torch's form is float32: the state after a long
    prompt differs in the third digit.
    """
    short = q.shape[1] < LONG or q.element_size() > 2
    if not q.is_cuda or is_grad_enabled() or short:
        return chunk_gated_delta_rule(q, k, v, g, beta, state)
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule as chunk_fla

    groups = v.shape[2] // k.shape[2]
    q, k = (x if groups == 1 else x.repeat_interleave(groups, dim=2) for x in (q, k))
    out, after = chunk_fla(
        q, k, v, g=g, beta=beta, scale=1.0, initial_state=state, output_final_state=True, state_v_first=True
    )
    return out.float(), after
