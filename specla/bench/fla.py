"""AR as flash-linear-attention decodes it, with our weights: baselines of another make, on a GPU.

`fla-generate` is its model under transformers' generate, the way that its users decode. `fla-graph` is one step of the
same model, with its cache and its fused recurrent kernels, captured in a CUDA graph. Both begin where our own methods
do, after the shared prefill, and choose tokens by our rule and noise, so that their text can be held against ours.
"""

from abc import abstractmethod
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from specla.bench.cells import Cell
from specla.bench.fla_model import InPlace, cache_argument, foreign_layers, foreign_model, tensors_of
from specla.bench.measure import Method, Timed
from specla.bench.record import Split
from specla.bench.subject import Item, Subject
from specla.engine.decode import Decoding, Prefilled, Step, StopRule
from specla.engine.graph import CudaGraphs, Run
from specla.errors import SpeclaError
from specla.interrupt import check
from specla.ops.sampling import choose, scores
from specla.topology import chain

_WARM_UPS = 2
"""Steps before a capture: its kernels are compiled and tuned in the first."""


class Text:
    """What a batch emits, one token a row and step, until its rows end.

    Args:
        start: after the prefill.
        stop: when rows end.
        whole: go on until every row has ended, not only the first.
        most: steps, where it is known after how many all is over.
    """

    def __init__(self, start: Prefilled, stop: StopRule, whole: bool, most: int | None = None) -> None:
        self.stop, self.whole = stop, whole
        self.most = stop.max_new_tokens - 1 if most is None else most
        self.emitted = [[root] for root in start.roots]
        self.finished = [stop.cut([root], 0)[1] for root in start.roots]
        self.steps: list[list[list[int]]] = []

    @property
    def over(self) -> bool:
        """Whether no more tokens are wanted."""
        return all(self.finished) if self.whole else any(self.finished)

    def take(self, tokens: list[int]) -> None:
        """The next token of every row; what is behind a row's end does not count, nor what comes when all is over."""
        if self.over:
            return
        kept: list[list[int]] = []
        for row, token in enumerate(tokens):
            kept.append([])
            if not self.finished[row]:
                kept[row], self.finished[row] = self.stop.cut([token], len(self.emitted[row]))
                self.emitted[row] += kept[row]
        self.steps.append(kept)


class ForeignMethod(Method):
    """AR by another engine, as `specla.bench.measure` gates and times it.

    Args:
        cell: names the engine.
        subject: what it decodes.
        model: flash-linear-attention's, with the subject's weights, where a test brings its own.
    """

    def __init__(self, cell: Cell, subject: Subject, model: Any = None) -> None:
        super().__init__(cell, subject)
        self._model = model

    @property
    def model(self) -> Any:
        """flash-linear-attention's, made when it is first needed: what goes wrong then is its cell's alone."""
        if self._model is None:
            self._model = foreign_model(self.subject.model)
        return self._model

    @property
    def why(self) -> str:
        return f"flash-linear-attention {version('flash-linear-attention')}, {self.told}"

    @property
    @abstractmethod
    def told(self) -> str:
        """How it decodes, in a few words."""

    @abstractmethod
    def load(self, item: Item, text: Text) -> Any:
        """A fresh cache after the prefill of an item, off the clock."""

    @abstractmethod
    def run(self, item: Item, cache: Any, text: Text) -> None:
        """Decode until the text is over."""

    def start(self, item: Item) -> Decoding:
        raise SpeclaError(f"engine={self.cell.method.engine}: decodes whole texts, not step by step")

    @torch.inference_mode()
    def decode(self, item: Item) -> tuple[Text, list[Step]]:
        """Decode an item to the end of every row."""
        text = Text(item.start, self.subject.stop, whole=True)
        if not text.over:
            self.run(item, self.load(item, text), text)
        rows = len(text.emitted)
        return text, [Step(kept, [0] * rows, chain(0), [[0]] * rows, (0.0, 0.0, 0.0, 0.0)) for kept in text.steps]

    @torch.inference_mode()
    def time(self, item: Item) -> Timed:
        """Decode an item until its first row ends, on the clock; a step is all verification.

        When that is, is known from the gate's texts, as it is where our own methods are timed.
        """
        most = min((len(row) - 1 for row in self.texts.get(item.index, ())), default=None)
        text, seconds = Text(item.start, self.subject.stop, whole=False, most=most), 0.0
        if not text.over:
            cache = self.load(item, text)
            started = self.clock.now()
            self.run(item, cache, text)
            seconds = self.clock.now() - started
        self.compare(item, text.emitted)
        steps = len(text.steps)
        tokens = sum(len(kept) for step in text.steps for kept in step)
        return Timed(seconds, tokens, steps, Split(0.0, seconds / steps * 1e6 if steps else 0.0, 0.0, 0.0))


