"""What is fuzzed: everything that reads what people bring. A target takes bytes and may raise SpeclaError alone.

Each target is one plain function, which atheris drives for minutes (`make fuzz`) and hypothesis for a second
(`test_fuzz.py`). What a reader takes for right must hold together as well, so targets look at what they get.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from specla.errors import SpeclaError

Target = Callable[[bytes], None]
LONGEST_MESSAGE = 1000
SEPARATOR = b"\x00\x00\x00\x00"
"""Between the files of a folder: no JSON has it, and fuzzers find it by themselves."""
PROMPT_ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet", ".jsonl.gz", ".ndjson", ".JSONL", "")


def overrides(data: bytes) -> None:
    """Words of a command line, one a line, as a plan."""
    from specla.bench.plan import plan

    words = data.replace(b"\x00", b"").decode("utf-8", "surrogateescape").split("\n")
    found = plan("bench e2e", [word for word in words if word])
    assert found.cells
    for cell in found.cells:
        assert len({other.config_hash for other in found.cells}) == len(found.cells), cell.overrides


def topology(data: bytes) -> None:
    """Parents of a tree: a signed byte each, or a JSON list of anything."""
    from specla.topology import MAX_NODES, explicit

    try:
        parents = json.loads(data)
    except (ValueError, RecursionError):
        parents = [byte - 256 if byte > 127 else byte for byte in data]
    tree = explicit(parents if isinstance(parents, list) else [parents])
    assert 1 <= tree.nodes <= MAX_NODES
    assert sorted(node for chain in tree.plan.chains for node in chain) == list(range(tree.nodes))
    assert (tree.ancestors.sum(1) == tree.depths).all() and len(tree.leaves) == len(tree.leaf_paths)
    assert tree.taps(4).max() < tree.nodes


def records(data: bytes) -> None:
    """A records.jsonl: what is read can be written and read again."""
    from specla.bench.record import from_json, to_json
    from specla.bench.store import read_records

    with _file("records.jsonl", data) as path:
        found = read_records(path)
    assert found.sound_bytes <= len(data)
    for record in found.records:
        assert to_json(from_json(to_json(record), "again")) == to_json(record)


def checkpoint(data: bytes) -> None:
    """A checkpoint's folder: config.json, then the weights, then the tokenizer."""
    import torch

    from specla.models.checkpoint import load_model
    from specla.models.tokenizer import TextTokenizer

    parts = data.split(SEPARATOR, 2)
    names = ("config.json", "model.safetensors", "tokenizer.json")
    with _folder(dict(zip(names, parts, strict=False))) as folder:
        model = load_model(folder, torch.float32)
        if len(parts) == len(names):
            tokens = TextTokenizer(folder, model.config).encode("a text")
            assert all(0 <= token < model.config.vocab_size for token in tokens)


def checkpoint_index(data: bytes) -> None:
    """The index of a checkpoint's shards: no file outside of the folder is named."""
    from specla.models.shards import weight_files

    with _folder({"model.safetensors.index.json": data, "model.safetensors": b""}) as folder:
        for file in weight_files(folder):
            assert folder.resolve() in file.resolve().parents


def prompts(data: bytes) -> None:
    """A prompt file: the first byte chooses its kind."""
    from specla.bench.settings import WorkloadSettings
    from specla.bench.workloads import load_prompts

    ending = PROMPT_ENDINGS[data[0] % len(PROMPT_ENDINGS)] if data else ""
    with _file(f"prompts{ending}", data[1:]) as path:
        found = load_prompts(WorkloadSettings(name="dataset", path=str(path)))
    assert found and all(isinstance(prompt.text, str) and prompt.text.strip() for prompt in found)
    assert len({prompt.id for prompt in found}) == len(found)


TARGETS: dict[str, Target] = {
    target.__name__: target for target in (overrides, topology, records, checkpoint, checkpoint_index, prompts)
}


def hold(target: Target, data: bytes) -> None:
    """Run a target: a refusal is one bounded line. Anything else that comes out is a finding."""
    try:
        target(data)
    except SpeclaError as refusal:
        told = str(refusal)
        assert told.strip() and "\n" not in told and len(told) < LONGEST_MESSAGE, told


@contextmanager
def _folder(files: dict[str, bytes]) -> Iterator[Path]:
    # In memory where the system has such a place: thousands of files are written a minute.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        for file, content in files.items():
            (Path(name) / file).write_bytes(content)
        yield Path(name)


@contextmanager
def _file(name: str, data: bytes) -> Iterator[Path]:
    with _folder({name: data}) as folder:
        yield folder / name
