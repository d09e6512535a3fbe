"""What every training run needs: a learning-rate schedule, a log, and checkpoints that survive being killed."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from specla.errors import SpeclaError


@dataclass(frozen=True)
class Schedule:
    """Warm-up, stable, decay: linear up, flat, linear down to zero.

    Attributes:
        peak: learning rate of the flat part.
        steps: all optimizer steps.
        warmup_steps: steps of the way up.
        decay_share: the share of all steps that the way down takes, 0 to 1.
    """

    peak: float
    steps: int
    warmup_steps: int
    decay_share: float

    def at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        up = (step + 1) / max(1, self.warmup_steps)
        down = (self.steps - step) / max(1.0, self.decay_share * self.steps)
        return self.peak * min(1.0, up, down)


class TrainLog:
    """One JSON object a line, appended; after a resume, lines of steps that will run again are dropped."""

    def __init__(self, path: Path, resume_step: int) -> None:
        self.path = path
        kept = []
        if resume_step and path.exists():
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
            kept = [line for line in lines if line["step"] <= resume_step]
        path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def write(self, **fields: Any) -> None:
        """Append one line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint so that a kill at any moment leaves the old one or the new one, whole."""
    partial = path.with_suffix(".partial")
    torch.save(content, partial)
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def load_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The checkpoint at `path`, or None where there is none.

    Args:
        identity: what must agree for a resume to make sense (model, data, seed, schedule).

    Raises:
        SpeclaError: the file is damaged, or belongs to another run.
    """
    if not path.exists():
        return None
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as damage:  # torch raises half a dozen types here, one for each way a file can be broken
        raise SpeclaError(
            f"{path}: the checkpoint cannot be read ({type(damage).__name__}); delete it to start again"
        ) from None
    differs = [key for key, value in identity.items() if content["identity"].get(key) != value]
    if differs:
        raise SpeclaError(
            f"{path}: was written with another {', '.join(differs)}; use the same settings, or another out= folder"
        )
    return content


def adamw(model: nn.Module, weight_decay: float, betas: tuple[float, float] = (0.9, 0.95)) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only; fused on a GPU. The learning rate is set each step."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, fused=parameters[0].is_cuda)
