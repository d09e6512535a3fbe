"""Small models with random weights, and prompts for them."""

from typing import Any

import torch
from torch import Tensor

from specla.models.config import GatedDeltaNetConfig
from specla.models.gated_deltanet import GatedDeltaNetLM

SHAPE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_heads": 2,
    "num_v_heads": 2,
    "head_dim": 8,
    "expand_v": 1.0,
    "intermediate_size": 48,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped value heads": {"num_v_heads": 4},
    "expand_v 2": {"expand_v": 2.0},
    "no output gate": {"use_gate": False},
    "negative eigenvalues": {"allow_neg_eigval": True},
    "tied embeddings": {"tie_word_embeddings": True},
    "convolution bias": {"conv_bias": True},
    "sigmoid gate": {"output_gate_activation": "sigmoid"},
}
"""One change each from `SHAPE`."""


def tiny_config(**changes: Any) -> GatedDeltaNetConfig:
    """`SHAPE` with changes. Its weights are large, so that every part of the model has a say in every token."""
    return GatedDeltaNetConfig(**{**SHAPE, "initializer_range": 0.3, **changes})


def raw_model(seed: int = 0, **changes: Any) -> GatedDeltaNetLM:
    """A float32 model of `tiny_config` as training holds it: not packed, with gradients."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GatedDeltaNetLM(tiny_config(**changes))
        for name, parameter in model.named_parameters():
            # Biases start as zeros and norms as ones, which would test little.
            if name.endswith(("bias", "norm.weight")) and not name.endswith("dt_bias"):
                parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def tiny_model(seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> GatedDeltaNetLM:
    """The same, ready for inference."""
    model = raw_model(seed, **changes)
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.to(torch.float32 if name.endswith(("A_log", "dt_bias")) else dtype)
    return model.prepare()


def tokens(batch: int, length: int, vocabulary: int = SHAPE["vocab_size"], seed: int = 0) -> Tensor:
    """Random token ids [batch, length]."""
    return torch.randint(0, vocabulary, (batch, length), generator=torch.Generator().manual_seed(seed))


def prompts(*lengths: int, vocabulary: int = SHAPE["vocab_size"], seed: int = 0) -> list[list[int]]:
    """One random prompt a length."""
    row = tokens(1, sum(lengths), vocabulary, seed)[0]
    return [part.tolist() for part in row.split(lengths)]
