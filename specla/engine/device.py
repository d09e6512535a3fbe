"""Decoding on a GPU: one CUDA graph a cycle, and nothing in it that waits for the host.

    draft -> verify -> accept -> commit

as in `specla.engine.decode`, with texts, lengths, roots and the stop rule in device memory. The host replays graphs and
looks at what they left some cycles later.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specla.drafters.base import shared_or_own
from specla.drafters.device import DeviceDrafter, Drafted
from specla.engine.decode import Prefilled, Step, StopRule, tree_tensors
from specla.engine.device_recovery import DeviceRecovery, places_of
from specla.engine.device_report import Report
from specla.engine.graph import CudaGraphs
from specla.engine.memory import Demand, require
from specla.engine.recovery import Recovery
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.records import LayerRecord
from specla.models.state import DecodeState, make_bank
from specla.ops.sampling import Sampling
from specla.ops.texts import Ends, Log, Texts, Walked
from specla.ops.verify import VerifyStrategy
from specla.topology import DraftTree

Run = Callable[[], object]
WARM_UPS = 2
"""Cycles before a capture: kernels are compiled in the first, and loaded in the second."""


@dataclass(frozen=True)
class How:
    """What a method is made of, its drafter aside."""

    verify: VerifyStrategy
    recover: Recovery
    sampling: Sampling
    stop: StopRule


class Cycle:
    """One cycle on one tree. Its phases run in order; what each leaves for the next it keeps.

    Args:
        decoding: whose memory it works on.
        tree: shared by all rows; or the nodes and levels of those that the drafter shapes.
    """

    def __init__(self, decoding: "DeviceDecoding", tree: DraftTree) -> None:
        self.decoding, self.tree = decoding, tree
        model = decoding.model
        self.tensors = tree_tensors(tree, model.device, model.config.conv_size)
        places = (model.config.num_hidden_layers, decoding.batch, tree.nodes)
        self.bank = make_bank(model.config, places, decoding.state.window)
        self._hidden, self._logits = torch.empty(0), torch.empty(0)
        self._drafted = Drafted(torch.empty(0), self.tensors)
        self._records: list[LayerRecord] = []
        self._walked = Walked(torch.empty(0), torch.empty(0))

    @property
    def phases(self) -> tuple[Run, Run, Run, Run]:
        """Draft, verify, accept, commit."""
        return self._draft, self._verify, self._accept, self._commit

    def run(self) -> None:
        """The whole cycle."""
        for phase in self.phases:
            phase()

    def _draft(self) -> None:
        here = self.decoding
        self._drafted = here.drafter.draft(self.tensors, here.texts)
        if here.shapes is not None and self.tree.nodes > 1:
            cycle = here.texts.cycle[:1].clamp(max=here.shapes.shape[0] - 1)
            here.shapes[:, :, : self.tree.nodes].index_copy_(0, cycle, self._drafted.tree.parents[None].short())

    def _verify(self) -> None:
        here = self.decoding
        # Layers may read their states before the kernel in front has ended: none is written by it. A cycle begins with
        # a look-up in the embedding, which begins when all before has ended.
        layers = here.recovery.layers(self.bank)
        self._hidden, self._records = here.model.forward_nodes(*self._drafted, layers, here.how.verify)
        self._logits = here.model.logits(self._hidden)

    def _accept(self) -> None:
        from specla.ops.kernels.accept import accept
        from specla.ops.kernels.choose import Places, best_of_parts

        here, (tokens, tree) = self.decoding, self._drafted
        places = Places(here.texts.rows, here.texts.length, tree.depths)
        best = best_of_parts(self._logits, here.how.sampling, places)
        self._walked = accept(best, tokens, tree.parents, self.tree.depth, here.texts, here.ends, here.log)

    def _commit(self) -> None:
        self.decoding.recovery.commit(self._records, self.bank, self._walked)
        self.decoding.drafter.observe(self._hidden, self._walked, self.decoding.texts)


class DeviceDecoding:
    """Batches decoded one after the other by the same graphs.

    Args:
        model: ready for inference.
        batch: rows of every batch.
        trees: every tree that a cycle may verify, shared by its rows, or as large as what the drafter shapes.
        drafter: on the same device.
        how: the method.
        graphs: what captures.

    Raises:
        SpeclaError: the memory does not suffice; the line says what would fit.
    """

    def __init__(
        self,
        model: GatedDeltaNetLM,
        batch: int,
        trees: tuple[DraftTree, ...],
        drafter: DeviceDrafter,
        how: How,
        graphs: CudaGraphs | None = None,
    ) -> None:
        self.model, self.batch, self.drafter, self.how = model, batch, drafter, how
        self.graphs = graphs or CudaGraphs(model.device)
        depth, limit = max(tree.depth for tree in trees), how.stop.max_new_tokens
        if model.device.type == "cuda":
            nodes = tuple(tree.nodes for tree in trees)
            demand = Demand(batch, nodes, places_of(how.recover, depth + 1), how.recover.name == "snapshot")
            require(model.config, model.dtype, demand, self.graphs.free_bytes)
        self.state = DecodeState.empty(model.config, batch, model.dtype, model.device)
        self.recovery = DeviceRecovery(how.recover, model, self.state, depth + 1)
        zeros = torch.zeros(batch, dtype=torch.int64, device=model.device)
        self.texts = Texts(
            root=zeros.clone(),
            length=self.state.lengths,
            emitted=zeros.new_zeros(batch, limit + depth + 1),
            tokens=zeros.clone(),
            finished=zeros == 1,
            cycle=zeros.clone(),
            rows=zeros.clone(),
        )
        self.log = Log(
            accepted=zeros.new_zeros(limit, batch, dtype=torch.int16),
            kept=zeros.new_zeros(limit, batch, dtype=torch.int16),
            path=zeros.new_zeros(limit, batch, depth + 1, dtype=torch.int16),
        )
        most = max(tree.nodes for tree in trees)
        self.shapes = zeros.new_zeros(limit, batch, most, dtype=torch.int16) if drafter.shapes else None
        """The parents of what was drafted in every cycle, where the drafter shapes trees."""
        self.ends = Ends(limit, torch.tensor(sorted(how.stop.eos_token_ids), dtype=torch.int64, device=model.device))
        self.cycles = {tree.depth: Cycle(self, tree) for tree in trees}
        self._replays: dict[int, Run] = {}
        self._parts: tuple[Run, ...] = ()
        self._start: Prefilled | None = None
        self._stream: torch.cuda.Stream | None = None

    @torch.inference_mode()
    def begin(self, start: Prefilled) -> None:
        """Start on a batch; graphs are captured when the first one is there."""
        self._start = start
        self._load(start)
        if not self._replays:
            self._capture()
            self._load(start)

    def _load(self, start: Prefilled) -> None:
        if start.state.lengths.shape[0] != self.batch or start.sampling != self.how.sampling:
            raise ValueError("a batch of another size or sampling than the graphs are for")
        self.state.copy_(start.state)
        self.recovery.reset()
        texts, roots = self.texts, torch.tensor(start.roots, device=self.model.device)
        texts.rows.copy_(start.rows)
        texts.root.copy_(roots)
        texts.emitted.zero_()
        texts.emitted[:, 0] = roots
        texts.tokens.fill_(1)
        texts.cycle.zero_()
        ended = [self.how.stop.cut([root], 0)[1] for root in start.roots]
        texts.finished.copy_(torch.tensor(ended))
        for part in self.log:
            part.zero_()
        self.drafter.begin(start.prompts, start.roots)
        if start.hidden is not None:
            self.drafter.prime(start.hidden)

    def _capture(self) -> None:
        for depth, cycle in self.cycles.items():
            self.graphs.aside(cycle.run, WARM_UPS)
            self.graphs.aside(cycle.run, 1, may_wait=False)
            self._replays[depth] = self.graphs.capture(cycle.run)

    @torch.inference_mode()
    def advance(self, cycles: int = 1, depth: int | None = None) -> None:
        """Have the device run so many cycles; the host does not wait for them."""
        replay = self._replays[max(self.cycles) if depth is None else depth]
        for _ in range(cycles):
            replay()

    @torch.inference_mode()
    def parts(self) -> tuple[Run, ...]:
        """The four phases of the deepest cycle as graphs of their own: draft, verify, accept, commit."""
        if not self._parts:
            cycle = self.cycles[max(self.cycles)]
            phases = [phase for phase in cycle.phases if phase != cycle.phases[0] or self.drafter.launches]
            graphs = [self.graphs.capture(phase) for phase in phases]
            self._parts = (*([] if self.drafter.launches else [_nothing]), *graphs)
        return self._parts

    def report(self, cycle: int) -> Report:
        """Have what the newest cycle did copied to the host; `cycle` is its place since `begin`."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.model.device)
        return Report(self.log, self.texts, cycle, self._stream)

    @property
    def emitted(self) -> list[list[int]]:
        """Every row's text so far, the prefill's token first. Waits for the device."""
        counts = self.texts.tokens.tolist()
        return [tokens[:count] for tokens, count in zip(self.texts.emitted.tolist(), counts, strict=True)]

    @property
    def finished(self) -> list[bool]:
        """Whether each row has ended. Waits for the device."""
        return [bool(ended) for ended in self.texts.finished.tolist()]

    def steps(self, cycles: int, depths: list[int] | None = None) -> list[Step]:
        """What the first `cycles` cycles did; `depths` are those of their trees. Waits for the device."""
        log = [part[:cycles].tolist() for part in self.log]
        texts, places = self.emitted, [1] * self.batch
        steps = []
        for cycle, (accepted, kept, paths) in enumerate(zip(*log, strict=True)):
            tree = self.cycles[max(self.cycles) if depths is None else depths[cycle]].tree
            emitted = [text[place : place + count] for text, place, count in zip(texts, places, kept, strict=True)]
            places = [place + count for place, count in zip(places, kept, strict=True)]
            path = [nodes[: count + 1] for nodes, count in zip(paths, accepted, strict=True)]
            shaped = self._shaped(tree, cycle)
            steps.append(Step(emitted, accepted, shaped[0], path, (0.0, 0.0, 0.0, 0.0), None, shaped[1]))
        return steps

    def _shaped(self, tree: DraftTree, cycle: int) -> tuple[DraftTree, tuple[DraftTree, ...]]:
        """What `Step` has as its tree and its trees, of a cycle that was asked for a tree."""
        if self.shapes is None or tree.nodes == 1:
            return tree, ()
        rows = self.shapes[cycle, :, 1 : tree.nodes].tolist()
        # Behind the drafts stands padding.
        trees = [DraftTree((-1, *(parent for parent in row if parent >= 0)), tree.name) for row in rows]
        return shared_or_own(trees)

    @torch.inference_mode()
    def settled(self) -> Prefilled:
        """The batch as it stands, as if prompts and text had been prefilled. Waits for the device."""
        assert self._start is not None
        texts = [[*prompt, *out[:-1]] for prompt, out in zip(self._start.prompts, self.emitted, strict=True)]
        roots = self.texts.root.tolist()
        return Prefilled(texts, self.recovery.settled_copy(), roots, self._start.rows, self._start.sampling)

    def release(self) -> None:
        """Give the graphs' memory back."""
        self._replays.clear()
        self._parts = ()
        self.graphs.release()


def _nothing() -> None:
    """The phase of a drafter that launches nothing: torch warns of a graph without nodes."""


def window(kept: Tensor) -> int:
    """Cycles until the first row ended, that one included: kept [cycles, B] is what counted of each cycle."""
    counts = kept.cpu() > 0
    if not counts.shape[0]:
        return 0
    return int(counts.sum(0).min())
