"""The equations of design section 1, node by node: the oracle of every fast form.

The arithmetic runs in the state's dtype, so a float64 state gives the truth. Nothing here is fast.

**What is not finite** stays where it is: a node whose k, v, g or b is NaN or infinite is lost, with its descendants,
and no other node, nor a commit of a path without it, gets other bits for it (`specla.ops.lost`). A commit that takes
a lost node in leaves a state that is not finite, as these equations do.

**Drift**: after 8,192 committed tokens a state is within 1e-4 of these equations in float64 (relative, Frobenius),
whatever verifies and recovers, under one condition. Kernels that verify by the tree mask (`tree`, and `auto` where it
picks that) work with products of keys in float32. Where every token has nearly the same key, and exp(g) (b - 1) >
0.999, states are reflected again and again, no error fades, and products that are rounded the same way in every step
add up to 1e-3 in 8,192 tokens (1.0e-4 in 512): 256 in a row are within the bound. Write strengths beyond 1 need a
model with `allow_neg_eigval`, and walks (`chain`, `hybrid`, `ar`) have no such products. Whoever verifies and commits
with such strengths must say so (`VerifyStrategy.reflects`, `RecoverStrategy.reflects`), as a model's layers and engine
do.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specla.ops.types import Factors, Fold, Known, NodeInputs, TreeTensors, VerifyOutput


def reference_verify(
    state: Tensor, inputs: NodeInputs, tree: TreeTensors, known: Known | None = None, fold: Fold = None
) -> VerifyOutput:
    """Every node's output, factors and state.

    Args:
        state: [B, HV, V, K]; rows with fold[b] take their known factors in, in place.
        inputs: of the T nodes.
        tree: shared, or one a row.
        known: committed factors that the state does not hold.
        fold: rows, see `Fold`.
    """
    batch, nodes, value_heads = inputs.g.shape
    groups = value_heads // inputs.q.shape[2]
    q, k = (x.to(state.dtype).repeat_interleave(groups, dim=2) for x in (inputs.q, inputs.k))
    v, g, beta = (x.to(state.dtype) for x in (inputs.v, inputs.g, inputs.beta))
    out, u = torch.empty_like(v), torch.empty_like(v)
    decay = torch.empty_like(g)
    states = state.new_empty(batch, nodes, *state.shape[1:])
    parents = tree.parents.expand(batch, nodes).tolist()
    for b in range(batch):
        committed, committed_decay = _with_known(state[b], known, b)
        if fold is True or (isinstance(fold, Tensor) and bool(fold[b])):
            state[b] = committed
            committed_decay = torch.zeros_like(committed_decay)
        for i in range(nodes):
            p = parents[b][i]
            s_p, decay_p = (states[b, p], decay[b, p]) if p >= 0 else (committed, committed_decay)
            s = g[b, i].exp()[:, None, None] * s_p
            u[b, i] = beta[b, i][:, None] * (v[b, i] - _apply(s, k[b, i]))
            states[b, i] = s + u[b, i][:, :, None] * k[b, i][:, None, :]
            out[b, i] = _apply(states[b, i], q[b, i])
            decay[b, i] = decay_p + g[b, i]
    return VerifyOutput(out, Factors(inputs.k, u, decay), states)


def reference_commit(state: Tensor, inputs: NodeInputs, path: Tensor, length: Tensor) -> Tensor:
    """The state after the first length[b] nodes of path[b], by the delta rule itself.

    Args:
        state: [B, HV, V, K]; it is not written.
        inputs: of the T nodes.
        path: [B, L] int64, nodes from the root down.
        length: [B] int64; zero leaves the row as it is.
    """
    state = state.clone()
    groups = inputs.g.shape[2] // inputs.q.shape[2]
    for b in range(state.shape[0]):
        for i in path[b, : int(length[b])].tolist():
            k = inputs.k[b, i].to(state.dtype).repeat_interleave(groups, dim=0)
            s = inputs.g[b, i].to(state.dtype).exp()[:, None, None] * state[b]
            u = inputs.beta[b, i][:, None].to(state.dtype) * (inputs.v[b, i].to(state.dtype) - _apply(s, k))
            state[b] = s + u[:, :, None] * k[:, None, :]
    return state


def reference_commit_factors(state: Tensor, factors: Factors, path: Tensor, length: Tensor) -> Tensor:
    """The state after the path, from factors: S <- exp(G_a) S + sum over the path of exp(G_a - G_j) u_j k_j^T."""
    state = state.clone()
    groups = factors.u.shape[2] // factors.k.shape[2]
    for b in range(state.shape[0]):
        nodes = path[b, : int(length[b])].tolist()
        if nodes:
            g_a = factors.decay[b, nodes[-1]].to(state.dtype)
            state[b] *= g_a.exp()[:, None, None]
        for j in nodes:
            k = factors.k[b, j].to(state.dtype).repeat_interleave(groups, dim=0)
            weight = (g_a - factors.decay[b, j].to(state.dtype)).exp()
            state[b] += (weight[:, None] * factors.u[b, j].to(state.dtype))[:, :, None] * k[:, None, :]
    return state


def reference_conv(x: Tensor, window: Tensor, weight: Tensor, bias: Tensor | None, parents: Tensor) -> Tensor:
    """The short convolution along every node's path, [B, T, C]; parents [B, T], window [B, W-1, C] oldest first."""
    width = weight.shape[1]
    out = torch.empty_like(x)
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            path = [x[b, i]]
            p = int(parents[b, i])
            while p >= 0:
                path.insert(0, x[b, p])
                p = int(parents[b, p])
            seen = torch.stack([*window[b], *path])[-width:]
            y = (seen * weight.T).sum(0)
            out[b, i] = F.silu(y if bias is None else y + bias)
    return out


def _with_known(state: Tensor, known: Known | None, row: int) -> tuple[Tensor, Tensor]:
    """One row's state with its known factors applied one by one, and the decay of the newest of them."""
    decay = state.new_zeros(state.shape[0])
    if known is None:
        return state.clone(), decay
    known = known.in_order()
    factors = known.factors
    groups = factors.u.shape[2] // factors.k.shape[2]
    for r in known.valid[row].nonzero().flatten().tolist():
        newer = factors.decay[row, r].to(state.dtype)
        k = factors.k[row, r].to(state.dtype).repeat_interleave(groups, dim=0)
        u = factors.u[row, r].to(state.dtype)
        state = (newer - decay).exp()[:, None, None] * state + u[:, :, None] * k[:, None, :]
        decay = newer
    return state.clone(), decay


def _apply(s: Tensor, x: Tensor) -> Tensor:
    """S x for every head: [HV, V, K], [HV, K] -> [HV, V]."""
    return (s @ x[..., None])[..., 0]
