"""A checkpoint looked at as far as that goes without torch: for a dry run, and for what a run leaves unread."""

from collections.abc import Mapping
from pathlib import Path

from specla.models.config import DEFAULTS, GatedDeltaNetConfig
from specla.models.folder import read_config
from specla.models.json_file import read_object
from specla.models.shapes import HEAD, LAYER, ModelShapes, require_fit
from specla.models.shards import Stored, stored_tensors, unread_files

# Keys that decide the shapes of weights and that not every config.json has.
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_heads", "head_dim", "expand_v")


def look_at(folder: Path) -> None:
    """Hold the headers of a checkpoint's files against its config.json, as `load_model` does.

    Raises:
        SpeclaError: a file is missing or damaged, or the weights are not those that config.json asks for.
    """
    config, found = read_config(folder), stored_tensors(folder)
    for name in (*early_skips(config, found), *((HEAD,) if config.tie_word_embeddings else ())):
        found.pop(name, None)
    require_fit(ModelShapes(config), found, folder, left_out(folder))


def checkpoint_notes(folder: Path) -> list[str]:
    """What of a checkpoint that can be loaded is left unread, a line each."""
    config, found, notes = read_config(folder), stored_tensors(folder), []
    if unused := early_skips(config, found):
        notes.append(
            f"{folder}: attn.D of {len(unused)} layers is not read: early versions of flash-linear-attention stored it "
            "and never used it"
        )
    if unread := unread_files(folder):
        notes.append(f"{folder}: {', '.join(unread)[:200]} not read: no index names it")
    if "auto_map" in read_object(folder / "config.json"):
        notes.append(f"{folder}: the code that auto_map of config.json names is never run")
    return notes


def early_skips(config: GatedDeltaNetConfig, found: Mapping[str, Stored]) -> list[str]:
    """Names of attn.D, a number a head in every layer, which the first layers of flash-linear-attention held unused."""
    names = [name for name, stored in found.items() if name.endswith(".attn.D") and stored.shape == (config.num_heads,)]
    layers = {layer[1] for name in names if (layer := LAYER.fullmatch(name)) is not None and layer[2] == "attn.D"}
    whole = len(names) == len(layers) == config.num_hidden_layers
    return names if whole and all(int(layer) < config.num_hidden_layers for layer in layers) else []


def left_out(folder: Path) -> str:
    """What to say where weights do not fit: the sizes that config.json leaves out, and their defaults."""
    raw = read_object(folder / "config.json")
    taken = ", ".join(f"{name} ({DEFAULTS[name]} by default)" for name in _SIZES if name not in raw)
    return f"; it leaves out {taken}: add what differs" if taken else ""