class FlaGenerate(ForeignMethod):
    """Its model under transformers' generate, which chooses by our scores where it samples."""

    @property
    def told(self) -> str:
        return f"transformers {version('transformers')} generate"

    def load(self, item: Item, text: Text) -> Any:
        from fla.models.utils import Cache

        return Cache.from_legacy_cache(foreign_layers(item.start.state, self.subject.model.config))

    def run(self, item: Item, cache: Any, text: Text) -> None:
        start, sampling = item.start, self.subject.sampling
        eos = torch.tensor(sorted(text.stop.eos_token_ids), device=start.rows.device)

        def choosable(tokens: Tensor, logits: Tensor) -> Tensor:
            return scores(logits, sampling, start.rows, start.state.lengths + tokens.shape[1])

        def over(tokens: Tensor, _: object) -> Tensor:
            check()
            ended = torch.isin(tokens, eos).any(1)
            return ended if text.whole else ended.any().expand_as(ended)

        roots = torch.tensor(start.roots, device=start.rows.device)[:, None]
        found = self.model.generate(
            roots,
            max_new_tokens=text.most,
            do_sample=False,
            logits_processor=[] if sampling.greedy else [choosable],
            stopping_criteria=[over],
            **{cache_argument(): cache},
        )
        for tokens in found[:, 1:].T.tolist():
            text.take(tokens)


class FlaGraph(ForeignMethod):
    """One step of its model in a CUDA graph, replayed; the host reads a step's tokens while the next one runs.

    Args:
        cell, subject, model: see `ForeignMethod`.
        make_graphs: what captures; a test brings its own.
    """

    def __init__(
        self,
        cell: Cell,
        subject: Subject,
        model: Any = None,
        make_graphs: Callable[[torch.device], CudaGraphs] = CudaGraphs,
    ) -> None:
        super().__init__(cell, subject, model)
        self._graphs = make_graphs(subject.model.device)
        self._replay: Run | None = None
        self._copied = 0
        """Tensors of the cache in every step, since they came out in new memory."""

    @property
    def told(self) -> str:
        return f"a step in a CUDA graph, {f'which copies {self._copied} states back' if self._copied else 'in place'}"

    def load(self, item: Item, text: Text) -> "Heard":
        if self._replay is None:
            start = item.start
            self._layers = foreign_layers(start.state, self.subject.model.config)
            self._lengths, self._rows = start.state.lengths.clone(), start.rows.clone()
            self._tokens = torch.tensor(start.roots, device=start.rows.device)[:, None]
            self._graphs.aside(self._step, _WARM_UPS)
            self._replay = self._graphs.capture(self._step)
        self._fill(item.start)
        return Heard(self._tokens, text.most)

    def release(self) -> None:
        self._graphs.release()
        self._replay = None
        self._layers = []

    def _fill(self, start: Prefilled) -> None:
        """Put a batch where the graph reads it."""
        fresh = foreign_layers(start.state, self.subject.model.config)
        for held, new in zip(tensors_of(self._layers), tensors_of(fresh), strict=True):
            held.copy_(new)
        self._lengths.copy_(start.state.lengths)
        self._rows.copy_(start.rows)
        self._tokens.copy_(torch.tensor(start.roots, device=self._tokens.device)[:, None])

    def _step(self) -> None:
        """Commit a token of every row and choose the next one, all in the same memory."""
        from fla.models.utils import Cache

        cache = Cache.from_legacy_cache(self._layers)
        with InPlace([layer["recurrent_state"] for layer in self._layers]):
            logits = self.model(input_ids=self._tokens, past_key_values=cache, use_cache=True).logits[:, -1]
        pairs = list(zip(tensors_of(self._layers), tensors_of(cache), strict=True))
        moved = [(held, new) for held, new in pairs if new.data_ptr() != held.data_ptr()]
        for held, new in moved:
            held.copy_(new)
        self._copied = len(moved)
        self._lengths += 1
        self._tokens.copy_(choose(logits, self.subject.sampling, self._rows, self._lengths)[:, None])

    def run(self, item: Item, cache: "Heard", text: Text) -> None:
        assert self._replay is not None
        for step in range(cache.steps):
            check()
            self._replay()
            cache.listen(step)
            if step:
                text.take(cache.tokens(step - 1))
            if text.over:
                return
        text.take(cache.tokens(cache.steps - 1))


def foreign_method(cell: Cell, subject: Subject) -> ForeignMethod:
    """A cell's way of decoding by an engine that is not ours."""
    return FlaGenerate(cell, subject) if cell.method.engine == "fla-generate" else FlaGraph(cell, subject)


class Heard:
    """The tokens of every step on the host, on their way while the device goes on.

    Args:
        tokens: [B, 1] int64, which every step overwrites.
        steps: at most.
    """

    def __init__(self, tokens: Tensor, steps: int) -> None:
        self.steps, self._tokens = steps, tokens
        self._host = torch.empty(steps, tokens.shape[0], dtype=tokens.dtype, pin_memory=tokens.is_cuda)
        self._there = [torch.cuda.Event() for _ in range(steps)] if tokens.is_cuda else []

    def listen(self, step: int) -> None:
        """Have a step's tokens copied, after all that the device was given."""
        self._host[step].copy_(self._tokens[:, 0], non_blocking=True)
        if self._there:
            self._there[step].record()

    def tokens(self, step: int) -> list[int]:
        """A step's tokens; waits until they are there."""
        if self._there:
            self._there[step].synchronize()
        found: list[int] = self._host[step].tolist()
        return found
