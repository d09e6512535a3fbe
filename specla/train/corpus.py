"""From folders of text to token ids: documents, held-out split, tokenizer, and a manifest that says what is inside.

A finished corpus is a folder of

- `tokenizer.json`: the byte-level BPE (`<|endoftext|>` is id 0 and closes every document),
- `train.npy`: uint16 [tokens], documents of all sources shuffled,
- `heldout.npy`: uint16 [tokens], documents that never train,
- `heldout.json`: bytes and tokens per category, and where each held-out document lies in `heldout.npy`,
- `corpus.json`: sources with licences, hashes and counts; options; what was skipped and why.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy
from tokenizers import Tokenizer

from specla.errors import SpeclaError, is_full, naming
from specla.models.json_file import read_object
from specla.train.assemble import Assembled, Split, assemble
from specla.train.corpus_options import CorpusOptions, Progress
from specla.train.sources import Document, TextSource, source_digest

__all__ = ["Corpus", "CorpusOptions", "Progress", "TextSource", "build_corpus", "heldout_documents", "read_manifest"]

# Raise it when the same options would now give another corpus.
CORPUS_FORMAT = 1


@dataclass(frozen=True)
class Corpus:
    """A finished corpus; `built` is False where it was there already and nothing was done."""

    folder: Path
    manifest: dict[str, Any]
    built: bool


def build_corpus(options: CorpusOptions, progress: Progress | None = None) -> Corpus:
    """Read the sources and write the corpus, unless `options.out` already holds the one of these options.

    Args:
        options: validated here.
        progress: told how far each stage is; None for silence.

    Raises:
        SpeclaError: an option, a source or the output folder cannot be used; one line that says which and what to do.
    """
    options.validate()
    wanted = _wanted(options)
    present = _finished(options.out, wanted)
    if present is not None:
        return Corpus(options.out, present, built=False)
    # Made before the work, so that a folder that cannot be written is told at once.
    partial = _new_partial(options.out)
    try:
        assembled = assemble(options, progress or (lambda stage, done, total: None))
        manifest = _manifest(wanted, assembled)
        _write(partial, options.out, assembled, manifest)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Corpus(options.out, manifest, built=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished corpus.

    Raises:
        SpeclaError: there is none, or it is not readable.
    """
    try:
        return read_object(folder / "corpus.json")
    except (OSError, SpeclaError) as error:
        raise SpeclaError(f"{folder}: no corpus there ({error}): build it first") from error


def heldout_documents(folder: Path, tokenizer: Tokenizer) -> Iterator[Document]:
    """The held-out documents of a corpus, decoded from its token ids."""
    ids = numpy.load(folder / "heldout.npy", mmap_mode="r")
    for entry in json.loads((folder / "heldout.json").read_text(encoding="utf-8"))["documents"]:
        # The last id is the end of the text.
        part = ids[entry["start"] : entry["start"] + entry["tokens"] - 1]
        again = tuple(entry["again"]) if entry["again"] else None
        yield Document(entry["source"], entry["category"], entry["name"], tokenizer.decode(part.tolist()), again)


def _wanted(options: CorpusOptions) -> dict[str, Any]:
    """The part of the manifest that decides whether a finished corpus is the one that is asked for."""
    plain = asdict(options)
    sources = []
    for source, shown in zip(options.sources, plain.pop("sources"), strict=True):
        shown["path"] = Path(source.path).name
        shown["exclude"] = list(source.exclude)
        sources.append({**shown, "sha256": source_digest(source)})
    del plain["out"]
    return {"format": CORPUS_FORMAT, "options": plain, "sources": sources}


def _finished(out: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of the corpus in `out` if it is the wanted one; None if the folder is new or empty."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not (out / "corpus.json").is_file():
        raise SpeclaError(f"corpus.out={out}: holds something that is no corpus: give a new or an empty folder")
    manifest = read_manifest(out)
    sources = [
        {key: source.get(key) for key in wanted["sources"][0]}
        for source in manifest.get("sources", [])
        if "sha256" in source
    ]
    same = all(manifest.get(key) == wanted[key] for key in ("format", "options"))
    if same and sources == wanted["sources"]:
        return manifest
    raise SpeclaError(f"corpus.out={out}: holds a corpus of other options or sources: give another folder or remove it")


def _new_partial(out: Path) -> Path:
    partial = out.parent / f".{out.name}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    except OSError as error:
        raise SpeclaError(f"corpus.out={out}: cannot write ({error}): give a folder that you may write to") from error
    return partial


def _specla_version() -> str:
    try:
        return version("specla")
    except PackageNotFoundError:
        return "not installed"


def _manifest(wanted: dict[str, Any], assembled: Assembled) -> dict[str, Any]:
    train, heldout = assembled.train.counts("source"), assembled.heldout.counts("source")
    nothing = {"documents": 0, "bytes": 0, "tokens": 0}
    described = {source["name"]: source for source in wanted["sources"]}
    for name in ("arithmetic", "repeats"):
        if name in train:
            described[name] = {"name": name, "category": name, "licence": "made by this program", "version": ""}
    sources = []
    for name, source in described.items():
        counts = {**train.get(name, nothing), "heldout": heldout.get(name, nothing)}
        sources.append({**source, **counts, "skipped": assembled.skipped.get(name, {})})
    return {
        **wanted,
        "sources": sources,
        "categories": assembled.train.counts("category"),
        "tokens": assembled.train.tokens,
        "heldout_tokens": assembled.heldout.tokens,
        "vocab_size": assembled.tokenizer.get_vocab_size(),
        "specla": _specla_version(),
    }


def _write(partial: Path, out: Path, assembled: Assembled, manifest: dict[str, Any]) -> None:
    """Write the files into the temporary folder and give it its name."""
    try:
        with naming(out):
            _write_files(partial, assembled, manifest)
            os.replace(partial, out)
    except OSError as error:
        if is_full(error):
            raise OSError(error.errno, error.strerror, str(out)) from None
        raise SpeclaError(f"corpus.out={out}: cannot write ({error}): give a folder with room to write") from error


def _write_files(partial: Path, assembled: Assembled, manifest: dict[str, Any]) -> None:
    assembled.tokenizer.save(str(partial / "tokenizer.json"))
    numpy.save(partial / "train.npy", numpy.concatenate(assembled.train.ids))
    numpy.save(partial / "heldout.npy", numpy.concatenate(assembled.heldout.ids))
    _write_json(partial / "heldout.json", _heldout_index(assembled.heldout))
    _write_json(partial / "corpus.json", manifest)


def _heldout_index(heldout: Split) -> dict[str, Any]:
    counts = heldout.counts("category")
    entries = []
    start = 0
    for document, ids in zip(heldout.documents, heldout.ids, strict=True):
        entry = {"source": document.source, "category": document.category, "name": document.name, "start": start}
        entries.append({**entry, "tokens": len(ids), "bytes": document.size_bytes, "again": document.again})
        start += len(ids)
    return {
        "bytes": {category: count["bytes"] for category, count in counts.items()},
        "tokens": {category: count["tokens"] for category, count in counts.items()},
        "documents": entries,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
