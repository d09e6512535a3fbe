"""What a drafter trains on: the corpus, the target's own text from prompts of the corpus, and held-out text."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specla.errors import SpeclaError
from specla.models.drafter_checkpoint import require_order
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.ops.sampling import Sampling
from specla.train.corpus_files import heldout_texts, training_tokens
from specla.train.loop import RunOptions
from specla.train.saved import damaged, load_checkpoint, save_checkpoint
from specla.train.selftext import continued

TEMPERATURE = 0.8
FEWEST_HELDOUT = 256
"""Drafts of held-out text below which alpha by depth is mostly chance."""
_ROWS = {"cpu": 64, "cuda": 6144}
"""Sequences that the target writes at once: a step reads and writes all their states."""


@dataclasses.dataclass(frozen=True)
class DrafterOptions(RunOptions):
    """How a drafter is trained.

    Attributes:
        start: a trained drafter's folder to go on from; None starts from nothing.
        depth: steps of a rollout.
        depth_decay: what the loss of each further step of a rollout weighs beside the one before.
        hidden_weight: of the squared error of hidden states, beside the cross-entropy.
        own_texts: sequences that the target writes, half of them greedily, half at temperature 0.8.
        own_share: of the sequences of a step, the share that the target wrote.
        own_prompt: tokens of the corpus that each of its sequences starts with.
        heldout_texts: held-out prompts that the target continues greedily, for alpha by depth.
        draft_vocabulary: tokens drafted from, the most frequent ones; None drafts from all.
        evaluate_every: steps between two looks at held-out text.
    """

    sequence_length: int = 512
    learning_rate: float = 3e-3
    warmup_steps: int = 50
    decay_share: float = 0.5
    weight_decay: float = 0.05
    start: Path | None = None
    depth: int = 5
    depth_decay: float = 0.9
    hidden_weight: float = 0.0
    own_texts: int = 12288
    own_share: float = 0.75
    own_prompt: int = 192
    heldout_texts: int = 128
    draft_vocabulary: int | None = None
    evaluate_every: int = 250


class DrafterData:
    """The texts of one training run.

    The target's own texts are written once into `out/texts.pt`, where a resumed run finds them.

    Args:
        target: who writes.
        digest: of its weights.
        options: of the run.
        tick: called while it writes, with the share written.
    """

    def __init__(
        self, target: GatedDeltaNetLM, digest: str, options: DrafterOptions, tick: Callable[[float], None]
    ) -> None:
        self.options, self._target, self._digest, self._tick = options, target, digest, tick
        self.tokens = training_tokens(options.corpus, options.sequence_length, target.config.vocab_size)
        heldout = _heldout_prompts(options, target.config.vocab_size)
        options.out.mkdir(parents=True, exist_ok=True)
        content = self._texts(heldout)
        self.own: Tensor = content["own"].to(options.device)
        self.heldout: dict[str, Tensor] = {name: rows.long() for name, rows in content["heldout"].items()}
        self.order: Tensor = content["order"]
        self.tokens = self.tokens.to(options.device)

    def _identity(self) -> dict[str, Any]:
        """What decides the target's own texts."""
        names = ("sequence_length", "own_texts", "own_prompt", "heldout_texts", "seed")
        options = dataclasses.asdict(self.options)
        return {"target": self._digest, "data_tokens": len(self.tokens), **{name: options[name] for name in names}}

    def _texts(self, heldout: dict[str, Tensor]) -> dict[str, Any]:
        path = self.options.out / "texts.pt"
        content = load_checkpoint(path, self._identity())
        if content is None:
            content = {**self._write(heldout), "identity": self._identity()}
            save_checkpoint(path, content)
        self._require_whole(path, content, heldout)
        return content

    def _require_whole(self, path: Path, content: dict[str, Any], heldout: dict[str, Tensor]) -> None:
        """Raise SpeclaError for texts that no run can have written."""
        size, length = self._target.config.vocab_size, self.options.sequence_length
        held = content.get("heldout")
        if not isinstance(held, dict) or held.keys() != heldout.keys():
            raise damaged(path, "its held-out texts are not those of the corpus")
        shapes = {name: (len(rows), length) for name, rows in heldout.items()}
        texts = [(content.get("own"), (self.options.own_texts, length)), *((held[name], shapes[name]) for name in held)]
        for rows, shape in texts:
            if not isinstance(rows, Tensor) or rows.shape != shape or rows.dtype != torch.int32:
                raise damaged(path, f"it does not hold texts of {length} tokens")
            if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < size:
                raise damaged(path, f"it has tokens beyond the target's {size}")
        require_order(content.get("order"), size, str(path))

    def _write(self, heldout: dict[str, Tensor]) -> dict[str, Any]:
        options = self.options
        count, prompt = options.own_texts, options.own_prompt
        random = np.random.default_rng([options.seed, 1])
        starts = torch.from_numpy(random.integers(0, len(self.tokens) - prompt, count))
        prompts = self.tokens[starts[:, None] + torch.arange(prompt)].long()
        half = count // 2
        kinds = [(prompts[:half], Sampling()), (prompts[half:], Sampling(TEMPERATURE, 1.0, options.seed))]
        kinds += [(rows, Sampling()) for rows in heldout.values()]
        rows_at_once = _ROWS[options.device]
        # One list of batches, so that the share written is known from the first token on.
        batches = [(i, part, how) for i, (rows, how) in enumerate(kinds) for part in rows.split(rows_at_once)]
        new, done = options.sequence_length - prompt, 0

        def tick() -> None:
            nonlocal done
            done += 1
            self._tick(done / (new * len(batches)))

        written: dict[int, list[Tensor]] = {i: [] for i in range(len(kinds))}
        for i, part, how in batches:
            if len(part):
                text = continued(self._target, part.to(options.device), new, how, tick)
                written[i].append(text.to(torch.int32).cpu())
        own = torch.cat([*written[0], *written[1]])
        held = {name: torch.cat(written[2 + i]) for i, name in enumerate(heldout)}
        return {"own": own, "heldout": held, "order": self._order(own[:, prompt:])}

    def _order(self, written: Tensor) -> Tensor:
        """Tokens by how often the target writes them, those it never wrote by how often the corpus has them."""
        size = self._target.config.vocab_size
        own = torch.bincount(written.flatten(), minlength=size)
        corpus = torch.bincount(self.tokens, minlength=size)
        return (own.double() + corpus.double() / (len(self.tokens) + 1)).argsort(descending=True, stable=True)

    def batch(self, step: int) -> Tensor:
        """Sequences of a step, [batch, tokens] int64: the target's own first, then the corpus'."""
        options = self.options
        random = np.random.default_rng([options.seed, 2, step])
        own = round(options.own_share * options.batch_size) if len(self.own) else 0
        rows = torch.from_numpy(random.integers(0, max(1, len(self.own)), own))
        starts = random.integers(0, len(self.tokens) - options.sequence_length, options.batch_size - own)
        index = torch.from_numpy(starts)[:, None] + torch.arange(options.sequence_length)
        device = self.tokens.device
        return torch.cat((self.own[rows.to(device)], self.tokens[index.to(device)])).long()


