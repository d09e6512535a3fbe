"""The documents of a corpus: read, cleared of duplicates, split, joined by generated ones, and encoded."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import numpy
import numpy.typing
from tokenizers import Tokenizer

from specla.errors import SpeclaError
from specla.train.bpe import END_OF_TEXT_ID, train_tokenizer
from specla.train.corpus_options import CorpusOptions, Progress
from specla.train.generators import SplitName, arithmetic_documents, repeat_documents
from specla.train.sources import Document, read_source

Ids = numpy.typing.NDArray[numpy.uint16]

_BATCH_DOCUMENTS = 256
# Generated documents are short; this many give enough places to take prompts from.
_FEWEST_HELDOUT_GENERATED = 160


@dataclass
class Split:
    """Documents of one split and their token ids (uint16), each ending in `<|endoftext|>`."""

    documents: list[Document] = field(default_factory=list)
    ids: list[Ids] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Token ids in all."""
        return sum(map(len, self.ids))

    def counts(self, by: Literal["source", "category"]) -> dict[str, dict[str, int]]:
        """Documents, bytes and tokens per source or per category."""
        counted: dict[str, dict[str, int]] = {}
        for document, ids in zip(self.documents, self.ids, strict=True):
            key = document.source if by == "source" else document.category
            entry = counted.setdefault(key, {"documents": 0, "bytes": 0, "tokens": 0})
            entry["documents"] += 1
            entry["bytes"] += document.size_bytes
            entry["tokens"] += len(ids)
        return counted

    def shuffle(self, seed: int) -> None:
        """Mix the documents of all sources."""
        order = list(range(len(self.documents)))
        Random(f"order {seed}").shuffle(order)
        self.documents = [self.documents[i] for i in order]
        self.ids = [self.ids[i] for i in order]


@dataclass
class Assembled:
    """Both splits, the tokenizer, and per source how many files or pieces were skipped for which reason."""

    train: Split
    heldout: Split
    tokenizer: Tokenizer
    skipped: dict[str, dict[str, int]]


def assemble(options: CorpusOptions, report: Progress) -> Assembled:
    """Read all sources and encode them, with the generated documents that the shares ask for.

    Raises:
        SpeclaError: a source cannot be used, or there is too little text to hold any out.
    """
    documents, skipped = _read_all(options, report)
    train_documents, heldout_documents = split_documents(documents, options.heldout_share)
    streams = {
        "arithmetic": (options.arithmetic_share, _arithmetic),
        "repeats": (options.repeats_share, repeat_documents),
    }
    natural_share = 1 - options.arithmetic_share - options.repeats_share
    size_bytes = sum(document.size_bytes for document in train_documents)
    samples: list[Document] = []
    for share, stream in streams.values():
        wanted = share / natural_share * size_bytes
        samples += _until(stream(train_documents, options.seed, "train"), wanted, lambda document: document.size_bytes)
    report("tokenizer", 0, 1)
    tokenizer = train_tokenizer((document.text for document in [*train_documents, *samples]), options.vocab_size)
    report("tokenizer", 1, 1)

    train, heldout = Split(), Split()
    add_documents(train, train_documents, tokenizer, lambda done: report("encode", done, len(train_documents)))
    add_documents(heldout, heldout_documents, tokenizer, lambda done: None)
    natural, natural_heldout = train.tokens, heldout.tokens
    for name, (share, stream) in streams.items():
        if share:
            ratio = share / natural_share
            _add_share(train, stream(train_documents, options.seed, "train"), tokenizer, ratio * natural)
            made = stream(heldout_documents, options.seed, "heldout")
            _add_share(heldout, made, tokenizer, ratio * natural_heldout, _FEWEST_HELDOUT_GENERATED)
            report(name, 1, 1)
    train.shuffle(options.seed)
    return Assembled(train, heldout, tokenizer, skipped)


def split_documents(documents: Sequence[Document], share: float) -> tuple[list[Document], list[Document]]:
    """Training and held-out documents, by a hash of their content; each category holds out at least one document.

    Raises:
        SpeclaError: a category has a single document, so that nothing would be left to train on.
    """
    limit = int(share * 2**64)
    held = {document.digest for document in documents if _hash_number(document) < limit}
    for category in dict.fromkeys(document.category for document in documents):
        of_category = [document for document in documents if document.category == category]
        if not any(document.digest in held for document in of_category):
            held.add(min(of_category, key=_hash_number).digest)
        if all(document.digest in held for document in of_category):
            raise SpeclaError(
                f"category {category!r}: {len(of_category)} document in all: give at least two, one is held out"
            )
    train = [document for document in documents if document.digest not in held]
    return train, [document for document in documents if document.digest in held]


def _hash_number(document: Document) -> int:
    return int.from_bytes(document.digest[:8], "big")


def add_documents(
    split: Split, documents: Sequence[Document], tokenizer: Tokenizer, report: Callable[[int], None]
) -> None:
    """Encode documents into a split; `report` is told how many are done."""
    for first in range(0, len(documents), _BATCH_DOCUMENTS):
        batch = documents[first : first + _BATCH_DOCUMENTS]
        encoded = tokenizer.encode_batch_fast([document.text for document in batch], add_special_tokens=False)
        split.documents += batch
        split.ids += [numpy.array([*item.ids, END_OF_TEXT_ID], dtype=numpy.uint16) for item in encoded]
        report(first + len(batch))


def _read_all(options: CorpusOptions, report: Progress) -> tuple[list[Document], dict[str, dict[str, int]]]:
    documents: list[Document] = []
    skipped: dict[str, dict[str, int]] = {}
    seen: set[bytes] = set()
    for number, source in enumerate(options.sources):
        report("read", number, len(options.sources))
        read = read_source(source)
        for document in read.documents:
            if document.digest in seen:
                read.skipped["duplicate"] += 1
            else:
                seen.add(document.digest)
                documents.append(document)
        skipped[source.name] = dict(sorted(read.skipped.items()))
    report("read", len(options.sources), len(options.sources))
    return documents, skipped


def _arithmetic(documents: Sequence[Document], seed: int, split: SplitName) -> Iterator[Document]:
    """The arithmetic stream with the arguments of the other stream; it needs no documents."""
    return arithmetic_documents(seed, split)


def _until(stream: Iterator[Document], wanted: float, size: Callable[[Document], int]) -> list[Document]:
    """Documents from a stream until their sizes add up to what is wanted."""
    taken: list[Document] = []
    total = 0
    while total < wanted:
        taken.append(next(stream))
        total += size(taken[-1])
    return taken


def _add_share(split: Split, stream: Iterator[Document], tokenizer: Tokenizer, tokens: float, fewest: int = 0) -> None:
    """Add documents of a stream until they make up that many tokens and at least so many documents."""
    made = Split()
    seen = {document.digest for document in split.documents}
    while made.tokens < tokens or len(made.documents) < fewest:
        batch: list[Document] = []
        # Short records can come out the same twice; a stream of distinct documents never runs dry.
        while len(batch) < _BATCH_DOCUMENTS // 4:
            document = next(stream)
            if document.digest not in seen:
                seen.add(document.digest)
                batch.append(document)
        add_documents(made, batch, tokenizer, lambda done: None)
    split.documents += made.documents
    split.ids += made.ids
