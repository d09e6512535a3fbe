"""The network of the aligned drafter: one gated delta net block between the target's embedding and the target's head.

At position i it reads the target's hidden state h_i and the embedding of token i + 1, and predicts h_{i+1}, from which
the target's head drafts token i + 2. The hidden states are those after the target's last norm: that is what the head
reads, so that the network can go on from its own prediction further down a draft, and it is what the forward passes of
the target return anyway.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specla.models.block import Block
from specla.models.config import GatedDeltaNetConfig
from specla.models.parts import RMSNorm
from specla.ops.linear import PackedLinear


@dataclass(frozen=True)
class DrafterConfig:
    """Shape of an aligned drafter.

    Attributes:
        hidden_size: the target's.
        vocab_size: the target's.
        num_heads: of keys and values alike.
        head_dim: of keys and values alike.
        intermediate_size: of the MLP.
        norm_eps: of every norm.
    """

    hidden_size: int
    vocab_size: int
    num_heads: int
    head_dim: int
    intermediate_size: int
    norm_eps: float = 1e-6

    @classmethod
    def of(cls, target: GatedDeltaNetConfig) -> "DrafterConfig":
        """A drafter with the heads and the MLP of one of the target's layers."""
        return cls(
            target.hidden_size,
            target.vocab_size,
            target.num_v_heads,
            target.head_dim,
            target.intermediate_size,
            target.norm_eps,
        )

    @property
    def block(self) -> GatedDeltaNetConfig:
        """The block as a gated delta net of a single layer."""
        return GatedDeltaNetConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=1,
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            num_v_heads=self.num_heads,
            expand_v=1.0,
            intermediate_size=self.intermediate_size,
            norm_eps=self.norm_eps,
        )


class AlignedNet(nn.Module):
    """The drafter's own weights; embedding and head are the target's."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        # First, since it refuses sizes that no network has.
        shape = config.block
        self.config = config
        hidden = config.hidden_size
        self.hidden_norm = RMSNorm(hidden, config.norm_eps)
        self.embedding_norm = RMSNorm(hidden, config.norm_eps)
        self.combine = nn.Linear(2 * hidden, hidden, bias=False)
        self._combine: PackedLinear | None = None
        self.block = Block(shape)
        self.norm = RMSNorm(hidden, config.norm_eps)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)

    def prepare(self) -> "AlignedNet":
        """Make ready for inference: no gradients, packed weights. Call it after the last move to a device or dtype."""
        self.eval().requires_grad_(False)
        self.block.attn.pack()
        self.block.mlp.pack()
        self._combine = PackedLinear(self.combine.weight)
        return self

    def enter(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        """The block's input [..., hidden], from hidden states of the target (or drafted ones) and embedded tokens."""
        return self.combined(torch.cat((self.hidden_norm(hidden), self.embedding_norm(embedded)), dim=-1))

    def combined(self, both: Tensor) -> Tensor:
        """The block's input [..., hidden], from both normed, side by side."""
        return F.linear(both, self.combine.weight) if self._combine is None else self._combine(both)

    def leave(self, mixed: Tensor) -> Tensor:
        """What follows the block's mixer: its MLP and the last norm; [..., hidden] -> predicted hidden states."""
        return self.norm(mixed + self.block.mlp(self.block.mlp_norm(mixed)))  # type: ignore[no-any-return]
