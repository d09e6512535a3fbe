"""A small checkpoint's folder with a real tokenizer."""

import shutil
from pathlib import Path

import torch
from tokenizers import Tokenizer

from specla.models.checkpoint import resolve_folder, save_model
from tests.models.cases import raw_model


def write_checkpoint(folder: Path, shard_size: str = "1GB") -> Path:
    """Random weights with gdn-mini's tokenizer, whose end of text ends a text."""
    save_model(raw_model(vocab_size=8192, eos_token_id=(0,)), folder, torch.float32, shard_size)
    shutil.copy(resolve_folder("asset:gdn-mini") / "tokenizer.json", folder)
    return folder


def spoil(folder: Path) -> None:
    """Store the truncation and the padding of some training in its tokenizer."""
    file = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=48)
    tokenizer.save(str(file))
