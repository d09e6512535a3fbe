"""The byte-level BPE tokenizer of the bundled model."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from specla.models.tokenizer import read_tokenizer

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
MOST_TOKENS = 1 << 16
"""In a corpus, whose ids are uint16."""
# A word takes along the one sign or space before it; a digit always stands alone; of many spaces a word gets the last.
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a BPE over bytes in which every text of Unicode characters has an exact round trip.

    Args:
        texts: what to count pairs in.
        vocab_size: entries at most, among them the 256 bytes and `<|endoftext|>` (id 0).

    Returns:
        the tokenizer; it adds no tokens of its own, and reads the letters '<|endoftext|>' in a text as plain text.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.encode_special_tokens = True
    return tokenizer


def load_tokenizer(path: str) -> Tokenizer:
    """Read a corpus' tokenizer.json; like a newly trained one it takes '<|endoftext|>' in a text for plain text."""
    tokenizer = read_tokenizer(Path(path), MOST_TOKENS)
    tokenizer.encode_special_tokens = True
    return tokenizer
