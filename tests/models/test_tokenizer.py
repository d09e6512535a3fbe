"""Tokenizers: a text's tokens are what the whole text gives, whatever a file says besides, on every way to one."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as LibraryTokenizer

import specla
from specla.errors import SpeclaError
from specla.models.checkpoint import resolve_folder
from specla.models.json_file import MOST_BYTES
from specla.models.tokenizer import TextTokenizer, read_tokenizer
from specla.train.bpe import load_tokenizer
from tests.models.cases import tiny_config

TEXT = "The quick brown fox jumps over the lazy dog. " * 4
VOCABULARY = 8192


def truncating(tokenizer: LibraryTokenizer) -> None:
    tokenizer.enable_truncation(8)


def padding(tokenizer: LibraryTokenizer) -> None:
    tokenizer.enable_padding(length=512, pad_id=0, pad_token="<|endoftext|>")


def dropping(tokenizer: LibraryTokenizer) -> None:
    tokenizer.model.dropout = 0.5


CHANGES = [truncating, padding, dropping]


@pytest.fixture
def plain() -> Path:
    return resolve_folder("asset:gdn-mini") / "tokenizer.json"


def changed(plain: Path, folder: Path, change: Callable[[LibraryTokenizer], None]) -> Path:
    tokenizer = LibraryTokenizer.from_file(str(plain))
    change(tokenizer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_training_stored_is_off(change: Callable[[LibraryTokenizer], None], plain: Path, tmp_path: Path) -> None:
    wanted = LibraryTokenizer.from_file(str(plain)).encode(TEXT).ids
    file = changed(plain, tmp_path, change)
    assert LibraryTokenizer.from_file(str(file)).encode(TEXT).ids != wanted
    config = tiny_config(vocab_size=VOCABULARY)
    assert read_tokenizer(file, VOCABULARY).encode(TEXT).ids == wanted
    assert TextTokenizer(tmp_path, config).encode(TEXT) == wanted
    corpus = load_tokenizer(str(file))
    assert corpus.encode(TEXT).ids == wanted
    assert next(one.ids for one in corpus.encode_batch_fast([TEXT, "a"])) == wanted


def test_there_is_one_way_to_a_tokenizers_file() -> None:
    """So that bench, generate, training and its evaluation cannot differ in what they switch off."""
    root, ways = Path(specla.__file__).parent, ("from_file", "from_str", "from_buffer", "AutoTokenizer")
    found = set()
    for file in root.rglob("*.py"):
        names = [node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)]
        found |= {file.relative_to(root).as_posix() for name in names if name in ways}
    assert found == {"models/tokenizer.py"}


def told(call: Callable[[], object]) -> str:
    with pytest.raises(SpeclaError) as caught:
        call()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    return str(caught.value)


def test_an_added_token_beyond_the_vocabulary_is_named(plain: Path, tmp_path: Path) -> None:
    size = LibraryTokenizer.from_file(str(plain)).get_vocab_size()
    file = changed(plain, tmp_path, lambda tokenizer: tokenizer.add_special_tokens(["<extra>"]))
    assert read_tokenizer(file, size + 1).token_to_id("<extra>") == size
    assert told(lambda: read_tokenizer(file, size)) == (
        f"{file}: token '<extra>' has the id {size}, but the model's vocabulary has {size}; wrong tokenizer"
    )


def test_ids_count_and_not_how_many_there_are(tmp_path: Path) -> None:
    """Three tokens, one of them with an id far up."""
    file = tmp_path / "tokenizer.json"
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 5000}, "unk_token": "a"}
    file.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    assert "token 'c' has the id 5000" in told(lambda: read_tokenizer(file, 97))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}'],
)
def test_damaged_files(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    assert told(lambda: read_tokenizer(file, 97)).startswith(f"{file}: cannot be read (")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    with file.open("wb") as content:
        content.truncate(MOST_BYTES + 1)
    assert "as no tokenizer is" in told(lambda: read_tokenizer(file, 97))


@pytest.mark.parametrize("text", ["zebra", "\ud800"])
def test_a_text_without_tokens_is_told(text: str, tmp_path: Path) -> None:
    """A vocabulary of words that has none for the unknown; half a character, as JSON may hold it."""
    model: dict[str, Any] = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    tokenizer = TextTokenizer(tmp_path, tiny_config())
    assert tokenizer.encode("a") == [0]
    assert "has no tokens for a text" in told(lambda: tokenizer.encode(text))
