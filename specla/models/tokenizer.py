"""Text to tokens and back: a thin face over the `tokenizers` library, with the vocabulary checked against the model."""

from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer as LibraryTokenizer

from specla.errors import SpeclaError
from specla.models.config import GatedDeltaNetConfig


class Tokenizer(Protocol):
    """What decoding needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""

    def decode(self, ids: list[int]) -> str:
        """The text of token ids."""


class ByteTokenizer:
    """A token a byte, for models with random weights, whose text means nothing anyway.

    Args:
        config: the model's; bytes that its vocabulary does not hold wrap around.
    """

    def __init__(self, config: GatedDeltaNetConfig) -> None:
        self._size = config.vocab_size

    def encode(self, text: str) -> list[int]:
        """Bytes of the UTF-8 form."""
        return [byte % self._size for byte in text.encode()]

    def decode(self, ids: list[int]) -> str:
        """Bytes back to text; tokens past the bytes are left out."""
        return bytes(i for i in ids if i < 256).decode(errors="replace")


class TextTokenizer:
    """The tokenizer of a checkpoint folder.

    Args:
        folder: holds `tokenizer.json`.
        config: the model's; its vocabulary must hold every token.
    """

    def __init__(self, folder: Path, config: GatedDeltaNetConfig) -> None:
        file = folder / "tokenizer.json"
        if not file.exists():
            raise SpeclaError(f"{folder}: no tokenizer.json; put the model's tokenizer beside its weights")
        try:
            self._tokenizer = LibraryTokenizer.from_file(str(file))
        except Exception as damage:  # the library raises plain Exception
            raise SpeclaError(f"{file}: cannot be read ({damage})") from None
        size = self._tokenizer.get_vocab_size()
        if size > config.vocab_size:
            raise SpeclaError(
                f"{file}: {size} tokens, but the model's vocabulary has {config.vocab_size}; wrong tokenizer"
            )

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens are not added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of token ids; bytes that do not form UTF-8 become the replacement character."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))
