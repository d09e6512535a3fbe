"""What a cell decodes: a model, its prompts after their prefill, and AR's text of each; cells that agree share it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from specla.bench.normalise import KERNEL_COMMANDS
from specla.bench.settings import DrafterSettings, ModelSettings, Settings, model_config
from specla.bench.trained import model_folder, model_identity, read_drafter
from specla.bench.workloads.base import load_prompts, prompts_digest, put_conversations
from specla.bench.workloads.prompt import Prompt
from specla.drafters.base import NoDrafter
from specla.drafters.device import NoDrafts
from specla.drafters.network import AlignedNetwork
from specla.engine.decode import Decoding, Prefilled, StopRule, prefill
from specla.engine.device import DeviceDecoding, How
from specla.engine.recovery import Recovery
from specla.errors import SpeclaError
from specla.models.chat import ChatTemplate, read_chat_template
from specla.models.checkpoint import load_model, random_model, resolve_folder, weights_digest
from specla.models.drafter import DrafterConfig
from specla.models.drafter_checkpoint import drafter_digest, random_drafter
from specla.models.folder import read_config
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.look import checkpoint_notes
from specla.models.tokenizer import ByteTokenizer, TextTokenizer, Tokenizer
from specla.ops.sampling import Sampling
from specla.ops.verify import get_verify
from specla.topology import chain

_PROBED = 8
"""Tokens that tell a model whose logits are no numbers, before anything is measured."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(name: str, command: str) -> str:
    """The device that `auto` stands for in a command's cells.

    A GPU, where there is one, for single operations; the CPU for decodes, whose drafters do not all draft on a GPU.
    """
    if name != "auto":
        return name
    return "cuda" if command in KERNEL_COMMANDS and torch.cuda.is_available() else "cpu"


