"""Token files of a corpus: damaged ones are told in one line, and nothing is allocated for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specla.errors import SpeclaError
from specla.train.corpus_files import corpus_tokenizer, heldout_texts, training_tokens
from tests.train.corpora import VOCABULARY, write_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(SpeclaError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_corpus_is_read_as_it_was_written(corpus: Path) -> None:
    tokens = training_tokens(corpus, 32, VOCABULARY)
    assert tokens.dtype == torch.int32 and tokens.tolist() == np.load(corpus / "train.npy").tolist()
    texts = heldout_texts(corpus, VOCABULARY)
    assert [text.category for text in texts] == ["code", "prose"] * 3
    assert np.concatenate([text.tokens for text in texts]).tolist() == np.load(corpus / "heldout.npy").tolist()
    assert corpus_tokenizer(corpus, VOCABULARY) == corpus / "tokenizer.json"


def lying(path: Path) -> None:
    """A header that asks for 10^12 tokens."""
    header = b"{'descr': '<u2', 'fortran_order': False, 'shape': (1000000000000,), }"
    header += b" " * (118 - len(header) - 1) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0\0")


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda path: path.write_bytes(b""), "cannot be read"),
        (lambda path: path.write_bytes(b"half"), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "cannot be read"),
        (lying, "cannot be read"),
        (lambda path: np.save(path, np.array([{}] * 99), allow_pickle=True), "cannot be read"),
        (lambda path: np.save(path, np.ones((9, 9), dtype=np.uint16)), "is no list of tokens"),
        (lambda path: np.save(path, np.ones(99)), "is no list of tokens"),
        (lambda path: np.savez(path.open("wb"), a=np.ones(99)), "is no list of tokens"),
        (lambda path: np.save(path, np.full(99, -1)), "token -1 does not fit the model's vocabulary of 300"),
        (
            lambda path: np.save(path, np.full(99, 300)),
            "vocabulary of 300; a new target has it with model.vocab_size=301",
        ),
    ],
)
@pytest.mark.parametrize("name", ["train.npy", "heldout.npy"])
def test_damaged_tokens(name: str, write: Callable[[Path], Any], told: str, corpus: Path) -> None:
    write(corpus / name)
    read = training_tokens if name == "train.npy" else lambda folder, _, size: heldout_texts(folder, size)
    found = refusal(lambda: read(corpus, 32, VOCABULARY))
    assert found.startswith(f"{corpus / name}: ") and told in found


@pytest.mark.parametrize(
    "change",
    [
        {"category": None},
        {"start": -1},
        {"start": 1e3},
        {"tokens": 0},
        {"tokens": 10**9},
        {"bytes": 0},
        {"bytes": "many"},
    ],
)
def test_a_damaged_index_of_held_out_text(change: dict[str, Any], corpus: Path) -> None:
    file = corpus / "heldout.json"
    raw = json.loads(file.read_text())
    raw["documents"][1].update(change)
    file.write_text(json.dumps(raw))
    assert refusal(lambda: heldout_texts(corpus, VOCABULARY)) == (
        f"{file}: documents[1] is damaged or does not fit heldout.npy; make the corpus again"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [("{", "not valid JSON"), ("{}", "names no documents"), ('{"documents": [3]}', "documents[0] is damaged")],
)
def test_an_index_that_is_none(content: str, told: str, corpus: Path) -> None:
    (corpus / "heldout.json").write_text(content)
    assert told in refusal(lambda: heldout_texts(corpus, VOCABULARY))


def test_a_tokenizer_of_another_size(corpus: Path) -> None:
    assert "has the id 299, but the model's vocabulary has 299" in refusal(lambda: corpus_tokenizer(corpus, 299))
    (corpus / "tokenizer.json").unlink()
    assert "no tokenizer.json" in refusal(lambda: corpus_tokenizer(corpus, VOCABULARY))
