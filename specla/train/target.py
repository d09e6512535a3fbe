"""Train a target model on a corpus folder: seeded, logged, resumable.

The batch of a step depends on (seed, step) alone, so a resumed run sees what an uninterrupted one would have seen.
"""

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specla.models.checkpoint import save_model
from specla.models.config import GatedDeltaNetConfig
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.whole_folder import whole_folder
from specla.train.corpus_files import corpus_tokenizer, training_tokens
from specla.train.evaluate import bits_per_byte
from specla.train.loop import RunOptions, Training


@dataclass(frozen=True)
class TargetOptions(RunOptions):
    """How a target is trained."""


@dataclass(frozen=True)
class TargetResult:
    """How training ended: the step reached, whether it was the last, and bits per byte on held-out text by category."""

    step: int
    finished: bool
    bits_per_byte: dict[str, float]


class TargetTraining(Training[TargetResult]):
    """One training run, from a fresh or a resumed start.

    Args:
        config: of the target.
        options: of the run.

    Raises:
        SpeclaError: the corpus, its tokenizer or the checkpoint to go on from is damaged or does not fit.
    """

    def __init__(self, config: GatedDeltaNetConfig, options: TargetOptions) -> None:
        self.config = config
        self.tokens = training_tokens(options.corpus, options.sequence_length, config.vocab_size).to(options.device)
        self._tokenizer = corpus_tokenizer(options.corpus, config.vocab_size)
        options.out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(options.seed)
        self.model = GatedDeltaNetLM(config).to(options.device)
        identity = {"model": dataclasses.asdict(config), "data_tokens": len(self.tokens), **options.deciding()}
        super().__init__(self.model, options, identity)
        self._token_loss = _token_loss
        if options.compile:
            for block in self.model.blocks:
                block.sequence = torch.compile(block.sequence)  # type: ignore[method-assign]
            self._token_loss = torch.compile(_token_loss)

    @property
    def model_folder(self) -> Path:
        """Where the model is when the last step is done."""
        return self.options.out / "model"

    def batch(self, step: int) -> Tensor:
        """Tokens of a step, [batch, sequence + 1] int64."""
        length = self.options.sequence_length + 1
        random = np.random.default_rng([self.options.seed, step])
        starts = torch.from_numpy(random.integers(0, len(self.tokens) - length, self.options.batch_size))
        index = starts[:, None] + torch.arange(length)
        return self.tokens[index.to(self.tokens.device)].long()

    def step_loss(self) -> Tensor:
        """Mean cross-entropy of the next step's batch, in nats a token."""
        batch = self.batch(self.step)
        with torch.autocast(self.options.device, dtype=torch.bfloat16, enabled=self.options.device == "cuda"):
            hidden = self.model(batch[:, :-1])
            return self._token_loss(hidden, self.model.lm_head.weight, batch[:, 1:])

    def finish(self) -> TargetResult:
        """Bits per byte on held-out text; after the last step the model is written, with its tokenizer."""
        self.model.eval()
        # Held-out windows come in shapes that training never had: compiling for each takes longer than reading them.
        with torch.compiler.set_stance("force_eager"):
            scores = bits_per_byte(self.model, self.options.corpus)
        self.log.write(step=self.step, bits_per_byte=scores)
        finished = self.step >= self.options.steps
        if finished:
            with whole_folder(self.model_folder) as folder:
                save_model(self.model, folder, dtype=torch.bfloat16)
                shutil.copyfile(self._tokenizer, folder / "tokenizer.json")
        return TargetResult(self.step, finished, scores)


def _token_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats, the softmax in float32."""
    logits = F.linear(hidden, weight)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
