"""Where a checkpoint lies on this machine, and the configuration in it. No torch."""

from dataclasses import replace
from pathlib import Path

from specla.errors import SpeclaError, first_line
from specla.models.config import GatedDeltaNetConfig, eos_ids
from specla.models.json_file import read_object

ASSETS = Path(__file__).resolve().parent.parent / "assets"


def local_folder(path: str, dial: str = "model.path") -> Path | None:
    """The folder of a checkpoint; None where the path names a hub repository.

    Args:
        path: a folder, `asset:NAME` for a bundled model, or the name of a hub repository (`owner/name`).
        dial: what the path was given for, for messages.

    Raises:
        SpeclaError: nothing is there.
    """
    if path.startswith("asset:"):
        folder = ASSETS / path.removeprefix("asset:")
        if not folder.is_dir():
            names = ", ".join(sorted(p.name for p in ASSETS.iterdir() if (p / "config.json").exists()))
            raise SpeclaError(f"{dial}={path}: no such bundled model; there are: {names}")
        return folder
    try:
        folder = Path(path).expanduser()
        if folder.is_dir():
            return folder
        is_file = folder.exists()
    except (OSError, RuntimeError) as problem:  # a name that is too long, a folder that is closed, nobody's home
        raise SpeclaError(f"{dial}={path[:200]}: cannot be looked at ({first_line(problem)[:100]})") from None
    if is_file:
        raise SpeclaError(f"{dial}={path}: is a file; name the folder that holds config.json")
    if not on_hub(path):
        raise SpeclaError(f"{dial}={path}: no such folder")
    return None


def on_hub(path: str) -> bool:
    """Whether a path names a hub repository, which `resolve_folder` would ask for."""
    named = path.count("/") == 1 and not path.startswith((".", "/", "~", "asset:"))
    return named and not Path(path).exists()


def read_config(folder: Path) -> GatedDeltaNetConfig:
    """The configuration in `folder/config.json`; what ends a text may be said in generation_config.json, which wins.

    Raises:
        SpeclaError: one of them is damaged, or asks for what specla does not run.
    """
    file, generation = folder / "config.json", folder / "generation_config.json"
    try:
        config = GatedDeltaNetConfig.from_hf(read_object(file), str(file))
    except FileNotFoundError:
        raise SpeclaError(f"{folder}: no config.json; name the folder of a gated delta net checkpoint") from None
    try:
        said = read_object(generation)
        return replace(config, eos_token_id=eos_ids(said["eos_token_id"])) if "eos_token_id" in said else config
    except FileNotFoundError:
        return config
    except SpeclaError as wrong:
        told = str(wrong).removeprefix(f"{generation}: ").removeprefix("model.")
        raise SpeclaError(f"{generation}: {told}") from None
