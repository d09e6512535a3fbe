"""Prompts out of a corpus's held-out documents, cut where a text can naturally go on.

A prompt never ends in white space: the tokenizer joins a line's end with the next line's indentation, so a prompt that
ends in a newline would begin the continuation inside a token.
"""

import json
import os
import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy
from tokenizers import Tokenizer

from specla.errors import SpeclaError
from specla.train.bpe import load_tokenizer
from specla.train.corpus import heldout_documents, read_manifest
from specla.train.sources import Document

PROMPT_CATEGORIES = ("prose", "documentation", "code", "arithmetic", "repeats")
FEWEST_TOKENS, MOST_TOKENS = 48, 256

_SENTENCE_OR_LINE_END = re.compile(r"[.!?]['\")\]]*(?=\s)|(?<=\S)(?=\n)")
_DEFINITION = re.compile(r"^([ \t]*)(?:async )?def .*:\n", re.MULTILINE)
_DOCSTRING = re.compile(r"[ \t]*[rbu]?(\"{3}|'{3})(?:.|\n)*?\1\n|[ \t]*\"[^\"\n]+\"\n")
# So much text follows a cut in its document, so that there is something to go on with.
_REST_CHARACTERS = 200
# A second telling shorter than this would end soon after the prompt.
_REPEATED_CHARACTERS = 240
_TRIES_PER_DOCUMENT = 40
# Token ids before a prompt's end that must not occur in training in this order.
_CHECKED_TOKENS = 32


@dataclass(frozen=True)
class Prompt:
    """One prompt; `id` is the category and a number, `source` the corpus source and the document in it."""

    id: str
    category: str
    prompt: str
    source: str


def write_prompts(corpus: Path, out: Path, per_category: int = 24, seed: int = 0) -> dict[str, int]:
    """Write `out/<category>.jsonl` for the five categories, one prompt of 48 to 256 tokens a line.

    Args:
        corpus: folder of a finished corpus.
        out: folder for the five files; files of those names are replaced.
        per_category: prompts per category.
        seed: of the choice.

    Returns:
        prompts written per category.

    Raises:
        SpeclaError: there is no corpus, it holds out too little text for so many prompts, or `out` cannot be written.
    """
    read_manifest(corpus)
    tokenizer = load_tokenizer(str(corpus / "tokenizer.json"))
    documents = list(heldout_documents(corpus, tokenizer))
    trained = numpy.load(corpus / "train.npy").tobytes()
    chosen = {}
    for category in PROMPT_CATEGORIES:
        of_category = [document for document in documents if document.category == category]
        prompts = choose_prompts(
            of_category, category, per_category, tokenizer, trained, Random(f"prompts {category} {seed}")
        )
        if len(prompts) < per_category:
            raise SpeclaError(
                f"{corpus}: the held-out {category} gives {len(prompts)} prompts of {FEWEST_TOKENS} "
                f"to {MOST_TOKENS} tokens, "
                f"{per_category} are wanted: hold out a larger share, or ask for fewer"
            )
        chosen[category] = prompts
    try:
        out.mkdir(parents=True, exist_ok=True)
        for category, prompts in chosen.items():
            lines = "".join(json.dumps(asdict(prompt), ensure_ascii=False) + "\n" for prompt in prompts)
            partial = out / f".{category}.jsonl.partial"
            partial.write_text(lines, encoding="utf-8")
            os.replace(partial, out / f"{category}.jsonl")
    except OSError as error:
        raise SpeclaError(f"{out}: cannot write prompts ({error}): give a folder that you may write to") from error
    return {category: len(prompts) for category, prompts in chosen.items()}


def choose_prompts(
    documents: list[Document], category: str, count: int, tokenizer: Tokenizer, trained: bytes, random: Random
) -> list[Prompt]:
    """Up to `count` prompts, taken in turn from all documents so that no document gives many.

    Args:
        documents: held-out documents of one category.
        category: names the prompts.
        count: prompts wanted.
        tokenizer: counts tokens.
        trained: the training ids (uint16) as bytes; a prompt whose end is found there is left out.
        random: makes the choices.
    """
    order = list(documents)
    random.shuffle(order)
    chosen: list[Prompt] = []
    taken: dict[str, list[str]] = {}
    progressing = True
    while progressing and len(chosen) < count:
        progressing = False
        for document in order:
            if len(chosen) == count:
                break
            before = taken.setdefault(document.name, [])
            text = _one_prompt(document, before, tokenizer, trained, random)
            if text is None:
                continue
            progressing = True
            before.append(text)
            source = f"{document.source}: {document.name}"
            chosen.append(Prompt(f"{category}-{len(chosen):03d}", category, text, source))
    return chosen


