"""Hydra, held at arm's length: one loader a configuration, composing by group options and applying values.

Composing costs tens of milliseconds and depends on the chosen options alone, so it is done once for each set of them;
the values a user types are applied to a copy, through the same typed schema.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException
from yaml import YAMLError

from specla.bench.quoting import helped, how_to_quote, printable
from specla.bench.settings import GROUPS, Schema, Settings, dials, paths
from specla.bench.validate import nearest
from specla.errors import SpeclaError, first_line

EXPERIMENT = "experiment"
_PATHS = paths(dials())
_TOO_DEEP = "brackets nested deeper than any dial's value"
_EXPECTED = {"tuple": "a list, as in [a,b],", "int": "a whole number", "float": "a number", "bool": "true or false"}


@dataclass(frozen=True)
class Composed:
    """One set of group options, composed."""

    config: DictConfig
    choices: dict[str, str]
    """The option of every group of GROUPS."""
    sweep: dict[str, str]
    """`hydra.sweeper.params`: what the chosen options sweep by themselves."""
    sections: dict[str, list[str]]


class Composer:
    """The configuration in `conf`, with a user's own folder before it. Raises SpeclaError for what does not compose."""

    def __init__(self, conf: Path, own: Path | None = None) -> None:
        _register_schema()
        version.setbase("1.3")
        search_path = create_config_search_path(f"file://{conf}")
        if own is not None:
            search_path.get_path().insert(0, type(search_path.get_path()[0])("own", f"file://{own}"))
        self._loader = ConfigLoaderImpl(config_search_path=search_path)
        self._parser = OverridesParser.create(config_loader=self._loader)
        self._composed: dict[tuple[str, ...], Composed] = {}
        self._values: dict[str, Any] = {}

    @cached_property
    def options(self) -> dict[str, list[str]]:
        """The options of every group, the experiments among them."""
        return {group: self._loader.get_group_options(group, ObjectType.CONFIG) for group in (*GROUPS, EXPERIMENT)}

    def parse(self, word: str) -> Override:
        """One word in Hydra's grammar; a path is helped into it, see `quoting`."""
        key, _, text = word.partition("=")
        override = helped(key, text, self._parsed) if key in _PATHS else self._parsed(word)
        if override is None:
            hint = how_to_quote(key, text) if _is_text(key) else "give one value, or several as in a,b"
            raise SpeclaError(f"{printable(word)}: not in Hydra's grammar; {hint}")
        return override

    def _parsed(self, word: str) -> Override | None:
        try:
            # The plural alone tells the parsed word about the loader, without which glob fails.
            return self._parser.parse_overrides([word])[0]
        except HydraException:
            return None
        except RecursionError:
            raise SpeclaError(f"{printable(word)}: {_TOO_DEEP}") from None
        except ValueError:
            raise SpeclaError(f"{printable(word)}: a number of more digits than Python reads") from None

    def compose(self, choices: tuple[str, ...]) -> Composed:
        """Compose by `group=option` words alone; Hydra itself has no word for `experiment=null`, the default."""
        choices = tuple(choice for choice in choices if choice != f"{EXPERIMENT}=null")
        if choices not in self._composed:
            self._composed[choices] = self._compose(choices)
        return self._composed[choices]

    def settings(self, choices: tuple[str, ...], values: tuple[str, ...] = ()) -> Settings:
        """The settings of these options with these `key=value` words applied, names and ranges unchecked."""
        config = self.compose(choices).config.copy()
        for word in values:
            key = word.partition("=")[0]
            if word not in self._values:
                self._values[word] = _typed(key, self.parse(word).value())
            try:
                OmegaConf.update(config, key, self._values[word], merge=True)
            except RecursionError:
                raise SpeclaError(f"{printable(word)}: {_TOO_DEEP}") from None
            except OmegaConfBaseException as error:
                raise SpeclaError(f"{printable(word)}: give {_expected(key)}") from error
        if _names_folder(values):
            # Whose preset has random weights, it lends its name alone.
            config.model.weights = "checkpoint"
        try:
            schema = OmegaConf.to_object(config)
        except RecursionError:
            raise SpeclaError(f"{printable(' '.join(values))}: {_TOO_DEEP}") from None
        except InterpolationResolutionError as error:
            raise SpeclaError(_unresolved(error, values)) from error
        except OmegaConfBaseException as error:
            raise SpeclaError(_told(error)) from error
        return Settings(**{name: getattr(schema, name) for name in Settings.__dataclass_fields__})

    def _compose(self, choices: tuple[str, ...]) -> Composed:
        try:
            config = self._loader.load_configuration("config", list(choices), RunMode.RUN, from_shell=False)
            runtime, sweep = config.hydra.runtime.choices, config.hydra.sweeper.params
            with open_dict(config):
                del config["hydra"]
                sections = OmegaConf.to_container(config.pop("sections"), resolve=True)
        except (HydraException, OmegaConfBaseException, YAMLError) as error:
            raise SpeclaError(f"{' '.join(choices) or 'config.yaml'}: {_told(error)}") from error
        assert isinstance(sections, dict)
        return Composed(
            config=config,
            choices={group: str(runtime[group]) for group in GROUPS},
            sweep={str(key): str(value) for key, value in (sweep or {}).items()},
            sections={str(name): [str(word) for word in words] for name, words in sections.items()},
        )


