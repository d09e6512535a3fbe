"""Nodes whose inputs are not finite, kept from all others: zero times NaN is NaN, in a masked product too.

A node is *lost* in a value head where one of its k, v, g or b is not finite, and so are its descendants: their outputs
and factors are NaN, as decoding token by token would make them, and a commit that takes one in makes a state that is
not finite. Every other node gets the bits that it would get beside finite ones. Forms that walk from parent to child
need nothing of this; forms that multiply by a mask compute with zeros in place of lost nodes.

On a device whatever makes node inputs marks them, since it has them on chip and others would read them again. In
*marked* inputs, of a node and value head:

- g is NaN where g or any of v is not finite, and b where b or any of its key head's k is not: either loses it;
- k has zeros in place of what is not finite, v and q are as they were.

`specla.ops.kernels.node_inputs` makes such inputs; other tensors that are to go to kernels pass through `marked`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from specla.ops.paths import path_decay
from specla.ops.types import Factors, NodeInputs, TreeTensors, VerifyOutput


def path_decay_apart(g: Tensor, path_sums: Tensor, since: Tensor | None) -> Tensor:
    """`path_decay`, where a g that is not finite makes NaN of its node's G and its descendants', and of no other."""
    # On a device, looking would stall the stream.
    if g.device.type == "cpu":
        decay = path_decay(g, path_sums, since)
        if _is_finite(decay):
            return decay
    missing = ~g.isfinite()
    decay = path_decay(g.masked_fill(missing, 0.0), path_sums, since)
    return decay.masked_fill(path_decay(missing, path_sums, None) > 0, torch.nan)


def marked(inputs: NodeInputs) -> NodeInputs:
    """The inputs as kernels take them; what is finite keeps its bits."""
    q, k, v, g, beta = inputs
    keys = k.isfinite().all(3).repeat_interleave(g.shape[2] // k.shape[2], dim=2)
    g = g.masked_fill(~(g.isfinite() & v.isfinite().all(3)), torch.nan)
    beta = beta.masked_fill(~(beta.isfinite() & keys), torch.nan)
    return NodeInputs(q, k.masked_fill(~k.isfinite(), 0.0), v, g, beta)


def marks(inputs: NodeInputs) -> Tensor:
    """g [B, T, HV] of marked inputs, NaN where b marks as well: its sums along paths tell all that is lost."""
    return inputs.g + (inputs.beta - inputs.beta)


def contained(run: Callable[[NodeInputs], VerifyOutput], inputs: NodeInputs, tree: TreeTensors) -> VerifyOutput:
    """What `run` makes of the inputs, with lost nodes lost and no others; for the CPU, where looking costs little.

    Args:
        run: a verification of these nodes that multiplies by a mask: whatever is not finite, it may spread. It is run
            once again where something was not.
        inputs: of the T nodes.
        tree: of them.
    """
    found = run(inputs)
    if _is_finite(found.out):
        return found
    told = marked(inputs)
    lost = path_decay_apart(marks(told), tree.path_sums, None).transpose(1, 2).isnan()
    if not bool(lost.any()):
        return found
    q, k, v, g, beta = told
    g, beta = (x.masked_fill(lost, 0.0) for x in (g, beta))
    out, factors, states = run(NodeInputs(q, k, v.masked_fill(lost[..., None], 0.0), g, beta))
    if factors is not None:
        u, decay = factors.u.masked_fill(lost[..., None], torch.nan), factors.decay.masked_fill(lost, torch.nan)
        factors = Factors(inputs.k, u, decay)
    return VerifyOutput(out.masked_fill(lost[..., None], torch.nan), factors, states)


def _is_finite(x: Tensor) -> bool:
    """Whether nothing in x is NaN or infinite, from one sum; where that overflows, the answer is no as well."""
    return math.isfinite(float(x.sum()))
