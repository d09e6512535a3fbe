"""Seeded streams of made-up documents: arithmetic with worked answers, and text that repeats.

A stream is endless and the same for the same arguments, so a corpus takes from it as much as its share asks for.
Training and held-out streams never give the same question: a question belongs to one split by a hash of its own words
and numbers.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from specla.train.arithmetic import Worked
from specla.train.arithmetic_more import TEMPLATES
from specla.train.repeats import recited, records
from specla.train.sources import Document

SplitName = Literal["train", "heldout"]
# One question in sixteen belongs to the held-out split: enough to draw from, little lost to training.
_HELDOUT_ONE_IN = 16
_MOST_PER_DOCUMENT = 4


@dataclass(frozen=True)
class Problem:
    """A word problem: the question, and the worked answer ending in 'The answer is N.'"""

    question: str
    answer: str

    @property
    def text(self) -> str:
        """The two lines 'Question: ...' and 'Answer: ...', each ending in a newline."""
        return f"Question: {self.question}\nAnswer: {self.answer}\n"


def split_of_question(question: str) -> SplitName:
    """The split that a question belongs to, by a hash of its text: another number or name may change it."""
    first = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big")
    return "heldout" if first % _HELDOUT_ONE_IN == 0 else "train"


def problems(seed: int, split: SplitName) -> Iterator[Problem]:
    """Endless stream of word problems of one split; equal seeds give equal streams, the splits share no question."""
    random = Random(f"arithmetic {split} {seed}")
    while True:
        worked = Worked(random)
        question = random.choice(TEMPLATES)(worked)
        if split_of_question(question) == split:
            yield Problem(question, f"{' '.join(worked.sentences)} The answer is {worked.answer}.")


def arithmetic_documents(seed: int, split: SplitName) -> Iterator[Document]:
    """Endless stream of documents of one to four word problems with an empty line between them."""
    random = Random(f"arithmetic groups {split} {seed}")
    stream = problems(seed, split)
    number = 0
    while True:
        texts = [next(stream).text for _ in range(random.randint(1, _MOST_PER_DOCUMENT))]
        yield Document("arithmetic", "arithmetic", f"{split}-{number}", "\n".join(texts))
        number += 1


def repeat_documents(documents: Sequence[Document], seed: int, split: SplitName) -> Iterator[Document]:
    """Endless stream of documents that tell something twice; `again` spans the second telling (characters).

    Args:
        documents: texts to recite from, all of the same split as the stream; without any, only records are made.
        seed: of the stream.
        split: names the stream, so that train and held-out draw differently.
    """
    random = Random(f"repeats {split} {seed}")
    usable = [document for document in documents if document.category in ("prose", "documentation", "code")]
    number = 0
    while True:
        # A third are records from word lists, two thirds recite the given documents.
        made = None
        if usable and random.random() < 2 / 3:
            made = recited(random, random.choice(usable))
        text, again = made or records(random)
        yield Document("repeats", "repeats", f"{split}-{number}", text, again)
        number += 1
