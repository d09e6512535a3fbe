"""Text that the target writes itself: what a drafter meets when it is used."""

from collections.abc import Callable

import torch
from torch import Tensor

from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.state import DecodeState
from specla.ops.sampling import Sampling, choose


@torch.inference_mode()
def continued(
    model: GatedDeltaNetLM,
    prompts: Tensor,
    new_tokens: int,
    sampling: Sampling,
    tick: Callable[[], None] = lambda: None,
) -> Tensor:
    """Prompts and what the target writes after them, through any end of text.

    Plain torch throughout: a step over thousands of rows is bound by their states, not by its launches.

    Args:
        prompts: [rows, P] int64, on the model's device; no padding.
        new_tokens: to be written.
        sampling: how they are chosen; the rows are 0, 1, 2, ... in the noise.
        tick: called after every token.

    Returns:
        [rows, P + new_tokens] int64.
    """
    rows = torch.arange(prompts.shape[0], device=prompts.device)
    state = DecodeState.empty(model.config, prompts.shape[0], model.dtype, model.device)
    hidden, written = model.extend(prompts, state), [prompts]
    for _ in range(new_tokens):
        chosen = choose(model.logits(hidden[:, -1]), sampling, rows, state.lengths)[:, None]
        written.append(chosen)
        hidden = model.extend(chosen, state)
        tick()
    return torch.cat(written, dim=1)
