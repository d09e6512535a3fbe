"""Configuration of a gated delta net language model, and its Hugging Face form as flash-linear-attention writes it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specla.errors import SpeclaError
from specla.ops.shape import HeadShape

_ACTIVATIONS = ("swish", "silu", "sigmoid")
MOST = 2**31 - 1
"""Of any size: what indexes in 32 bits reach."""
DEFAULTS: dict[str, Any] = {
    "hidden_size": 2048,
    "expand_v": 2.0,
    "use_gate": True,
    "use_short_conv": True,
    "allow_neg_eigval": False,
    "conv_size": 4,
    "conv_bias": False,
    "head_dim": 256,
    "num_heads": 6,
    "num_v_heads": None,
    "hidden_ratio": 4,
    "intermediate_size": None,
    "hidden_act": "swish",
    "num_hidden_layers": 21,
    "norm_eps": 1e-6,
    "attn": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
    "vocab_size": 32000,
    "attnres_block_size": None,
    "output_gate_activation": "swish",
}
"""What flash-linear-attention takes for a key that a config.json leaves out."""


@dataclass(frozen=True)
class GatedDeltaNetConfig:
    """Shape of a gated delta net; field names are those of `fla.models.GatedDeltaNetConfig`.

    `num_v_heads` may exceed `num_heads`: grouped value heads share queries and keys. `conv_size` is the width of the
    short convolution of q, k and v. Any of the tokens `eos_token_id` ends a text.

    Raises:
        SpeclaError: there is no such network, or a token is outside its vocabulary.
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
    eos_token_id: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        sizes = (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_heads",
            "head_dim",
            "num_v_heads",
            "intermediate_size",
            "conv_size",
        )
        for name in sizes:
            if getattr(self, name) < 1:
                raise SpeclaError(f"model.{name}={getattr(self, name)}: must be at least 1")
            if getattr(self, name) > MOST:
                raise SpeclaError(f"model.{name}={_shown(getattr(self, name))}: must be at most {MOST}")
        if not 0 < self.expand_v <= MOST:
            raise SpeclaError(f"model.expand_v={self.expand_v}: give a number above 0")
        if not 0 <= self.initializer_range <= MOST:
            raise SpeclaError(f"model.initializer_range={self.initializer_range}: give 0 or more")
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
        for name, ids in (("bos_token_id", (self.bos_token_id,)), ("eos_token_id", self.eos_token_id)):
            for token in ids:
                if token is not None and not 0 <= token < self.vocab_size:
                    raise SpeclaError(
                        f"model.{name}={_shown(token)}: the vocabulary has the tokens 0 to {self.vocab_size - 1}"
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

        A key that is not there has the value that flash-linear-attention gives it.

        Args:
            raw: the parsed JSON.
            where: the file it came from, for messages.

        Raises:
            SpeclaError: a value is of the wrong type or out of range, or asks for what specla does not run.
        """
        _refuse_unsupported(raw, where)
        try:
            hidden, ratio = _integer(raw, "hidden_size"), _number(raw, "hidden_ratio", or_null=True) or 4.0
            rounded = 256 * math.ceil(int(hidden * ratio * 2 / 3) / 256)
            return cls(
                vocab_size=_integer(raw, "vocab_size"),
                hidden_size=hidden,
                num_hidden_layers=_integer(raw, "num_hidden_layers"),
                num_heads=_integer(raw, "num_heads"),
                head_dim=_integer(raw, "head_dim"),
                num_v_heads=_integer(raw, "num_v_heads", raw.get("num_heads", DEFAULTS["num_heads"])),
                expand_v=_number(raw, "expand_v"),
                intermediate_size=_integer(raw, "intermediate_size", rounded),
                conv_size=_integer(raw, "conv_size"),
                conv_bias=_flag(raw, "conv_bias"),
                use_gate=_flag(raw, "use_gate"),
                output_gate_activation=raw.get("output_gate_activation", DEFAULTS["output_gate_activation"]),
                allow_neg_eigval=_flag(raw, "allow_neg_eigval"),
                tie_word_embeddings=_flag(raw, "tie_word_embeddings"),
                norm_eps=_number(raw, "norm_eps"),
                initializer_range=_number(raw, "initializer_range"),
                bos_token_id=_bos(raw),
                eos_token_id=eos_ids(raw.get("eos_token_id", DEFAULTS["eos_token_id"])),
            )
        except SpeclaError as wrong:
            raise SpeclaError(f"{where}: {str(wrong).removeprefix('model.')}") from None

    def to_hf(self) -> dict[str, Any]:
        """The content of a `config.json` that flash-linear-attention reads."""
        ends = list(self.eos_token_id)
        return {
            "model_type": "gated_deltanet",
            "architectures": ["GatedDeltaNetForCausalLM"],
            "attn_mode": "chunk",
            "use_short_conv": True,
            "hidden_act": "swish",
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "eos_token_id": ends if len(ends) > 1 else next(iter(ends), None),
        }


def eos_ids(value: Any) -> tuple[int, ...]:
    """The tokens that `eos_token_id` names: one, several, or none where it is null.

    Raises:
        SpeclaError: it is something else.
    """
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token in ids:
        if not _is_integer(token):
            raise SpeclaError(f"eos_token_id={_shown(value)}: give token ids, one or a list, or null")
    return tuple(dict.fromkeys(ids))


def _bos(raw: Mapping[str, Any]) -> int | None:
    value = raw.get("bos_token_id", DEFAULTS["bos_token_id"])
    if value is not None and not _is_integer(value):
        raise SpeclaError(f"bos_token_id={_shown(value)}: give one token id, or null")
    return None if value is None else int(value)


def _is_integer(value: Any) -> bool:
    # In Python true is an integer, in JSON it is none.
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(raw: Mapping[str, Any], name: str, for_null: Any = None) -> int:
    value = raw.get(name, DEFAULTS[name])
    value = for_null if value is None and for_null is not None else value
    if not _is_integer(value):
        raise SpeclaError(f"{name}={_shown(value)}: give a whole number")
    if abs(value) > MOST:
        raise SpeclaError(f"{name}={_shown(value)}: must be at most {MOST}")
    return int(value)


def _number(raw: Mapping[str, Any], name: str, or_null: bool = False) -> float:
    value = raw.get(name, DEFAULTS[name])
    if value is None and or_null:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST <= value <= MOST:
        raise SpeclaError(f"{name}={_shown(value)}: give a number")
    return float(value)


def _flag(raw: Mapping[str, Any], name: str) -> bool:
    value = raw.get(name, DEFAULTS[name])
    if not isinstance(value, bool):
        raise SpeclaError(f"{name}={_shown(value)}: give true or false")
    return value


def _shown(value: Any) -> str:
    """A value as it is told: what others wrote may be long."""
    text = repr(value) if not _is_integer(value) or abs(value) <= 10**40 else f"{len(bin(value)) - 2} bits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse_unsupported(raw: Mapping[str, Any], where: str) -> None:
    kind = raw.get("model_type")
    if kind != "gated_deltanet":
        raise SpeclaError(f"{where}: model_type={_shown(kind)} is not supported; specla runs 'gated_deltanet' models")
    if raw.get("attn"):
        raise SpeclaError(f"{where}: attn: attention layers are not supported; specla runs pure gated delta nets")
    if raw.get("attnres_block_size") is not None or raw.get("attnres"):
        raise SpeclaError(f"{where}: attnres_block_size: attention residuals are not supported")
    if raw.get("use_short_conv", True) is not True:
        raise SpeclaError(
            f"{where}: use_short_conv={json.dumps(raw['use_short_conv'])[:60]}: models without the short convolution "
            "are not supported"
        )
    if raw.get("hidden_act", "swish") not in ("swish", "silu"):
        raise SpeclaError(f"{where}: hidden_act={_shown(raw['hidden_act'])} is not supported; only 'swish' is")
    if raw.get("quantization_config") is not None:
        raise SpeclaError(f"{where}: quantization_config: quantised checkpoints are not supported")
