"""Trained drafters, looked at before anything is measured: whether one is whole, and made for its target."""

import hashlib
from pathlib import Path

import torch

from specla.bench.cells import Cell, Plan, asked
from specla.bench.identity import ModelInfo, checkpoint_info, seen_info
from specla.bench.inputs import CELLS_FAIL, UNSEEN
from specla.bench.normalise import END_TO_END, KERNEL_COMMANDS
from specla.bench.settings import DrafterSettings, ModelSettings, model_config
from specla.errors import SpeclaError
from specla.models.checkpoint import resolve_folder, weights_digest
from specla.models.drafter_checkpoint import TrainedDrafter, drafter_digest, load_drafter
from specla.models.folder import on_hub, read_config


def model_folder(settings: ModelSettings) -> Path:
    """Where a model's checkpoint is. Raises SpeclaError where none was given, or nothing is there."""
    if settings.path is None:
        raise SpeclaError(f"model={settings.name}: give model.path=FOLDER, or model.weights=random to time its shape")
    return resolve_folder(settings.path)


def model_identity(settings: ModelSettings, seed: int) -> tuple[str, int]:
    """The digest of a model's weights and the size of its vocabulary, without loading it."""
    if settings.weights == "random":
        config = model_config(settings)
        return hashlib.sha256(f"random {seed} {config}".encode()).hexdigest(), config.vocab_size
    folder = model_folder(settings)
    # First, since it names a folder that is no checkpoint.
    size = read_config(folder).vocab_size
    return weights_digest(folder), size


def known_models(plan: Plan) -> dict[str, ModelInfo | None]:
    """By config_hash, which model a cell decodes, each checkpoint hashed once; of a single operation the shape alone.

    None where the checkpoint is missing or damaged: loading it says so, and such a cell decodes nothing.
    """

    def without_weights(cell: Cell) -> bool:
        return cell.command in KERNEL_COMMANDS or cell.settings.model.weights == "random"

    # Those of cells that do not apply anyway are not fetched for their names.
    read = {cell.settings.model for cell in plan.cells if cell.status == "pending" and not without_weights(cell)}
    found = {settings: _checkpoint(settings) for settings in read}
    return {
        cell.config_hash: seen_info(cell.settings.model, cell.settings.seed, cell.command)
        if without_weights(cell)
        else found.get(cell.settings.model)
        for cell in plan.cells
    }


def _checkpoint(settings: ModelSettings) -> ModelInfo | None:
    try:
        folder = model_folder(settings)
        return checkpoint_info(folder, weights_digest(folder))
    except (SpeclaError, OSError):
        return None


def read_drafter(
    drafter: DrafterSettings, identity: tuple[str, int], dtype: torch.dtype, device: torch.device | str
) -> TrainedDrafter:
    """The trained drafter that settings name.

    Args:
        drafter: with its path.
        identity: of its target, see `model_identity`.
        dtype: of its weights.
        device: that they go to.

    Raises:
        SpeclaError: there is none, it is damaged, or it was trained for another target.
    """
    assert drafter.path is not None
    folder, (digest, size) = resolve_folder(drafter.path, "drafter.path"), identity
    if drafter.vocabulary is not None and drafter.vocabulary > size:
        raise SpeclaError(f"drafter.vocabulary={drafter.vocabulary}: the target has {size} tokens; give at most that")
    return load_drafter(folder, digest, size, dtype, device)


def check_drafters(plan: Plan) -> list[str]:
    """Look at every trained drafter of a plan as its run would, measuring nothing and fetching nothing.

    Returns:
        What was not looked at, a line each: what a run would ask the hub for.

    Raises:
        SpeclaError: what the run would say of a drafter, or of the target it is for. Where other cells have good ones
            it is a note.
    """
    cells = [cell for cell in plan.cells if cell.status == "pending" and cell.command == END_TO_END]
    pairs = dict.fromkeys(
        (cell.settings.drafter, cell.settings.model, cell.settings.seed)
        for cell in cells
        if cell.settings.drafter.name == "aligned"
    )
    identities: dict[tuple[ModelSettings, int], tuple[str, int]] = {}
    notes, bad = list[str](), list[SpeclaError]()
    for pair in pairs:
        try:
            notes += _drafter_notes(*pair, identities)
        except SpeclaError as error:
            bad.append(error)
    # Cells without a drafter, but for AR that comes along, are left to be measured.
    others = any(cell.settings.drafter.name != "aligned" for cell in asked(cells))
    if bad and len(bad) == len(pairs) and not others:
        raise bad[0]
    return list(dict.fromkeys([*notes, *(f"{error}: {CELLS_FAIL}" for error in bad)]))


def _drafter_notes(
    drafter: DrafterSettings,
    model: ModelSettings,
    seed: int,
    identities: dict[tuple[ModelSettings, int], tuple[str, int]],
) -> list[str]:
    """What is not looked at of a drafter and its target, which `identities` remembers. Raises as `check_drafters`."""
    assert drafter.path is not None
    checkpoint = model.path if model.weights == "checkpoint" else None
    remote = [
        f"{dial}={path}"
        for dial, path in (("drafter.path", drafter.path), ("model.path", checkpoint))
        if path is not None and on_hub(path)
    ]
    if not on_hub(drafter.path):
        # Before the target's weights are hashed.
        drafter_digest(resolve_folder(drafter.path, "drafter.path"))
    if remote:
        return [f"{word}: {UNSEEN}" for word in remote]
    if (model, seed) not in identities:
        identities[model, seed] = model_identity(model, seed)
    read_drafter(drafter, identities[model, seed], torch.float32, "cpu")
    return []