def _names_folder(values: tuple[str, ...]) -> bool:
    """Whether these words ask for a checkpoint's folder, and say nothing of where its weights are from."""
    named = {key: value for key, _, value in (word.partition("=") for word in values)}
    return named.get("model.path", "null") != "null" and "model.weights" not in named


@lru_cache(maxsize=8)
def composer(conf: Path, own: Path | None) -> Composer:
    """The one composer of these folders; what it has composed is kept for the life of the process."""
    return Composer(conf, own)


def _register_schema() -> None:
    schema = OmegaConf.structured(Schema)
    # A frozen dataclass makes a read-only node, but options are still to be merged into this one.
    OmegaConf.set_readonly(schema, None)
    for name in schema:
        if isinstance(schema[name], DictConfig):
            OmegaConf.set_readonly(schema[name], None)
    ConfigStore.instance().store(name="schema", node=schema)


def _typed(key: str, value: Any) -> Any:
    """A value as its dial takes it: where that is text, `true` is a text too, as it was typed."""
    if isinstance(value, list):
        return [_typed(key, inner) for inner in value]
    return str(value).lower() if isinstance(value, bool) and _is_text(key) else value


def _is_text(key: str) -> bool:
    return key in dials() and "str" in str(dials()[key].type)


def _expected(key: str) -> str:
    kind = str(dials()[key].type)
    words = [text for part, text in _EXPECTED.items() if part in kind]
    return (words[0] if words else "a word") + (" or null" if "None" in kind else "")


def _unresolved(error: OmegaConfBaseException, values: Sequence[str]) -> str:
    """One line on a `${...}` that stands for nothing: the word that it is in, or of a file the dial."""
    word = next((word for word in values if word.partition("=")[0] == error.full_key), error.full_key)
    # As it was typed, before Hydra's escapes.
    word = re.sub(r"\\(.)", r"\1", str(word))
    line = first_line(error)
    if line.startswith("Recursive interpolation"):
        return f"{printable(word)}: refers to itself"
    # The name of Python's error and the quotes around what it says.
    said = re.sub(r'^\w+ raised while resolving interpolation: "?(.*?)"?$', r"\1", line)
    return f"{printable(word)}: {said}"


def _told(error: Exception) -> str:
    """One line from an error of Hydra, OmegaConf or YAML, which tell in several, and often in the cause."""
    cause: BaseException | None = error
    while cause is not None and not str(cause).strip():
        cause = cause.__cause__
    text = str(cause or error)
    unknown = re.search(r"Key '[^']*' not in .*?full_key: (\S+)", text, re.DOTALL)
    if unknown:
        return f"no key '{unknown[1]}'{nearest(unknown[1], dials())}"
    return " ".join(line.strip() for line in text.splitlines() if line.strip())
