"""Documents out of folders and files of text: what is read, what is dropped, and why."""

import fnmatch
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from specla.errors import SpeclaError
from specla.train.html_text import page_text

Category = Literal["prose", "documentation", "code", "arithmetic", "repeats"]
TEXT_CATEGORIES = ("prose", "documentation", "code")

_PAGE_SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
_CODE_SUFFIXES = _PAGE_SUFFIXES | {
    *(".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".go", ".java", ".js", ".ts", ".sh", ".sql")
}
_TEXT_SUFFIXES = _PAGE_SUFFIXES | {".txt", ".rst", ".md"}
# Documentation builders keep these beside their pages: the same text again, or no text at all.
_COPIED_FOLDERS = frozenset({"_sources", "_static", "_images", "_downloads", "__pycache__"})
_INDEX_PAGES = ("genindex*", "*modindex*", "bookindex*", "search.html", "contents.html", "changelog*", "download.html")
_SHORTEST_BYTES = 200
# Prose comes in a few long files: shorter pieces let the held-out share fall on more of them.
_PIECE_CHARACTERS = {"prose": 8_192, "documentation": 16_384, "code": 16_384}
_DATA_LINE = re.compile(r"""^\s*(?:[rbu]?["']|0x|[-+]?\d|\[|\(\s*["'\d])""")


@dataclass(frozen=True)
class TextSource:
    """One body of text: where it lies, under which terms, and what kind of text it is."""

    name: str
    """Name in the manifest; unique within a corpus."""
    path: Path
    """A folder (read with everything under it) or a single file."""
    licence: str
    """Licence or terms, as in 'PSF-2.0'."""
    category: Category
    """prose, documentation or code."""
    version: str
    """Version of the package or of the files."""
    exclude: tuple[str, ...] = ()
    """Shell patterns over the path relative to `path`; what matches is left out."""


@dataclass(frozen=True)
class Document:
    """One text that trains or is held out as a whole. `again` spans the second telling (characters), for repeats."""

    source: str
    category: Category
    name: str
    text: str
    again: tuple[int, int] | None = None

    @property
    def digest(self) -> bytes:
        """SHA-256 of the text, 32 bytes."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).digest()

    @property
    def size_bytes(self) -> int:
        """Length of the text in UTF-8, in bytes."""
        return len(self.text.encode("utf-8", "surrogatepass"))


@dataclass
class SourceText:
    """What one source gave: its documents, and how much was skipped for which reason."""

    source: TextSource
    documents: list[Document] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def source_files(source: TextSource) -> list[Path]:
    """Files of text in a source, sorted by path.

    Raises:
        SpeclaError: the path is missing or holds no file of a known kind of text.
    """
    path = Path(source.path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise SpeclaError(f"source {source.name!r}: {path} is not there: give an existing folder or file")
    suffixes = _CODE_SUFFIXES if source.category == "code" else _TEXT_SUFFIXES
    found: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(set(folders) - _COPIED_FOLDERS)
        found += [Path(folder, name) for name in names if Path(name).suffix.lower() in suffixes]
    kept = [
        file
        for file in sorted(found)
        if file.is_file()  # a link that leads nowhere is no file
        and not any(fnmatch.fnmatch(file.relative_to(path).as_posix(), pattern) for pattern in source.exclude)
    ]
    if not kept:
        kinds = " ".join(sorted(suffixes))
        raise SpeclaError(f"source {source.name!r}: no text in {path}: {source.category} is read from files {kinds}")
    return kept


def source_digest(source: TextSource) -> str:
    """SHA-256 (hex) over names and contents of a source's files, so that a changed file makes a new corpus."""
    digest = hashlib.sha256()
    root = Path(source.path)
    for file in source_files(source):
        digest.update(str(file.relative_to(root) if root.is_dir() else file.name).encode() + b"\0")
        digest.update(hashlib.sha256(_read_bytes(source, file)).digest())
    return digest.hexdigest()


def _read_bytes(source: TextSource, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SpeclaError(f"source {source.name!r}: cannot read {file} ({error}): check its permissions") from error


def read_source(source: TextSource) -> SourceText:
    """Documents of one source, in the order of their paths; long files come in pieces of 8 or 16 thousand characters.

    Raises:
        SpeclaError: the path is missing, or nothing in it is text that can be used (the line counts the reasons).
    """
    result = SourceText(source)
    for file in source_files(source):
        name = file.relative_to(source.path).as_posix() if Path(source.path).is_dir() else file.name
        text, reason = _file_text(source, file)
        if reason:
            result.skipped[reason] += 1
            continue
        pieces = list(cut_pieces(text, _PIECE_CHARACTERS[source.category]))
        for i, piece in enumerate(pieces):
            label = name if len(pieces) == 1 else f"{name}#{i + 1}"
            reason = why_dropped(piece, source.category)
            if reason:
                result.skipped[reason] += 1
            else:
                result.documents.append(Document(source.name, source.category, label, piece))
    if not result.documents:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(result.skipped.items()))
        raise SpeclaError(f"source {source.name!r}: no usable text in {source.path} ({reasons}): give UTF-8 text files")
    return result


def _file_text(source: TextSource, file: Path) -> tuple[str, str]:
    """The text of a file and an empty string, or an empty text and the reason why it is skipped."""
    if any(fnmatch.fnmatch(file.name.lower(), pattern) for pattern in _INDEX_PAGES):
        return "", "index page"
    try:
        text = _read_bytes(source, file).decode("utf-8-sig")
    except UnicodeDecodeError:
        return "", "not UTF-8"
    if "\0" in text:
        return "", "not UTF-8"
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if file.suffix.lower() in _PAGE_SUFFIXES:
        page = page_text(text, code_only=source.category == "code")
        if page.link_share > 0.5:
            return "", "index page"
        text = page.text
    # Runs of empty lines carry nothing; code keeps the two between its definitions.
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n{4,}", "\n\n\n", text).strip("\n")
    return (text + "\n", "") if text.strip() else ("", "empty")


def why_dropped(text: str, category: Category) -> str:
    """Why a text is not worth training on ('short', 'table', 'few letters', 'escaped bytes'), or an empty string."""
    if len(text.encode("utf-8", "surrogatepass")) < _SHORTEST_BYTES:
        return "short"
    visible = [character for character in text if not character.isspace()]
    if sum(map(str.isalpha, visible)) < 0.5 * len(visible):
        return "few letters"
    lines = [line for line in text.split("\n") if line.strip()]
    if (
        category == "code"
        and len(lines) > 20
        and sum(bool(_DATA_LINE.match(line)) for line in lines) > 0.5 * len(lines)
    ):
        return "table"
    if max(map(len, lines)) > 20_000:
        return "table"
    # Pickles and compressed bytes written as escapes; four characters each.
    if 4 * text.count("\\x") > 0.08 * len(text):
        return "escaped bytes"
    return ""


def cut_pieces(text: str, characters: int) -> Iterator[str]:
    """Pieces of at most about `characters`, cut before an unindented line that follows an empty one.

    A text that offers no such place within twice the length is cut at a line's end. The pieces joined give the text.
    """
    start = 0
    boundary = re.compile(r"\n\n+(?=\S)")
    while len(text) - start > 1.5 * characters:
        found = boundary.search(text, start + characters // 2)
        last = found
        while found and found.end() - start <= characters:
            last, found = found, boundary.search(text, found.end())
        end = last.end() if last and last.end() - start <= 2 * characters else text.find("\n", start + characters) + 1
        if end <= start:
            break
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]
