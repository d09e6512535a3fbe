"""What a training run leaves to go on from: checkpoints that survive being killed, and a log."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specla.errors import SpeclaError, first_line, naming
from specla.models.json_file import parse_object
from specla.models.weights import is_finite


class TrainLog:
    """One JSON object a line, appended; after a resume, lines of steps that will run again are dropped.

    Raises:
        SpeclaError: a line of the log is damaged; the last one may be cut short, as a kill leaves it.
    """

    def __init__(self, path: Path, resume_step: int) -> None:
        self.path = path
        kept = []
        if resume_step and path.exists():
            *lines, _ = path.read_bytes().split(b"\n")
            kept = [line for i, line in enumerate(lines, 1) if self._step(line, i) <= resume_step]
        partial = path.with_suffix(".partial")
        with naming(path):
            partial.write_bytes(b"".join(line + b"\n" for line in kept))
        os.replace(partial, path)

    def _step(self, line: bytes, number: int) -> int:
        where = f"{self.path}:{number}"
        try:
            step = parse_object(line, where).get("step")
        except SpeclaError as damage:
            raise SpeclaError(f"{damage}; delete this line, or the log, and go on") from None
        if not isinstance(step, int):
            raise SpeclaError(f"{where}: names no step; delete this line, or the log, and go on")
        return step

    def write(self, **fields: Any) -> None:
        """Append one line."""
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint so that a kill at any moment leaves the old one or the new one, whole.

    A disk that is full is an OSError that names the checkpoint; the old one stays.
    """
    partial = path.with_suffix(".partial")
    try:
        # By a file of Python's, whose errors say what became of the disk.
        with naming(path), partial.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def load_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The checkpoint at `path`, or None where there is none.

    Args:
        path: written by `save_checkpoint`.
        identity: what must agree for a resume to make sense (model, data, seed, schedule).

    Raises:
        SpeclaError: the file is damaged, or belongs to another run.
    """
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as damage:  # torch raises half a dozen types here, one for each way a file can be broken
        raise damaged(path, f"cannot be read, {type(damage).__name__}") from None
    found = content.get("identity") if isinstance(content, dict) else None
    if not isinstance(found, dict):
        raise damaged(path, "does not say which run it is of")
    differs = [key for key, value in identity.items() if not _same(found.get(key), value)]
    if differs:
        raise SpeclaError(
            f"{path}: was written with another {', '.join(differs)}; use the same settings, or another out= folder"
        )
    return {str(key): value for key, value in content.items()}


def damaged(path: Path, how: str) -> SpeclaError:
    """What to say of a checkpoint that no run can have written."""
    return SpeclaError(f"{path}: the checkpoint is damaged ({how}); delete it to start again")


def _same(found: Any, wanted: Any) -> bool:
    try:
        return type(found) is type(wanted) and bool(found == wanted)
    except RuntimeError:  # a tensor among them has no truth
        return False


def restore(path: Path, content: dict[str, Any], net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> int:
    """Put a checkpoint's weights and optimizer state in place.

    Args:
        path: of the checkpoint, for messages.
        content: of the checkpoint.
        net: to be filled.
        optimizer: of the net, to be filled.
        steps: of the whole run.

    Returns:
        the step that the checkpoint is of.

    Raises:
        SpeclaError: something is missing, of another shape, not finite, or beyond the last step.
    """
    step = content.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= steps:
        raise damaged(path, f"at step {step if isinstance(step, int) else '?'} of {steps}")
    _require_like(path, content.get("model"), net.state_dict())
    net.load_state_dict(content["model"])
    saved = content.get("optimizer")
    state = saved.get("state") if isinstance(saved, dict) else None
    numbered = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not isinstance(state, dict) or set(state) != (set(range(len(numbered))) if step else set()):
        raise damaged(path, "its optimizer's state is not of this model")
    for i, parameter in enumerate(numbered[: len(state)]):
        like = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
        _require_like(path, state[i], like, f"optimizer.{i}.")
    try:
        # The groups are this run's own: the identity says that they agree.
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise damaged(path, first_line(error)[:200]) from None
    return step


def _require_like(path: Path, found: Any, wanted: dict[str, Tensor], prefix: str = "") -> None:
    """Raise SpeclaError unless these are finite tensors of the same names and shapes."""
    if not isinstance(found, dict):
        raise damaged(path, "it holds no weights")
    for name in {**wanted, **found}:
        tensor, like = found.get(name), wanted.get(name)
        if not isinstance(tensor, Tensor) or like is None:
            raise damaged(path, f"{prefix}{name} is {'missing' if tensor is None else 'not of this model'}")
        if tensor.shape != like.shape:
            raise damaged(path, f"{prefix}{name} has shape {tuple(tensor.shape)}, not {tuple(like.shape)}")
        if not tensor.is_floating_point() or not is_finite(tensor):
            raise damaged(path, f"{prefix}{name} holds something else than finite numbers")
