"""Text to tokens and back: a thin face over the `tokenizers` library, with the vocabulary checked against the model."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer as LibraryTokenizer

from specla.errors import SpeclaError, first_line
from specla.models.config import GatedDeltaNetConfig
from specla.models.json_file import MOST_BYTES
from specla.models.plain_file import size_of

_SAMPLE = "The cat sat on 2 mats, and so did the dog."
"""Whose tokens any tokenizer of English text puts together to the same text."""
_FEW = 0.9
"""The share of a model's vocabulary that its tokenizer has: models pad theirs by a few per cent at most."""


class Tokenizer(Protocol):
    """What decoding needs of a tokenizer."""

    @property
    def digest(self) -> str:
        """Says which one it is: the same for the same tokens."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""

    def decode(self, ids: list[int]) -> str:
        """The text of token ids."""


class ByteTokenizer:
    """A token a byte, for models with random weights, whose text means nothing anyway.

    Args:
        config: the model's; bytes that its vocabulary does not hold wrap around.
    """

    digest = "bytes"

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

    Raises:
        SpeclaError: there is none, it is damaged, or has tokens that the model does not have.
    """

    def __init__(self, folder: Path, config: GatedDeltaNetConfig) -> None:
        self.file, self._vocabulary = folder / "tokenizer.json", config.vocab_size
        self._tokenizer = read_tokenizer(self.file, config.vocab_size)

    @property
    def digest(self) -> str:
        """sha256 of what was read, without what was switched off."""
        return hashlib.sha256(self._tokenizer.to_str().encode()).hexdigest()

    @property
    def notes(self) -> tuple[str, ...]:
        """What shows that it may be another model's, a line each: too few tokens, or a text that comes back changed."""
        notes, held = [], self._tokenizer.get_vocab_size(with_added_tokens=True)
        if held < _FEW * self._vocabulary:
            notes.append(
                f"{self.file}: has {held:,} tokens, the model {self._vocabulary:,}: the others have no text; is it "
                "this model's?"
            )
        try:
            back = self.decode(self.encode(_SAMPLE))
        except SpeclaError as problem:
            return (*notes, f"{problem}: {_SAMPLE!r}")
        if back.strip() != _SAMPLE:
            why = " (it has no decoder)" if self._tokenizer.decoder is None else ""
            notes.append(f"{self.file}: does not give a text back{why}: {_SAMPLE!r} becomes {back[:100]!r}")
        return tuple(notes)

    def has_tokens_of(self, file: Path) -> bool:
        """Whether token ids mean to another tokenizer.json what they mean here. Raises SpeclaError where it is none."""
        same: bool = self._tokenizer.get_vocab() == read_tokenizer(file, self._vocabulary).get_vocab()
        return same

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens are not added. Raises SpeclaError where the tokenizer has none for it."""
        with _told(self.file, "has no tokens for a text"):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of token ids; bytes that do not form UTF-8 become the replacement character."""
        with _told(self.file, "has no text for tokens"):
            return str(self._tokenizer.decode(ids, skip_special_tokens=True))


def read_tokenizer(file: Path, vocab_size: int) -> LibraryTokenizer:
    """Read a tokenizer.json, the one way to one: a text's tokens are what the whole text gives.

    A file may carry the truncation, the padding and the dropout that some training used: all are switched off.

    Args:
        file: to be read.
        vocab_size: of the model, whose tokens must hold every one of the tokenizer's.

    Raises:
        SpeclaError: there is no such file, it is damaged, or has tokens that the model does not have.
    """
    size = size_of(file)
    if size is None:
        raise SpeclaError(f"{file.parent}: no tokenizer.json; put the model's tokenizer beside its weights")
    if size > MOST_BYTES:
        raise SpeclaError(f"{file}: larger than {MOST_BYTES:,} bytes, as no tokenizer is")
    with _told(file, "cannot be read"):
        tokenizer = LibraryTokenizer.from_file(str(file))
        # Added tokens among them; ids may have gaps, so that their number says little.
        last = max(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1], default=("", -1))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None) is not None:
        tokenizer.model.dropout = None
    if last[1] >= vocab_size:
        raise SpeclaError(
            f"{file}: token {last[0][:60]!r} has the id {last[1]}, but the model's vocabulary has {vocab_size}; wrong "
            "tokenizer"
        )
    return tokenizer


@contextmanager
def _told(file: Path, what: str) -> Iterator[None]:
    """Inside, whatever the library raises becomes one line."""
    try:
        yield
    except BaseException as damage:
        # It raises plain exceptions, and for some damage its panics, which are none.
        if isinstance(damage, Exception) or type(damage).__name__ == "PanicException":
            raise SpeclaError(f"{file}: {what} ({first_line(damage)[:200]})") from None
        raise
