"""Train an aligned drafter by distilling its target: on the target's own text, through the drafter's own rollouts.

The batch of a step depends on (seed, step) alone, and the target's own text on the seed, so a resumed run sees what an
uninterrupted one would have seen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specla.bench.settings import ModelSettings
from specla.bench.subject import load_target, resolve_dtype
from specla.errors import SpeclaError
from specla.models.drafter import AlignedNet, DrafterConfig
from specla.models.drafter_checkpoint import load_drafter, save_drafter
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.tokenizer import TextTokenizer
from specla.train.acceptance import Acceptances, accepted_by_depth
from specla.train.corpus_files import require_tokens_of
from specla.train.drafter_data import DrafterData, DrafterOptions
from specla.train.loop import Training
from specla.train.rollout import rollout


@dataclass(frozen=True)
class DrafterResult:
    """How training ended: the step reached, whether it was the last, and what held-out text accepts by category."""

    step: int
    finished: bool
    acceptances: dict[str, Acceptances]


class DrafterTraining(Training[DrafterResult]):
    """One training run, from a fresh or a resumed start.

    Args:
        target: ready for inference, on the options' device.
        target_digest: of its weights.
        options: see there.
        tick: called while the target writes, with the share written.

    Attributes:
        notes: what a user should know of the start, a line each.

    Raises:
        SpeclaError: the corpus, the start or the checkpoint to go on from is damaged or does not fit.
    """

    options: DrafterOptions

    def __init__(
        self,
        target: GatedDeltaNetLM,
        target_digest: str,
        options: DrafterOptions,
        tick: Callable[[float], None] = lambda share: None,
    ) -> None:
        self.target, self.digest = target, target_digest
        self.notes: list[str] = []
        size = target.config.vocab_size
        self._draft_vocabulary = options.draft_vocabulary or size
        if self._draft_vocabulary > size:
            raise SpeclaError(f"draft_vocabulary={options.draft_vocabulary}: the target has {size} tokens")
        # Before the target writes its texts, which takes a while.
        start = None if options.start is None else self._start(options.start)
        self.data = DrafterData(target, target_digest, options, tick)
        torch.manual_seed(options.seed)
        self.net = (self._fresh() if start is None else start).to(options.device)
        start_name = None if options.start is None else str(options.start)
        deciding = {**options.deciding("evaluate_every", "draft_vocabulary"), "start": start_name}
        identity = {"target": target_digest, "data_tokens": len(self.data.tokens), **deciding}
        super().__init__(self.net, options, identity)
        self._loss = torch.compile(_soft_loss) if options.compile else _soft_loss

    def _start(self, folder: Path) -> AlignedNet:
        """The network to go on from; its draft vocabulary is not part of it."""
        trained = load_drafter(folder, self.digest, self.target.config.vocab_size, torch.float32)
        if trained.draft_vocabulary != self._draft_vocabulary:
            self.notes.append(
                f"start={folder}: drafts from {trained.draft_vocabulary} tokens, what is trained here from "
                f"{self._draft_vocabulary}; give draft_vocabulary={trained.draft_vocabulary} to keep it"
            )
        return trained.net

    def _fresh(self) -> AlignedNet:
        """The network before the first step."""
        net = AlignedNet(DrafterConfig.of(self.target.config))
        # Its last norm feeds the target's head: it starts as the target's own.
        net.norm.weight.data.copy_(self.target.model.norm.weight)
        return net

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

    def step_loss(self) -> Tensor:
        """`loss` of the next step's batch."""
        return self.loss(self.data.batch(self.step))

    def after_step(self) -> None:
        """Now and then, look at held-out text."""
        if self.step % self.options.evaluate_every == 0 and self.step < self.options.steps:
            self.log.write(step=self.step, alpha=self.evaluate()["all"].rounded())

    def evaluate(self) -> dict[str, Acceptances]:
        """What held-out text would accept by depth, by category and over all."""
        return accepted_by_depth(self.net, self.target, self.data.heldout, self.options.depth, self.options.own_prompt)

    def finish(self) -> DrafterResult:
        """Acceptance on held-out text; a run that was stopped by its time limit leaves a drafter as well."""
        found = self.evaluate()
        self.log.write(step=self.step, alpha_by_category={name: one.rounded() for name, one in found.items()})
        save_drafter(self.net, self.options.out / "drafter", self.digest, self.data.order, self._draft_vocabulary)
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
    if isinstance(target.tokenizer, TextTokenizer):
        require_tokens_of(target.tokenizer, options.corpus)
    training = DrafterTraining(target.model, target.digest, options, tick)
    training.notes[:0] = target.notes
    return training


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
