"""Train a target model on a corpus folder: seeded, logged, resumable.

The batch of a step depends on (seed, step) alone, so a resumed run sees what an uninterrupted one would have seen.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specla.errors import SpeclaError
from specla.interrupt import check
from specla.models.checkpoint import save_model
from specla.models.config import GatedDeltaNetConfig
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.train.evaluate import bits_per_byte
from specla.train.loop import Schedule, TrainLog, adamw, load_checkpoint, save_checkpoint

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TargetOptions:
    """How a target is trained.

    Attributes:
        corpus: folder written by `specla train corpus`.
        out: folder for the checkpoint, the log, and at the end the model.
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
        compile: compile the layers; pays on a GPU.
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


@dataclass(frozen=True)
class TargetResult:
    """How training ended: the step reached, whether it was the last, and bits per byte on held-out text by category."""

    step: int
    finished: bool
    bits_per_byte: dict[str, float]


class TargetTraining:
    """One training run, from a fresh or a resumed start."""

    def __init__(self, config: GatedDeltaNetConfig, options: TargetOptions) -> None:
        self.config, self.options = config, options
        self.tokens = _load_tokens(options, config.vocab_size)
        options.out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(options.seed)
        self.model = GatedDeltaNetLM(config).to(options.device)
        self.optimizer = adamw(self.model, options.weight_decay)
        self.schedule = Schedule(options.learning_rate, options.steps, options.warmup_steps, options.decay_share)
        self.step = self._resume()
        self.log = TrainLog(options.out / "log.jsonl", self.step)
        if options.compile:
            for block in self.model.blocks:
                block.sequence = torch.compile(block.sequence)  # type: ignore[method-assign]
            self._token_loss = torch.compile(_token_loss)
        else:
            self._token_loss = _token_loss

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must share with this run for a resume; not how long it runs or where."""
        free = {"out", "corpus", "device", "compile", "save_every", "minutes"}
        options = {k: v for k, v in dataclasses.asdict(self.options).items() if k not in free}
        return {"model": dataclasses.asdict(self.config), "data_tokens": len(self.tokens), **options}

    @property
    def checkpoint_path(self) -> Path:
        """Where the run can be taken up again."""
        return self.options.out / "checkpoint.pt"

    def _resume(self) -> int:
        content = load_checkpoint(self.checkpoint_path, self._identity())
        if content is None:
            return 0
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        return int(content["step"])

    def save(self) -> None:
        """Write the checkpoint of this step."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        save_checkpoint(self.checkpoint_path, {**state, "step": self.step, "identity": self._identity()})

    def batch(self, step: int) -> Tensor:
        """Tokens of a step, [batch, sequence + 1] int64."""
        length = self.options.sequence_length + 1
        random = np.random.default_rng([self.options.seed, step])
        starts = torch.from_numpy(random.integers(0, len(self.tokens) - length, self.options.batch_size))
        index = starts[:, None] + torch.arange(length)
        return self.tokens[index.to(self.tokens.device)].long()

    def _forward(self, batch: Tensor) -> Tensor:
        with torch.autocast(self.options.device, dtype=torch.bfloat16, enabled=self.options.device == "cuda"):
            hidden = self.model(batch[:, :-1])
            return self._token_loss(hidden, self.model.lm_head.weight, batch[:, 1:])

    def train_step(self) -> Tensor:
        """One optimizer step; returns the loss in nats a token, still on the device."""
        rate = self.schedule.at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self._forward(self.batch(self.step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.detach()

    def run(self, on_step: Report = lambda fields: None, log_every: int = 20) -> TargetResult:
        """Train to the end, or to the time limit; `on_step` gets the newest logged line after every step."""
        start = mark = time.monotonic()
        marked_step = self.step
        fields: dict[str, Any] = {}
        limit = float("inf") if self.options.minutes is None else start + 60 * self.options.minutes
        while self.step < self.options.steps and time.monotonic() < limit:
            check()
            loss = self.train_step()
            if self.step % log_every == 0 or self.step == self.options.steps:
                value, now = loss.item(), time.monotonic()
                speed = (
                    (self.step - marked_step) * self.options.batch_size * self.options.sequence_length / (now - mark)
                )
                mark, marked_step = now, self.step
                fields = {
                    "step": self.step,
                    "loss": round(value, 4),
                    "lr": self.schedule.at(self.step - 1),
                    "tok_s": round(speed),
                }
                self.log.write(**fields)
                if not np.isfinite(value):
                    raise SpeclaError(
                        f"loss is {value} at step {self.step}: lower learning_rate={self.options.learning_rate}"
                    )
            on_step(fields)
            if self.step % self.options.save_every == 0:
                self.save()
        self.save()
        return self._finish()

    def _finish(self) -> TargetResult:
        self.model.eval()
        # Held-out windows come in shapes that training never had: compiling for each takes longer than reading them.
        with torch.compiler.set_stance("force_eager"):
            scores = bits_per_byte(self.model, self.options.corpus)
        self.log.write(step=self.step, bits_per_byte=scores)
        finished = self.step >= self.options.steps
        if finished:
            save_model(self.model, self.options.out / "model", dtype=torch.bfloat16)
        return TargetResult(self.step, finished, scores)


def _token_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats, the softmax in float32."""
    logits = F.linear(hidden, weight)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def _load_tokens(options: TargetOptions, vocab_size: int) -> Tensor:
    path = options.corpus / "train.npy"
    if not path.exists():
        raise SpeclaError(f"corpus={options.corpus}: no train.npy there; make it with `specla train corpus`")
    tokens = np.load(path)
    if len(tokens) <= options.sequence_length + 1:
        raise SpeclaError(f"{path}: {len(tokens)} tokens, fewer than one sequence of {options.sequence_length}")
    if int(tokens.max()) >= vocab_size:
        raise SpeclaError(f"{path}: token {int(tokens.max())} does not fit model.vocab_size={vocab_size}")
    # int32, since a GPU cannot index with uint16.
    return torch.from_numpy(tokens.astype(np.int32)).to(options.device)


def read_corpus_manifest(corpus: Path) -> dict[str, Any]:
    """The manifest that `specla train corpus` wrote."""
    manifest: dict[str, Any] = json.loads((corpus / "corpus.json").read_text(encoding="utf-8"))
    return manifest
