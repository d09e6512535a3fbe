"""The options of a corpus."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specla.errors import SpeclaError
from specla.train.bpe import MOST_TOKENS
from specla.train.sources import TEXT_CATEGORIES, TextSource

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, the steps done, and the steps in all."""


@dataclass(frozen=True)
class CorpusOptions:
    """What goes into a corpus and where it is written."""

    sources: list[TextSource]
    """Texts to read; names are unique."""
    out: Path
    """Folder to write; it must be new, empty, or hold the corpus of the same options."""
    vocab_size: int = 8192
    """Entries of the tokenizer at most; 258 to 65536, since ids are stored as uint16."""
    heldout_share: float = 0.01
    """Share of the documents that never trains."""
    arithmetic_share: float = 0.06
    """Share of the training tokens that is generated arithmetic."""
    repeats_share: float = 0.06
    """Share of the training tokens that is generated text that repeats."""
    seed: int = 0
    """Seed of the generated documents and of the order."""

    def validate(self) -> None:
        """Raises SpeclaError where a value cannot be used; names the option and the range."""
        if not self.sources:
            raise SpeclaError("corpus.sources is empty: give at least one folder or file of text")
        twice = [name for name, count in Counter(source.name for source in self.sources).items() if count > 1]
        if twice:
            raise SpeclaError(f"corpus.sources: the name {twice[0]!r} is given twice: names must be unique")
        for source in self.sources:
            if source.category not in TEXT_CATEGORIES:
                raise SpeclaError(
                    f"source {source.name!r}: category {source.category!r}: use {', '.join(TEXT_CATEGORIES)}"
                )
        if not 258 <= self.vocab_size <= MOST_TOKENS:
            raise SpeclaError(
                f"corpus.vocab_size={self.vocab_size}: use 258 to {MOST_TOKENS} (256 bytes, end of text, one merge)"
            )
        if not 0 < self.heldout_share < 0.5:
            raise SpeclaError(f"corpus.heldout_share={self.heldout_share}: use a share above 0 and below 0.5")
        for name, share in (("arithmetic_share", self.arithmetic_share), ("repeats_share", self.repeats_share)):
            if not 0 <= share <= 0.4:
                raise SpeclaError(f"corpus.{name}={share}: use a share from 0 to 0.4")
