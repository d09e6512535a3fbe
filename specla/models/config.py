"""Configuration of a gated delta net language model, and its Hugging Face form as flash-linear-attention writes it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specla.errors import SpeclaError
from specla.ops.shape import HeadShape

_ACTIVATIONS = ("swish", "silu", "sigmoid")


@dataclass(frozen=True)
class GatedDeltaNetConfig:
    """Shape of a gated delta net; field names are those of `fla.models.GatedDeltaNetConfig`.

    `num_v_heads` may exceed `num_heads`: grouped value heads share queries and keys. `conv_size` is the width of the
    short convolution of q, k and v.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_heads: int
    head_dim: int
    num_v_heads: int
    expand_v: float
    intermediate_size: int
    conv_size: int = 4
    conv_bias: bool = False
    use_gate: bool = True
    output_gate_activation: str = "swish"
    allow_neg_eigval: bool = False
    tie_word_embeddings: bool = False
    norm_eps: float = 1e-6
    initializer_range: float = 0.02
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self) -> None:
        sizes = (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_heads",
            "head_dim",
            "num_v_heads",
            "intermediate_size",
        )
        for name in sizes:
            if getattr(self, name) < 1:
                raise SpeclaError(f"model.{name}={getattr(self, name)}: must be at least 1")
        if not 0 < self.norm_eps < 1:
            raise SpeclaError(f"model.norm_eps={self.norm_eps}: give a small number above 0")
        if self.num_v_heads % self.num_heads:
            raise SpeclaError(f"model.num_v_heads={self.num_v_heads}: must be a multiple of num_heads={self.num_heads}")
        if not math.isclose(self.head_dim * self.expand_v, self.head_v_dim, rel_tol=1e-5):
            raise SpeclaError(f"model.expand_v={self.expand_v}: times head_dim={self.head_dim} must be a whole number")
        if self.conv_size < 2:
            raise SpeclaError(f"model.conv_size={self.conv_size}: the short convolution needs a width of 2 or more")
        if self.output_gate_activation not in _ACTIVATIONS:
            raise SpeclaError(
                f"model.output_gate_activation={self.output_gate_activation!r}: one of {', '.join(_ACTIVATIONS)}"
            )

    @property
    def head_v_dim(self) -> int:
        """V, the size of one value head."""
        return int(self.head_dim * self.expand_v)

    @property
    def key_dim(self) -> int:
        """H x K."""
        return self.num_heads * self.head_dim

    @property
    def value_dim(self) -> int:
        """HV x V."""
        return self.num_v_heads * self.head_v_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the short convolution: q, k and v side by side."""
        return 2 * self.key_dim + self.value_dim

    @property
    def head_shape(self) -> HeadShape:
        """The heads of one layer, as the operations see them."""
        return HeadShape(self.num_heads, self.num_v_heads, self.head_dim, self.head_v_dim)

    @property
    def parameters(self) -> int:
        """Number of weights, tied embeddings counted once."""
        gate = self.value_dim if self.use_gate else 0
        mixer = self.hidden_size * (self.conv_dim + gate + 2 * self.num_v_heads + self.value_dim)
        mixer += self.conv_dim * (self.conv_size + int(self.conv_bias)) + 2 * self.num_v_heads + self.head_v_dim
        layer = mixer + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * layer + embeddings + self.hidden_size

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], where: str) -> "GatedDeltaNetConfig":
        """Read the content of a `config.json`; what cannot be run is refused by name.

        Args:
            raw: the parsed JSON.
            where: the file it came from, for messages.
        """
        _refuse_unsupported(raw, where)
        try:
            hidden, ratio = int(raw["hidden_size"]), raw.get("hidden_ratio") or 4
            rounded = 256 * math.ceil(int(hidden * ratio * 2 / 3) / 256)
            return cls(
                vocab_size=int(raw["vocab_size"]),
                hidden_size=hidden,
                num_hidden_layers=int(raw["num_hidden_layers"]),
                num_heads=int(raw["num_heads"]),
                head_dim=int(raw["head_dim"]),
                num_v_heads=int(raw.get("num_v_heads") or raw["num_heads"]),
                expand_v=float(raw.get("expand_v", 2.0)),
                intermediate_size=int(raw.get("intermediate_size") or rounded),
                conv_size=int(raw.get("conv_size", 4)),
                conv_bias=_flag(raw, "conv_bias", False),
                use_gate=_flag(raw, "use_gate", True),
                output_gate_activation=str(raw.get("output_gate_activation", "swish")),
                allow_neg_eigval=_flag(raw, "allow_neg_eigval", False),
                tie_word_embeddings=_flag(raw, "tie_word_embeddings", False),
                norm_eps=float(raw.get("norm_eps", 1e-6)),
                initializer_range=float(raw.get("initializer_range", 0.02)),
                bos_token_id=_token_id(raw, "bos_token_id"),
                eos_token_id=_token_id(raw, "eos_token_id"),
            )
        except KeyError as missing:
            raise SpeclaError(f"{where}: no key {missing}; is this a gated delta net checkpoint?") from None
        except SpeclaError as wrong:
            raise SpeclaError(f"{where}: {str(wrong).removeprefix('model.')}") from None
        except (TypeError, ValueError, OverflowError) as wrong:
            raise SpeclaError(f"{where}: a value of the wrong type ({wrong})") from None

    def to_hf(self) -> dict[str, Any]:
        """The content of a `config.json` that flash-linear-attention reads."""
        return {
            "model_type": "gated_deltanet",
            "architectures": ["GatedDeltaNetForCausalLM"],
            "attn_mode": "chunk",
            "use_short_conv": True,
            "hidden_act": "swish",
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
        }


def _flag(raw: Mapping[str, Any], name: str, default: bool) -> bool:
    value = raw.get(name, default)
    if not isinstance(value, bool):
        raise SpeclaError(f"{name}={value!r}: give true or false")
    return value


def _token_id(raw: Mapping[str, Any], name: str) -> int | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, int):
        raise SpeclaError(f"{name}={value!r}: give one token id, or null")
    return value


def _refuse_unsupported(raw: Mapping[str, Any], where: str) -> None:
    kind = raw.get("model_type")
    if kind != "gated_deltanet":
        raise SpeclaError(f"{where}: model_type={kind!r} is not supported; specla runs 'gated_deltanet' models")
    if raw.get("attn"):
        raise SpeclaError(f"{where}: attn: attention layers are not supported; specla runs pure gated delta nets")
    if raw.get("attnres_block_size") is not None or raw.get("attnres"):
        raise SpeclaError(f"{where}: attnres_block_size: attention residuals are not supported")
    if not raw.get("use_short_conv", True):
        raise SpeclaError(f"{where}: use_short_conv=false: models without the short convolution are not supported")
    if raw.get("hidden_act", "swish") not in ("swish", "silu"):
        raise SpeclaError(f"{where}: hidden_act={raw['hidden_act']!r} is not supported; only 'swish' is")
    if raw.get("quantization_config") is not None:
        raise SpeclaError(f"{where}: quantization_config: quantised checkpoints are not supported")