def require_device(device: str) -> None:
    """Raise SpeclaError where torch has no such device."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise SpeclaError(
            f"device={device}: torch {torch.__version__} finds no CUDA device here; measure with device=cpu, or list "
            "the cells with --dry-run"
        )


def resolve_dtype(name: str, device: str) -> torch.dtype:
    """The dtype that `auto` stands for: float32 on a CPU, bfloat16 on a GPU."""
    return DTYPES[("float32" if device == "cpu" else "bfloat16") if name == "auto" else name]


@dataclass(frozen=True)
class Target:
    """A loaded model and its tokenizer.

    Attributes:
        model: ready for inference.
        tokenizer: of its checkpoint.
        digest: of the weights.
        notes: what of the checkpoint was left unread and what its tokenizer cannot, a line each, for the user's log.
        chat: the template that its conversations are put by, if it has one.
    """

    model: GatedDeltaNetLM
    tokenizer: Tokenizer
    digest: str
    notes: tuple[str, ...] = ()
    chat: ChatTemplate | None = None


def load_target(settings: ModelSettings, dtype: torch.dtype, device: str, seed: int) -> Target:
    """Load the model of a cell.

    Raises:
        SpeclaError: no checkpoint, a damaged one or chat template, or a vocabulary that does not fit its tokenizer.
    """
    if settings.weights == "random":
        config, (digest, _) = model_config(settings), model_identity(settings, seed)
        return Target(random_model(config, dtype, device, seed), ByteTokenizer(config), digest)
    folder = model_folder(settings)
    tokenizer = TextTokenizer(folder, read_config(folder))
    model, notes = load_model(folder, dtype, device), (*checkpoint_notes(folder), *tokenizer.notes)
    return Target(model, tokenizer, weights_digest(folder), notes, read_chat_template(folder))


def model_words(settings: ModelSettings) -> str:
    """The words that a user would change to get another model: its folder, or its name where weights are random."""
    return f"model={settings.name}" if settings.weights == "random" else f"model.path={settings.path}"


@dataclass(frozen=True)
class Item:
    """One batch of prompts.

    Attributes:
        index: place in the workload.
        prompts: ids, a prompt a row.
        categories: a category a row.
        start: after the prefill.
    """

    index: int
    prompts: tuple[str, ...]
    categories: tuple[str, ...]
    start: Prefilled

    @property
    def category(self) -> str:
        """The category of all rows, or 'mixed'."""
        return self.categories[0] if len(set(self.categories)) == 1 else "mixed"


class Subject:
    """A model and the items it decodes, with AR's text of each.

    Args:
        target: the model.
        settings: of any cell that decodes this subject; sampling, workload and seed count.
        depth: levels of the deepest draft; an oracle's trace is that much longer than the text.
        prompts: in place of the workload's.

    Raises:
        SpeclaError: the prompts cannot be had, one of them has no tokens, or a chat template refuses one.
    """

    def __init__(self, target: Target, settings: Settings, depth: int, prompts: Sequence[Prompt] | None = None) -> None:
        self.target, self.settings, self.depth = target, settings, depth
        self._ar: DeviceDecoding | None = None
        self.sampling = Sampling(settings.sampling.temperature, settings.sampling.top_p, settings.seed)
        given = list(prompts) if prompts is not None else load_prompts(settings.workload)
        self.prompts = put_conversations(given, target.chat, settings.workload)
        self._cut, self._flat = 0, False
        self._ids = [self._encoded(prompt) for prompt in self.prompts]
        assert settings.workload.max_new_tokens is not None
        self._aligned: dict[DrafterSettings, AlignedNetwork] = {}
        self._drafters: list[str] = []
        self.stop = StopRule(settings.workload.max_new_tokens, frozenset(target.model.config.eos_token_id))

    @property
    def model(self) -> GatedDeltaNetLM:
        """The target."""
        return self.target.model

    @property
    def digest(self) -> str:
        """sha256 of weights, tokenizer, ends of text and prompts, the weights of trained drafters among them."""
        ends = str(sorted(self.stop.eos_token_ids))
        inputs = (self.target.digest, self.target.tokenizer.digest, ends, prompts_digest(self.prompts), *self._drafters)
        return hashlib.sha256(" ".join(inputs).encode()).hexdigest()

    def aligned(self, drafter: DrafterSettings) -> AlignedNetwork:
        """A trained drafter for this target, loaded once.

        Raises:
            SpeclaError: there is none, it is damaged, or it was trained for another target.
        """
        if drafter not in self._aligned:
            assert drafter.path is not None
            model, identity = self.model, (self.target.digest, self.model.config.vocab_size)
            trained = read_drafter(drafter, identity, model.dtype, model.device)
            self._aligned[drafter] = AlignedNetwork(model, trained, drafter.vocabulary)
            self._drafters.append(drafter_digest(resolve_folder(drafter.path, "drafter.path")))
        return self._aligned[drafter]

    def worker(self, drafter: DrafterSettings) -> AlignedNetwork:
        """A drafter of the size of one of the target's layers with random weights: for its time alone, made once."""
        if drafter not in self._aligned:
            model = self.model
            made = random_drafter(DrafterConfig.of(model.config), model.dtype, model.device, self.settings.seed)
            self._aligned[drafter] = AlignedNetwork(model, made, drafter.vocabulary)
        return self._aligned[drafter]

    @cached_property
    def items(self) -> list[Item]:
        """The prompts in batches, prefilled."""
        size = self.settings.workload.batch
        return [self._item(i, self.prompts[i * size : (i + 1) * size]) for i in range(len(self.prompts) // size)]

    def require_sound(self) -> None:
        """Raise SpeclaError where a prompt has no tokens, or the model makes no numbers of a few: nothing is kept."""
        self._prefill([self._ids[0][:_PROBED]], range(1))

    def _prefill(self, ids: Sequence[Sequence[int]], rows: range) -> Prefilled:
        try:
            start = prefill(self.model, ids, self.sampling, rows)
        except SpeclaError as error:
            raise SpeclaError(f"{model_words(self.settings.model)}: {error}") from None
        self._flat = self._flat or start.flat
        return start

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the checkpoint was left unread, how conversations became texts, how many prompts were cut, and
        whether a prompt has told the model nothing."""
        return (*self.target.notes, *self._turn_notes(), *self._cut_notes(), *self._flat_notes())

    def _flat_notes(self) -> tuple[str, ...]:
        if not self._flat:
            return ()
        told = "all logits after a prompt are equal: its weights are zero or too large, and its text means nothing"
        return (f"{model_words(self.settings.model)}: {told}",)

    def _cut_notes(self) -> tuple[str, ...]:
        limit = self.settings.workload.prompt_tokens
        if not self._cut:
            return ()
        told = f"{self._cut:,} of {len(self.prompts):,} prompts were cut to their last {limit} tokens"
        return (f"workload={self.settings.workload.name}: {told} (workload.prompt_tokens)",)

    def _turn_notes(self) -> tuple[str, ...]:
        if not any(prompt.turns for prompt in self.prompts):
            return ()
        chat = self.target.chat
        how = "joined by blank lines: the model has no chat template"
        if chat is not None:
            how = f"put together by the chat template of {chat.file}"
        return (f"workload={self.settings.workload.name}: turns are {how}",)

    def _encoded(self, prompt: Prompt) -> list[int]:
        """The last `prompt_tokens` tokens of a prompt."""
        workload = self.settings.workload
        ids = self.target.tokenizer.encode(prompt.text)
        if workload.prompt_tokens is not None and len(ids) > workload.prompt_tokens:
            self._cut += 1
            ids = ids[-workload.prompt_tokens :]
        if not ids:
            raise SpeclaError(f"workload={workload.name}: prompt {prompt.id[:60]!r} has no tokens")
        return ids

    def _item(self, index: int, prompts: Sequence[Prompt]) -> Item:
        first_row = index * len(prompts)
        rows = range(first_row, first_row + len(prompts))
        start = self._prefill(self._ids[first_row : first_row + len(prompts)], rows)
        return Item(index, tuple(p.id for p in prompts), tuple(p.category for p in prompts), start)

    @cached_property
    def traces(self) -> list[list[list[int]]]:
        """AR's tokens of every item and row, the prefill's first, run on through any end of text.

        They are longer than the limit by the deepest draft, so that an oracle never runs out of them.
        """
        return [self._trace(item) for item in self.items]

    def _trace(self, item: Item) -> list[list[int]]:
        return self.ar_texts(item.start)

    def ar_texts(self, start: Prefilled) -> list[list[int]]:
        """What AR emits from here on, `start`'s roots first, as long as a trace."""
        stop = StopRule(self.stop.max_new_tokens + self.depth)
        if self.model.device.type == "cuda":
            if self._ar is None:
                how = How(get_verify("ar"), Recovery("in_place"), self.sampling, stop)
                self._ar = DeviceDecoding(self.model, len(start.roots), (chain(0),), NoDrafts(), how)
            self._ar.begin(start)
            self._ar.advance(stop.max_new_tokens - 1)
            return self._ar.emitted
        decoding = Decoding(self.model, start, chain(0), NoDrafter(), get_verify("ar"), "in_place", stop)
        while not decoding.done:
            decoding.step()
        return decoding.emitted

    def reference(self, item: Item) -> list[list[int]]:
        """AR's text of an item, cut by the stop rule: what every method must emit."""
        return [self.stop.cut(trace, 0)[0] for trace in self.traces[item.index]]
