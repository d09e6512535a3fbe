"""The token files of a corpus, as training reads them; what is damaged in them is told in one line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specla.errors import SpeclaError, first_line
from specla.models.json_file import read_object
from specla.models.tokenizer import TextTokenizer, read_tokenizer


@dataclass(frozen=True)
class HeldoutText:
    """One held-out document: its category, token ids [tokens] and the bytes that they stand for."""

    category: str
    tokens: np.ndarray
    size_bytes: int


def training_tokens(corpus: Path, sequence_length: int, vocab_size: int) -> Tensor:
    """A corpus' tokens to train on, [tokens] int32 since a GPU cannot index with uint16.

    Raises:
        SpeclaError: there are none, too few, or some that the vocabulary does not have.
    """
    path = corpus / "train.npy"
    if not path.exists():
        raise SpeclaError(f"corpus={corpus}: no train.npy there; make it with `specla train corpus`")
    tokens = _array(path, vocab_size)
    if len(tokens) <= sequence_length + 1:
        raise SpeclaError(f"{path}: {len(tokens)} tokens, fewer than one sequence of {sequence_length}")
    return torch.from_numpy(tokens.astype(np.int32))


def heldout_texts(corpus: Path, vocab_size: int) -> list[HeldoutText]:
    """A corpus' held-out documents, each with the end of its text.

    Raises:
        SpeclaError: there are none, or they are damaged, or have tokens that the vocabulary does not have.
    """
    index, tokens_path = corpus / "heldout.json", corpus / "heldout.npy"
    if not (index.exists() and tokens_path.exists()):
        raise SpeclaError(f"corpus={corpus}: no held-out text there; make it with `specla train corpus`")
    documents, tokens = read_object(index).get("documents"), _array(tokens_path, vocab_size)
    if not isinstance(documents, list) or not documents:
        raise SpeclaError(f"{index}: names no documents; make the corpus again with `specla train corpus`")
    return [_text(document, tokens, f"{index}: documents[{i}]") for i, document in enumerate(documents)]


def _text(document: Any, tokens: np.ndarray, where: str) -> HeldoutText:
    found: dict[str, Any] = document if isinstance(document, dict) else {}
    start, count, size = (found.get(name) for name in ("start", "tokens", "bytes"))
    if (
        not (isinstance(start, int) and isinstance(count, int) and isinstance(size, int))
        or not isinstance(found.get("category"), str)
        or not 0 <= start < start + count <= len(tokens)
        or size < 1
    ):
        raise SpeclaError(f"{where} is damaged or does not fit heldout.npy; make the corpus again")
    return HeldoutText(found["category"], tokens[start : start + count], size)


def corpus_tokenizer(corpus: Path, vocab_size: int) -> Path:
    """A corpus' tokenizer.json, looked at. Raises SpeclaError where there is none that a model of this size can use."""
    read_tokenizer(corpus / "tokenizer.json", vocab_size)
    return corpus / "tokenizer.json"


def require_tokens_of(tokenizer: TextTokenizer, corpus: Path) -> None:
    """Raise SpeclaError where a corpus' ids mean other texts to a model's tokenizer."""
    if not tokenizer.has_tokens_of(corpus / "tokenizer.json"):
        raise SpeclaError(
            f"corpus={corpus}: its tokens are not those of {tokenizer.file}; give the corpus that this model was "
            "trained on, or a model that was trained on this corpus"
        )


def _array(path: Path, vocab_size: int) -> np.ndarray:
    try:
        # Mapped: a header that asks for more than the file has is refused before anything is allocated.
        tokens = np.load(path, mmap_mode="r")
    except (ValueError, OSError, EOFError) as damage:
        raise SpeclaError(f"{path}: cannot be read ({first_line(damage)[:200]}); make the corpus again") from None
    if not isinstance(tokens, np.ndarray) or tokens.ndim != 1 or tokens.dtype.kind not in "ui":
        raise SpeclaError(f"{path}: is no list of tokens; make the corpus again")
    low, high = (int(tokens.min()), int(tokens.max())) if len(tokens) else (0, 0)
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        advice = "make the corpus again" if low < 0 else f"a new target has it with model.vocab_size={high + 1}"
        raise SpeclaError(f"{path}: token {wrong} does not fit the model's vocabulary of {vocab_size}; {advice}")
    return tokens
