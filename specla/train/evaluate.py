"""Bits per byte on held-out text, by category: what a target is judged by."""

import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specla.errors import SpeclaError
from specla.models.gated_deltanet import GatedDeltaNetLM

_SEQUENCE, _BATCH = 1024, 8


@torch.inference_mode()
def bits_per_byte(model: GatedDeltaNetLM, corpus: Path) -> dict[str, float]:
    """Bits per byte of the corpus' held-out documents, by category and over 'all', 4 decimals.

    Documents of a category are read one after another in windows of 1,024 tokens, each without the one before.
    """
    index_path, tokens_path = corpus / "heldout.json", corpus / "heldout.npy"
    if not (index_path.exists() and tokens_path.exists()):
        raise SpeclaError(f"corpus={corpus}: no held-out text there; make the corpus with `specla train corpus`")
    index, tokens = json.loads(index_path.read_text(encoding="utf-8")), np.load(tokens_path)
    spans: dict[str, list[np.ndarray]] = {}
    sizes: dict[str, int] = {}
    for document in index["documents"]:
        spans.setdefault(document["category"], []).append(
            tokens[document["start"] : document["start"] + document["tokens"]]
        )
        sizes[document["category"]] = sizes.get(document["category"], 0) + document["bytes"]
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