def _heldout_prompts(options: DrafterOptions, vocab_size: int) -> dict[str, Tensor]:
    """By category, [rows, own_prompt] int64 from held-out documents, about as many of each.

    Raises:
        SpeclaError: no held-out text, or too little of it to say anything about acceptance.
    """
    by_category: dict[str, list[np.ndarray]] = {}
    for text in heldout_texts(options.corpus, vocab_size):
        # Without the end of the text: a prompt that begins with another document is none.
        whole = (len(text.tokens) - 1) // options.own_prompt * options.own_prompt
        by_category.setdefault(text.category, []).extend(text.tokens[:whole].reshape(-1, options.own_prompt))
    found = {name: rows for name, rows in sorted(by_category.items()) if rows}
    each = -(-options.heldout_texts // max(1, len(found)))
    random = np.random.default_rng([options.seed, 3])
    picked = {}
    for name, rows in found.items():
        chosen = random.permutation(len(rows))[:each]
        picked[name] = torch.from_numpy(np.stack([rows[i] for i in chosen]).astype(np.int64))
    drafts = sum(map(len, picked.values())) * (options.sequence_length - options.own_prompt - options.depth)
    if drafts < FEWEST_HELDOUT:
        raise SpeclaError(
            f"corpus={options.corpus}: its held-out text gives {max(0, drafts)} drafts to judge acceptance by; at "
            f"least {FEWEST_HELDOUT} are needed: give more held-out text, heldout_texts or sequence_length"
        )
    return picked
