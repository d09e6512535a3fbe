"""Train an aligned drafter by distilling its target: on the target's own text, through the drafter's own rollouts.

The batch of a step depends on (seed, step) alone, and the target's own text on the seed, so a resumed run sees what an
uninterrupted one would have seen.
"""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specla.bench.settings import ModelSettings
from specla.bench.subject import load_target, resolve_dtype
from specla.errors import SpeclaError
from specla.interrupt import check
from specla.models.drafter import AlignedNet, DrafterConfig
from specla.models.drafter_checkpoint import load_drafter, save_drafter
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.train.acceptance import Acceptances, accepted_by_depth
from specla.train.drafter_data import DrafterData
from specla.train.loop import Schedule, TrainLog, adamw, load_checkpoint, save_checkpoint
from specla.train.rollout import rollout

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class DrafterOptions:
    """How a drafter is trained.

    Attributes:
        corpus: folder written by `specla train corpus`.
        out: folder for the target's own text, the checkpoint, the log, and at the end the drafter.
        steps: optimizer steps.
        start: a trained drafter's folder to go on from; None starts from nothing.
        batch_size: sequences a step.
        sequence_length: tokens a sequence.
        depth: steps of a rollout.
        depth_decay: what the loss of each further step of a rollout weighs beside the one before.
        hidden_weight: of the squared error of hidden states, beside the cross-entropy.
        own_texts: sequences that the target writes, half of them greedily, half at temperature 0.8.
        own_share: of the sequences of a step, the share that the target wrote.
        own_prompt: tokens of the corpus that each of its sequences starts with.
        heldout_texts: held-out prompts that the target continues greedily, for alpha by depth.
        draft_vocabulary: tokens drafted from, the most frequent ones; None drafts from all.
        learning_rate: peak.
        warmup_steps: steps to the peak.
        decay_share: share of the steps spent going down to zero.
        weight_decay: on matrices only.
        gradient_clip: norm that the gradient is cut to.
        seed: of weights, batches and texts.
        device: 'cpu' or 'cuda'.
        compile: compile the loss; pays in long runs on a GPU.
        save_every: steps between checkpoints.
        evaluate_every: steps between two looks at held-out text.
        minutes: stop after this long with a checkpoint, to be resumed; None: run to the end.
    """

    corpus: Path
    out: Path
    steps: int
    start: Path | None = None
    batch_size: int = 64
    sequence_length: int = 512
    depth: int = 5
    depth_decay: float = 0.9
    hidden_weight: float = 0.0
    own_texts: int = 12288
    own_share: float = 0.75
    own_prompt: int = 192
    heldout_texts: int = 128
    draft_vocabulary: int | None = None
    learning_rate: float = 3e-3
    warmup_steps: int = 50
    decay_share: float = 0.5
    weight_decay: float = 0.05
    gradient_clip: float = 1.0
    seed: int = 0
    device: str = "cpu"
    compile: bool = False
    save_every: int = 500
    evaluate_every: int = 250
    minutes: float | None = None


@dataclass(frozen=True)
class DrafterResult:
    """How training ended: the step reached, whether it was the last, and what held-out text accepts by category."""

    step: int
    finished: bool
    acceptances: dict[str, Acceptances]


