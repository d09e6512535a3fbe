"""Commit at once from compact factors (paper, section 5.1; the paper calls the product DeltaConstruct)."""

import torch
from torch import Tensor

from specla.ops.conv import move_window
from specla.ops.known import pending, weights, write_rows
from specla.ops.recover.base import Path, Record, RecoverStrategy, accepted
from specla.ops.rows import take_nodes
from specla.ops.types import Factors, Known, Moving


class CommitFactors(RecoverStrategy):
    """One batched product per layer, or one for all layers."""

    name = "factors"

    def commit(self, state: Tensor, record: Record, path: Tensor, length: Tensor, moving: Moving | None = None) -> None:
        assert record.factors is not None, "factors: verification left no factors"
        if state.is_cuda:
            from specla.ops.kernels import commit
            from specla.ops.kernels.launch import Taken

            commit.commit_factors(state, record.factors, Taken(path, length), moving, reflects=self.reflects)
            return
        commit_factors(state, record.factors, path, length)
        move_window(moving, path, length)


def path_factors(factors: Factors, path: Path) -> Factors:
    """The factors along the accepted path, [B, L, ...]."""
    if factors.decay.shape[1] == 1:
        return factors
    return Factors(*(take_nodes(x, path.nodes) for x in factors))


def commit_factors(state: Tensor, factors: Factors, path: Tensor, length: Tensor, known: Known | None = None) -> None:
    """S <- exp(G_a) S + sum over the path of exp(G_a - G_j) u_j k_j^T, in place.

    Args:
        state, path, length: as in `RecoverStrategy.commit`.
        factors: of the T nodes.
        known: factors that were known, and not folded, when the nodes were verified. G counts through them, so they go
            in with the path; in a row of length 0 they stay pending.
    """
    chosen = accepted(path, length, state.shape[0])
    taken = path_factors(factors, chosen)
    # Past its end a path repeats the accepted node, so the last column is G_a whatever the length.
    total, valid = taken.decay[:, -1].double(), chosen.valid
    if known is not None:
        held = pending(known)
        taken = Factors(*(torch.cat(parts, dim=1) for parts in zip(held.factors, taken, strict=True)))
        valid = torch.cat((held.valid, valid.expand(state.shape[0], -1)), dim=1)
    write_rows(state, taken, weights(total, taken.decay, valid), total.float().exp(), chosen.rows)
