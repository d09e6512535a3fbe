"""Bits per byte on held-out text, by category: what a target is judged by."""

import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.train.corpus_files import heldout_texts

_SEQUENCE, _BATCH = 1024, 8


@torch.inference_mode()
def bits_per_byte(model: GatedDeltaNetLM, corpus: Path) -> dict[str, float]:
    """Bits per byte of the corpus' held-out documents, by category and over 'all', 4 decimals.

    Documents of a category are read one after another in windows of 1,024 tokens, each without the one before.
    """
    spans: dict[str, list[np.ndarray]] = {}
    sizes: dict[str, int] = {}
    for text in heldout_texts(corpus, model.config.vocab_size):
        spans.setdefault(text.category, []).append(text.tokens)
        sizes[text.category] = sizes.get(text.category, 0) + text.size_bytes
    bits = {
        name: _bits(model, torch.from_numpy(np.concatenate(parts).astype(np.int64))) for name, parts in spans.items()
    }
    scores = {name: round(bits[name] / sizes[name], 4) for name in sorted(bits)}
    return {**scores, "all": round(sum(bits.values()) / sum(sizes.values()), 4)}


def _bits(model: GatedDeltaNetLM, tokens: Tensor) -> float:
    """Bits of a token stream, the first token left out."""
    total = 0.0
    full = (len(tokens) - 1) // _SEQUENCE * _SEQUENCE
    windows = list(tokens[: full + 1].unfold(0, _SEQUENCE + 1, _SEQUENCE).split(_BATCH)) if full else []
    if len(tokens) - 1 > full:
        windows.append(tokens[None, full:])
    for window in windows:
        window = window.to(model.device)
        with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=model.device.type == "cuda"):
            logits = model.logits(model(window[:, :-1]))
        total += F.cross_entropy(logits.flatten(0, 1).float(), window[:, 1:].flatten(), reduction="sum").item()
    return total / math.log(2)