class DrafterTraining:
    """One training run, from a fresh or a resumed start.

    Args:
        target: ready for inference, on the options' device.
        target_digest: of its weights.
        options: see there.
        tick: called while the target writes, with the share written.
    """

    def __init__(
        self,
        target: GatedDeltaNetLM,
        target_digest: str,
        options: DrafterOptions,
        tick: Callable[[float], None] = lambda share: None,
    ) -> None:
        self.target, self.digest, self.options = target, target_digest, options
        self.data = DrafterData(target, target_digest, options, tick)
        torch.manual_seed(options.seed)
        self.net = self._fresh().to(options.device)
        self.optimizer = adamw(self.net, options.weight_decay)
        self.schedule = Schedule(options.learning_rate, options.steps, options.warmup_steps, options.decay_share)
        self.step = self._resume()
        self.log = TrainLog(options.out / "log.jsonl", self.step)
        self._loss = torch.compile(_soft_loss) if options.compile else _soft_loss

    def _fresh(self) -> AlignedNet:
        """The network before the first step."""
        config = self.target.config
        if self.options.start is not None:
            return load_drafter(self.options.start, self.digest, config.vocab_size, torch.float32).net
        net = AlignedNet(DrafterConfig.of(config))
        # Its last norm feeds the target's head: it starts as the target's own.
        net.norm.weight.data.copy_(self.target.model.norm.weight)
        return net

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must share with this run for a resume; not how long it runs or where."""
        free = {"out", "corpus", "device", "compile", "save_every", "evaluate_every", "minutes", "draft_vocabulary"}
        options = {k: v for k, v in dataclasses.asdict(self.options).items() if k not in free}
        options["start"] = None if self.options.start is None else str(self.options.start)
        return {"target": self.digest, "data_tokens": len(self.data.tokens), **options}

    @property
    def checkpoint_path(self) -> Path:
        """Where the run can be taken up again."""
        return self.options.out / "checkpoint.pt"

    def _resume(self) -> int:
        content = load_checkpoint(self.checkpoint_path, self._identity())
        if content is None:
            return 0
        self.net.load_state_dict(content["net"])
        self.optimizer.load_state_dict(content["optimizer"])
        return int(content["step"])

    def save(self) -> None:
        """Write the checkpoint of this step."""
        state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
        save_checkpoint(self.checkpoint_path, {**state, "step": self.step, "identity": self._identity()})

    def loss(self, batch: Tensor) -> Tensor:
        """The loss of sequences [batch, tokens], in nats a draft: the mean over the steps of all rollouts."""
        options, target = self.options, self.target
        with torch.no_grad():
            hidden = target(batch)
            embedded = target.model.embeddings(batch)
            wanted = _distribution(hidden, target.lm_head.weight)
        length = batch.shape[1] - options.depth
        total, weights = hidden.new_zeros((), dtype=torch.float32), 0.0
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.device == "cuda"):
            for step, predicted in enumerate(rollout(self.net, hidden, embedded, options.depth)):
                ahead, weight = slice(step + 1, step + 1 + length), options.depth_decay**step
                total = total + weight * self._loss(predicted, wanted[:, ahead], target.lm_head.weight)
                if options.hidden_weight:
                    truth = hidden[:, ahead].float()
                    error = F.mse_loss(predicted.float(), truth) / truth.square().mean()
                    total = total + weight * options.hidden_weight * error
                weights += weight
        mean: Tensor = total / weights
        return mean

    def train_step(self) -> Tensor:
        """One optimizer step; returns its loss, still on the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.at(self.step)
        loss = self.loss(self.data.batch(self.step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.options.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.detach()

    def run(self, on_step: Report = lambda fields: None, log_every: int = 20) -> DrafterResult:
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
                tokens = (self.step - marked_step) * self.options.batch_size * self.options.sequence_length
                mark, marked_step, speed = now, self.step, tokens / (now - mark)
                rate = self.schedule.at(self.step - 1)
                fields = {"step": self.step, "loss": round(value, 4), "lr": rate, "tok_s": round(speed)}
                self.log.write(**fields)
                if not np.isfinite(value):
                    raise SpeclaError(
                        f"loss is {value} at step {self.step}: lower learning_rate={self.options.learning_rate}"
                    )
            on_step(fields)
            if self.step % self.options.save_every == 0:
                self.save()
            if self.step % self.options.evaluate_every == 0 and self.step < self.options.steps:
                self.log.write(step=self.step, alpha=self.evaluate()["all"].rounded())
        self.save()
        return self._finish()

    def evaluate(self) -> dict[str, Acceptances]:
        """What held-out text would accept by depth, by category and over all."""
        return accepted_by_depth(self.net, self.target, self.data.heldout, self.options.depth, self.options.own_prompt)

    def _finish(self) -> DrafterResult:
        found = self.evaluate()
        self.log.write(step=self.step, alpha_by_category={name: one.rounded() for name, one in found.items()})
        count = self.options.draft_vocabulary or self.target.config.vocab_size
        # A run that was stopped by its time limit leaves a drafter as well: one that has not had its last steps.
        save_drafter(self.net, self.options.out / "drafter", self.digest, self.data.order, count)
        return DrafterResult(self.step, self.step >= self.options.steps, found)


def start_training(
    settings: ModelSettings, options: DrafterOptions, tick: Callable[[float], None] = lambda share: None
) -> DrafterTraining:
    """The training of a drafter for the model of these settings, its texts written.

    Args:
        settings: the target.
        options: see there; the target runs in float32 on a CPU, in bfloat16 on a GPU, as it decodes there.
        tick: called while the target writes, with the share written.
    """
    if options.device == "cuda":
        # The drafter's own products are in bfloat16; those of the delta rule may round their inputs as well.
        torch.set_float32_matmul_precision("high")
    target = load_target(settings, resolve_dtype("auto", options.device), options.device, options.seed)
    return DrafterTraining(target.model, target.digest, options, tick)


def _distribution(hidden: Tensor, head: Tensor) -> Tensor:
    """The target's distributions [B, T, vocabulary] in its dtype, the softmax in float32."""
    return F.linear(hidden, head).float().softmax(-1).to(hidden.dtype)


def _soft_loss(predicted: Tensor, wanted: Tensor, head: Tensor) -> Tensor:
    """Mean cross-entropy in nats between the target's distribution and the drafter's, the softmax in float32.

    Args:
        predicted: [B, T, hidden], the drafter's hidden states.
        wanted: [B, T, vocabulary], the target's distributions of the same tokens.
        head: [vocabulary, hidden], of the target.
    """
    drafted = F.linear(predicted, head).float()
    return (drafted.logsumexp(-1) - (wanted * drafted).sum(-1)).mean()
