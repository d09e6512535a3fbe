"""Nodes whose inputs are not finite, kept from all others: zero times NaN is NaN, in a masked product too.

A node is *lost* in a value head where one of its k, v, g or b is not finite, and so are its descendants: their outputs
and factors are NaN, as decoding token by token would make them, and a commit that takes one in makes a state that is
not finite. Every other node gets the bits that it would get beside finite ones. Forms that walk from parent to child
need nothing of this; forms that multiply by a mask compute with zeros in place of lost nodes.
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


def marked_gates(inputs: NodeInputs) -> Tensor:
    """g [B, T, HV], NaN where a node's k, v, g or b is not finite: its sums along paths then mark all that is lost."""
    groups = inputs.g.shape[2] // inputs.k.shape[2]
    keys = inputs.k.isfinite().all(3).repeat_interleave(groups, dim=2)
    finite = keys & inputs.v.isfinite().all(3) & inputs.g.isfinite() & inputs.beta.isfinite()
    return inputs.g.masked_fill(~finite, torch.nan)


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
    lost = path_decay_apart(marked_gates(inputs), tree.path_sums, None).transpose(1, 2).isnan()
    if not bool(lost.any()):
        return found
    q, k, v, g, beta = inputs
    keys = k.masked_fill(~k.isfinite().all(3, keepdim=True), 0.0)
    g, beta = (x.masked_fill(lost, 0.0) for x in (g, beta))
    out, factors, states = run(NodeInputs(q, keys, v.masked_fill(lost[..., None], 0.0), g, beta))
    if factors is not None:
        u, decay = factors.u.masked_fill(lost[..., None], torch.nan), factors.decay.masked_fill(lost, torch.nan)
        factors = Factors(k, u, decay)
    return VerifyOutput(out.masked_fill(lost[..., None], torch.nan), factors, states)


def _is_finite(x: Tensor) -> bool:
    """Whether nothing in x is NaN or infinite, from one sum; where that overflows, the answer is no as well."""
    return math.isfinite(float(x.sum()))
