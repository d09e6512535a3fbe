"""What every training run is: optimizer steps with a schedule and a log, that can be stopped and gone on with."""

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from specla.errors import SpeclaError
from specla.interrupt import check, unbroken
from specla.train.saved import TrainLog, load_checkpoint, restore, save_checkpoint

Report = Callable[[dict[str, Any]], None]
Result = TypeVar("Result")


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


@dataclass(frozen=True)
class RunOptions:
    """How anything is trained.

    Attributes:
        corpus: folder written by `specla train corpus`.
        out: folder for the checkpoint, the log, and at the end what was trained.
        steps: optimizer steps.
        batch_size: sequences a step.
        sequence_length: tokens a sequence.
        learning_rate: peak.
        warmup_steps: steps to the peak.
        decay_share: share of the steps spent going down to zero.
        weight_decay: on matrices only.
        gradient_clip: norm that the gradient is cut to.
        seed: of weights and batches.
        device: 'cpu' or 'cuda'.
        compile: compile what takes the time; pays on a GPU.
        save_every: steps between checkpoints.
        minutes: stop after this long with a checkpoint, to be resumed; None: run to the end.
    """

    corpus: Path
    out: Path
    steps: int
    batch_size: int = 64
    sequence_length: int = 1024
    learning_rate: float = 2e-3
    warmup_steps: int = 100
    decay_share: float = 0.4
    weight_decay: float = 0.1
    gradient_clip: float = 1.0
    seed: int = 0
    device: str = "cpu"
    compile: bool = False
    save_every: int = 500
    minutes: float | None = None

    def deciding(self, *free: str) -> dict[str, Any]:
        """What a checkpoint must share with a run to be resumed: not how long it runs or where, nor `free`."""
        free = (*free, "out", "corpus", "device", "compile", "save_every", "minutes")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in free}


class Training(ABC, Generic[Result]):
    """One training run, from a fresh or a resumed start.

    An interrupt waits for the end of the step and leaves a checkpoint there.

    Args:
        net: what is trained.
        options: of the run.
        identity: what a checkpoint must share with this run.
    """

    def __init__(self, net: nn.Module, options: RunOptions, identity: dict[str, Any]) -> None:
        self._net, self.options, self._identity = net, options, identity
        self.optimizer = adamw(net, options.weight_decay)
        self.schedule = Schedule(options.learning_rate, options.steps, options.warmup_steps, options.decay_share)
        content = load_checkpoint(self.checkpoint_path, identity)
        self.step = 0 if content is None else restore(self.checkpoint_path, content, net, self.optimizer, options.steps)
        self.saved = self.step
        """The step that the checkpoint is of, 0 where there is none."""
        self._between_steps = True
        self.log = TrainLog(options.out / "log.jsonl", self.step)

    @property
    def checkpoint_path(self) -> Path:
        """Where the run can be taken up again."""
        return self.options.out / "checkpoint.pt"

    @abstractmethod
    def step_loss(self) -> Tensor:
        """The loss of the step that comes next, in nats."""

    def after_step(self) -> None:
        """What else to do between two steps."""

    @abstractmethod
    def finish(self) -> Result:
        """Judge what was trained, and write it."""

    def save(self) -> None:
        """Write the checkpoint of this step."""
        state = {"model": self._net.state_dict(), "optimizer": self.optimizer.state_dict()}
        save_checkpoint(self.checkpoint_path, {**state, "step": self.step, "identity": self._identity})
        self.saved = self.step

    def train_step(self) -> Tensor:
        """One optimizer step; returns the loss in nats, still on the device."""
        self._between_steps = False
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.at(self.step)
        loss = self.step_loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._net.parameters(), self.options.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self._between_steps = True
        return loss.detach()

    def run(self, on_step: Report = lambda fields: None, log_every: int = 20) -> Result:
        """Train to the end, or to the time limit; `on_step` gets the newest logged line after every step.

        Raises:
            KeyboardInterrupt: there was one; the steps so far are saved.
            SpeclaError: the loss is no number any more.
        """
        try:
            self._steps(on_step, log_every)
        except KeyboardInterrupt:
            # An interrupt that could not wait has left a step half done: the checkpoint before it stands.
            if self._between_steps:
                self.save()
            raise
        self.save()
        return self.finish()

    def _steps(self, on_step: Report, log_every: int) -> None:
        options = self.options
        start = mark = time.monotonic()
        marked_step = self.step
        fields: dict[str, Any] = {}
        limit = float("inf") if options.minutes is None else start + 60 * options.minutes
        while self.step < options.steps and time.monotonic() < limit:
            check()
            with unbroken():
                loss = self.train_step()
            if self.step % log_every == 0 or self.step == options.steps:
                value, now = loss.item(), time.monotonic()
                tokens = (self.step - marked_step) * options.batch_size * options.sequence_length
                mark, marked_step, speed = now, self.step, tokens / (now - mark)
                rate = self.schedule.at(self.step - 1)
                fields = {"step": self.step, "loss": round(value, 4), "lr": rate, "tok_s": round(speed)}
                self.log.write(**fields)
                if not np.isfinite(value):
                    raise SpeclaError(
                        f"loss is {value} at step {self.step}: lower learning_rate={options.learning_rate}"
                    )
            on_step(fields)
            if self.step % options.save_every == 0:
                self.save()
            self.after_step()


def adamw(model: nn.Module, weight_decay: float, betas: tuple[float, float] = (0.9, 0.95)) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only; fused on a GPU. The learning rate is set each step."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, fused=parameters[0].is_cuda)
