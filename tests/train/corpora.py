"""A small corpus with its tokenizer, as `specla train corpus` writes one, made in a moment."""

import json
from pathlib import Path

import numpy as np

from specla.train.bpe import END_OF_TEXT_ID, train_tokenizer

VOCABULARY = 300
_TEXT = "Chapter {}. The quick brown fox jumps over the lazy dog, and over it again. "


def write_corpus(folder: Path) -> Path:
    """About 3,000 tokens to train on and 1,000 held out, in two categories."""
    folder.mkdir()
    texts = [_TEXT.format(i) * 8 for i in range(24)]
    tokenizer = train_tokenizer(texts, VOCABULARY)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = [[*tokenizer.encode(text).ids, END_OF_TEXT_ID] for text in texts]
    np.save(folder / "train.npy", np.concatenate(ids[6:]).astype(np.uint16))
    np.save(folder / "heldout.npy", np.concatenate(ids[:6]).astype(np.uint16))
    starts = np.cumsum([0, *map(len, ids[:6])]).tolist()
    documents = [
        {"category": "prose" if i % 2 else "code", "start": starts[i], "tokens": len(ids[i]), "bytes": len(texts[i])}
        for i in range(6)
    ]
    (folder / "heldout.json").write_text(json.dumps({"documents": documents}))
    return folder
