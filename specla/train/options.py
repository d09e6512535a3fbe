"""From the words of `specla train` to typed options: conf/train/*.yaml first, then what the user typed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from specla.bench.compose import composer
from specla.bench.confdir import conf_dir, own_conf_dir
from specla.bench.quoting import path_text
from specla.bench.settings import IS_PATH, ModelSettings, model_config, paths
from specla.bench.validate import LARGEST_SEED, nearest
from specla.errors import SpeclaError
from specla.models.checkpoint import resolve_folder
from specla.models.config import MOST, GatedDeltaNetConfig
from specla.models.folder import ASSETS
from specla.train.bpe import END_OF_TEXT_ID
from specla.train.corpus import CorpusOptions, TextSource
from specla.train.drafter_data import DrafterOptions
from specla.train.recipe import fetch_recipe, load_recipe
from specla.train.target import TargetOptions

_Schema = TypeVar("_Schema")


@dataclass
class SourceWords:
    """One entry of `sources`."""

    path: str
    name: str = ""
    licence: str = "unknown"
    category: str = "prose"
    version: str = ""
    exclude: list[str] = field(default_factory=list)


@dataclass
class CorpusWords:
    """The keys of conf/train/corpus.yaml."""

    recipe: str | None = field(default=None, metadata=IS_PATH)
    packages: str = field(default="", metadata=IS_PATH)
    sources: list[SourceWords] = field(default_factory=list)
    out: str = field(default="", metadata=IS_PATH)
    vocab_size: int = 0
    heldout_share: float = 0.0
    arithmetic_share: float = 0.0
    repeats_share: float = 0.0
    seed: int = 0


@dataclass
class TargetWords:
    """The keys of conf/train/target.yaml."""

    corpus: str = field(default="", metadata=IS_PATH)
    out: str = field(default="", metadata=IS_PATH)
    steps: int = 0
    batch_size: int = 0
    sequence_length: int = 0
    learning_rate: float = 0.0
    warmup_steps: int = 0
    decay_share: float = 0.0
    weight_decay: float = 0.0
    gradient_clip: float = 0.0
    seed: int = 0
    device: str = "auto"
    compile: bool | None = None
    save_every: int = 0
    minutes: float | None = None


@dataclass
class DrafterWords:
    """The keys of conf/train/drafter.yaml."""

    corpus: str = field(default="", metadata=IS_PATH)
    out: str = field(default="", metadata=IS_PATH)
    steps: int = 0
    start: str | None = field(default=None, metadata=IS_PATH)
    batch_size: int = 0
    sequence_length: int = 0
    depth: int = 0
    depth_decay: float = 0.0
    hidden_weight: float = 0.0
    own_texts: int = 0
    own_share: float = 0.0
    own_prompt: int = 0
    heldout_texts: int = 0
    draft_vocabulary: int | None = None
    learning_rate: float = 0.0
    warmup_steps: int = 0
    decay_share: float = 0.0
    weight_decay: float = 0.0
    gradient_clip: float = 0.0
    seed: int = 0
    device: str = "auto"
    compile: bool | None = None
    save_every: int = 0
    evaluate_every: int = 0
    minutes: float | None = None


def corpus_options(words: Sequence[str], config_dir: str | None = None) -> CorpusOptions:
    """The corpus that the words ask for; packages of its recipe are fetched.

    Raises:
        SpeclaError: an unknown key, a value of the wrong type, no source, or a package that cannot be had.
    """
    read = _read("corpus", CorpusWords, words, config_dir)
    shared = {
        name: getattr(read, name)
        for name in ("vocab_size", "heldout_share", "arithmetic_share", "repeats_share", "seed")
    }
    sources = [
        TextSource(s.name or Path(s.path).name, Path(s.path), s.licence, s.category, s.version, tuple(s.exclude))  # type: ignore[arg-type]
        for s in read.sources
    ]
    if not sources:
        if read.recipe is None:
            raise SpeclaError("sources=[]: give at least one folder or file of text, or recipe=FILE")
        sources = fetch_recipe(load_recipe(_recipe_file(read.recipe)), Path(read.packages))
    return CorpusOptions(sources=sources, out=Path(read.out), **shared)


def target_options(words: Sequence[str], config_dir: str | None = None) -> tuple[GatedDeltaNetConfig, TargetOptions]:
    """The model and the training that the words ask for; `model=...` and `model.KEY=...` are those of the benchmarks.

    Raises:
        SpeclaError: an unknown key, a value of the wrong type or out of range.
    """
    model_settings, rest = _split_model(words, config_dir)
    read = _read("target", TargetWords, rest, config_dir)
    shape = model_config(model_settings)
    config = replace(shape, bos_token_id=END_OF_TEXT_ID, eos_token_id=(END_OF_TEXT_ID,))
    _at_least_one(read, "steps", "batch_size", "sequence_length", "save_every")
    return config, TargetOptions(**_placed(read))


def drafter_options(words: Sequence[str], config_dir: str | None = None) -> tuple[ModelSettings, DrafterOptions]:
    """The target and the training that the words ask for; `model=...` and `model.KEY=...` are those of the benchmarks.

    Raises:
        SpeclaError: an unknown key, a value of the wrong type or out of range.
    """
    settings, rest = _split_model(words, config_dir)
    read = _read("drafter", DrafterWords, rest, config_dir)
    counts = ("steps", "batch_size", "sequence_length", "depth", "own_prompt", "heldout_texts")
    _at_least_one(read, *counts, "save_every", "evaluate_every")
    if not 0 <= read.own_share <= 1:
        raise SpeclaError(f"own_share={read.own_share}: give a share from 0 to 1")
    if read.own_texts < 0 or (read.own_texts == 0 and read.own_share > 0):
        raise SpeclaError(f"own_texts={read.own_texts}: give 1 or more, or own_share=0")
    if read.own_prompt + read.depth + 1 >= read.sequence_length:
        least = read.own_prompt + read.depth + 2
        raise SpeclaError(f"sequence_length={read.sequence_length}: own_prompt and depth need {least} or more")
    if read.draft_vocabulary is not None and read.draft_vocabulary < 1:
        raise SpeclaError(f"draft_vocabulary={read.draft_vocabulary}: give 1 or more, or null for all")
    start = None if read.start is None else resolve_folder(read.start, "start")
    return settings, DrafterOptions(**{**_placed(read), "start": start})


def _split_model(words: Sequence[str], config_dir: str | None) -> tuple[ModelSettings, list[str]]:
    """The model that `model=...` and `model.KEY=...` name, and the other words."""
    named = [word for word in words if word.split("=")[0].split(".")[0] == "model"]
    own = None if config_dir is None else own_conf_dir(config_dir)
    choices = tuple(word for word in named if word.startswith("model="))
    values = tuple(word for word in named if word not in choices)
    model = composer(conf_dir(), own).settings(choices, values).model
    return model, [word for word in words if word not in named]


def _at_least_one(read: TargetWords | DrafterWords, *names: str) -> None:
    for name in names:
        if getattr(read, name) < 1:
            raise SpeclaError(f"{name}={getattr(read, name)}: give 1 or more")


def _placed(read: TargetWords | DrafterWords) -> dict[str, Any]:
    """The words as options: paths, the device that `auto` stands for, and whether to compile."""
    device = ("cuda" if torch.cuda.is_available() else "cpu") if read.device == "auto" else read.device
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise SpeclaError(f"device={read.device}: give auto, cpu, or cuda where there is a GPU")
    compiled = device == "cuda" if read.compile is None else read.compile
    return {**vars(read), "corpus": Path(read.corpus), "out": Path(read.out), "device": device, "compile": compiled}


def _bounded(read: _Schema) -> _Schema:
    """What was read. Raises SpeclaError for a number that nothing can be counted up to."""
    for name, value in vars(read).items():
        most = LARGEST_SEED if name == "seed" else MOST
        if isinstance(value, int) and value > most:
            raise SpeclaError(f"{name}={value}: give at most {most}")
    return read


def _recipe_file(recipe: str) -> Path:
    if recipe.startswith("asset:"):
        return ASSETS / recipe.removeprefix("asset:") / "recipe.yaml"
    return Path(recipe)


def _read(name: str, schema: type[_Schema], words: Sequence[str], config_dir: str | None) -> _Schema:
    """The YAML of this name with the words on top, in the schema's types."""
    folders = [conf_dir()] if config_dir is None else [own_conf_dir(config_dir), conf_dir()]
    file = next(path for folder in folders if (path := folder / "train" / f"{name}.yaml").is_file())
    fields = schema.__dataclass_fields__  # type: ignore[attr-defined]
    keys, path_keys, typed = list(fields), paths(fields), dict[str, str | None]()
    for word in words:
        key, equals, _ = word.partition("=")
        if not equals:
            raise SpeclaError(f"{word}: give KEY=VALUE")
        if key.split(".")[0].split("[")[0] not in keys:
            raise SpeclaError(f"no key {key!r}{nearest(key, keys)}")
        if key in path_keys:
            typed[key] = path_text(key, word.partition("=")[2])
    others = [word for word in words if word.partition("=")[0] not in path_keys]
    try:
        merged: Any = OmegaConf.merge(
            OmegaConf.structured(schema), OmegaConf.load(file), OmegaConf.from_dotlist(others), typed
        )
        read: _Schema = OmegaConf.to_object(merged)  # type: ignore[assignment]
    except (OmegaConfBaseException, ValueError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        where = next((line.split(":")[1].strip() for line in lines if "full_key" in line), file.name)
        form = "; give it as in sources='[{path: FOLDER, name: docs, licence: MIT, category: prose}]'"
        raise SpeclaError(f"{where}: {lines[0]}{form * where.startswith('sources')}") from None
    return _bounded(read)
