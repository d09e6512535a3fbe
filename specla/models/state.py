"""The decode state of a batch: one dense recurrent state and one convolution window per layer and row."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specla.models.config import GatedDeltaNetConfig
from specla.ops.types import Bank


@dataclass
class DecodeState:
    """What a gated delta net keeps between steps, for every layer and row.

    Attributes:
        recurrent: [L, B, HV, V, K] float32, value-first, as flash-linear-attention caches it.
        window: [L, B, W-1, C] in the model's dtype, the newest committed inputs of the short convolution, oldest first.
        lengths: [B] int64, tokens committed so far.
    """

    recurrent: Tensor
    window: Tensor
    lengths: Tensor

    @classmethod
    def empty(cls, config: GatedDeltaNetConfig, batch: int, dtype: torch.dtype, device: torch.device) -> "DecodeState":
        """The state before any token: zeros."""
        layers = config.num_hidden_layers
        return cls(
            torch.zeros(layers, batch, config.num_v_heads, config.head_v_dim, config.head_dim, device=device),
            torch.zeros(layers, batch, config.conv_size - 1, config.conv_dim, dtype=dtype, device=device),
            torch.zeros(batch, dtype=torch.int64, device=device),
        )

    def clone(self) -> "DecodeState":
        """An independent copy."""
        return DecodeState(self.recurrent.clone(), self.window.clone(), self.lengths.clone())

    def copy_(self, other: "DecodeState") -> None:
        """Overwrite this state with another of the same shape, in place."""
        self.recurrent.copy_(other.recurrent)
        self.window.copy_(other.window)
        self.lengths.copy_(other.lengths)

    @property
    def is_finite(self) -> bool:
        """Whether all of it is numbers: what is not never becomes one again."""
        return bool(self.recurrent.isfinite().all() and self.window.isfinite().all())

    @property
    def bytes(self) -> int:
        """Bytes of the recurrent state and the windows."""
        return self.recurrent.nbytes + self.window.nbytes


def make_bank(config: GatedDeltaNetConfig, places: tuple[int, ...], like: Tensor) -> Bank:
    """Memory for factors and convolution inputs.

    Args:
        config: of the layers.
        places: what every field begins with: [B, T] for one layer, [L, B, T] for all.
        like: of the model's dtype, on its device.
    """
    wide = torch.zeros(*places, config.num_v_heads, config.head_v_dim, device=like.device)
    return Bank(
        like.new_zeros(*places, config.num_heads, config.head_dim),
        wide,
        wide.new_zeros(wide.shape[:-1], dtype=torch.float64),
        like.new_zeros(*places, config.conv_dim),
    )