def _one_prompt(
    document: Document, before: list[str], tokenizer: Tokenizer, trained: bytes, random: Random
) -> str | None:
    """A prompt of the document that overlaps none of those taken before; None if none was found in some tries."""
    cut = {"code": _code_cut, "arithmetic": _arithmetic_cut, "repeats": _repeat_cut}.get(document.category, _text_cut)
    for _ in range(_TRIES_PER_DOCUMENT):
        text = cut(document, random)
        if text is None or any(_overlap(text, other) for other in before):
            continue
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if FEWEST_TOKENS <= len(ids) <= MOST_TOKENS and not _occurs(ids, trained):
            return text
    return None


def _overlap(text: str, other: str) -> bool:
    lines = [line for line in text.split("\n") if len(line) > 30]
    return any(line in other for line in lines) or text in other or other in text


def _occurs(ids: list[int], trained: bytes) -> bool:
    """Whether the prompt's last tokens (but for the last two, which a cut may change) occur in the training ids."""
    pattern = numpy.array(ids[-_CHECKED_TOKENS - 2 : -2], dtype=numpy.uint16).tobytes()
    found = trained.find(pattern)
    # An odd place joins halves of two ids.
    while found >= 0 and found % 2:
        found = trained.find(pattern, found + 1)
    return found >= 0


def _text_cut(document: Document, random: Random) -> str | None:
    """From the start of a paragraph to the end of a sentence or line."""
    text = document.text
    starts = [0, *(found.end() for found in re.finditer(r"\n\n+", text))]
    start = random.choice(starts)
    wanted = start + random.randint(170, 800)
    ends = [found.end() for found in _SENTENCE_OR_LINE_END.finditer(text, start + 120, len(text) - _REST_CHARACTERS)]
    if not ends:
        return None
    prompt = text[start : min(ends, key=lambda end: abs(end - wanted))]
    letters = sum(map(str.isalpha, prompt))
    return prompt if letters > 0.65 * len(prompt) and prompt == prompt.strip() else None


def _code_cut(document: Document, random: Random) -> str | None:
    """From an empty line's end to a `def` line with its docstring, or to a line's end inside the function."""
    text = document.text
    definitions = [found for found in _DEFINITION.finditer(text) if found.end() < len(text) - _REST_CHARACTERS]
    if not definitions:
        return None
    definition = random.choice(definitions)
    indent = len(definition.group(1))
    end = definition.end()
    docstring = _DOCSTRING.match(text, end)
    if docstring:
        end = docstring.end()
    for _ in range(random.choice((0, 2, 3, 5)) if docstring else random.choice((1, 2, 3, 5))):
        line = text[end : text.find("\n", end) + 1]
        if not line.strip() or len(line) - len(line.lstrip()) <= indent:
            break
        end += len(line)
    # The line after the cut still belongs to the function: the continuation is code of the same block.
    following = text[end : text.find("\n", end) + 1]
    if not following.strip() or len(following) - len(following.lstrip()) <= indent:
        return None
    starts = [found.end() for found in re.finditer(r"\n\n+", text[: definition.end()])]
    wanted = end - random.randint(200, 850)
    if not starts:
        return None
    prompt = textwrap.dedent(text[min(starts, key=lambda start: abs(start - wanted)) : end]).rstrip()
    return prompt if prompt and not prompt[0].isspace() else None


def _arithmetic_cut(document: Document, random: Random) -> str | None:
    """Up to and with one of the words 'Answer:'; worked problems may stand before."""
    return document.text[: random.choice(list(re.finditer(r"^Answer:", document.text, re.MULTILINE))).end()]


def _repeat_cut(document: Document, random: Random) -> str | None:
    """Up to a line's end (or a word's) inside the second telling, of which at least half is left to tell."""
    if document.again is None or document.again[1] - document.again[0] < _REPEATED_CHARACTERS:
        return None
    start, end = document.again
    low, high = start + (end - start) // 5, start + (end - start) // 2
    ends = _inner_ends(document.text, r"(?<=\S)\n", low, high) or _inner_ends(document.text, r"(?<=\S) ", low, high)
    return document.text[: random.choice(ends)] if ends else None


def _inner_ends(text: str, pattern: str, low: int, high: int) -> list[int]:
    return [found.start() for found in re.compile(pattern).finditer(text, low, high)]


def iterate_prompts(folder: Path) -> Iterator[Prompt]:
    """The prompts of a folder, category by category.

    Raises:
        SpeclaError: a file is missing or a line is no prompt; the line number is named.
    """
    for category in PROMPT_CATEGORIES:
        path = folder / f"{category}.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SpeclaError(f"{path}: cannot read prompts ({error})") from error
        for number, line in enumerate(lines, start=1):
            try:
                yield Prompt(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise SpeclaError(f"{path}:{number}: no prompt ({error})") from error
