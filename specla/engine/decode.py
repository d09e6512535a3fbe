"""The decoding loop, once, for every method: draft -> verify -> accept -> emit -> commit.

Autoregressive decoding is this loop with zero drafts: same sampler, dtype, stop rule and token counter.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from specla.drafters.base import Draft, Drafter, NoDrafter, Verified
from specla.engine.accept import Acceptance, accept
from specla.engine.adaptive import Adaptive, outcome_of
from specla.engine.recovery import EngineRecovery, Recovery
from specla.errors import SpeclaError
from specla.interrupt import check
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.records import LayerRecord
from specla.models.state import DecodeState
from specla.ops.noise import forget_noise
from specla.ops.sampling import Sampling, choose
from specla.ops.types import TreeTensors
from specla.ops.verify import VerifyStrategy, get_verify
from specla.topology import DraftTree, chain


@dataclass(frozen=True)
class StopRule:
    """When a row ends: after `max_new_tokens`, the prefill's token included, or after an end-of-text token."""

    max_new_tokens: int
    eos_token_ids: frozenset[int] = frozenset()

    def cut(self, tokens: list[int], emitted_before: int) -> tuple[list[int], bool]:
        """The part of a step's tokens that counts, and whether the row ends with it."""
        tokens = tokens[: self.max_new_tokens - emitted_before]
        for i, token in enumerate(tokens):
            if token in self.eos_token_ids:
                return tokens[: i + 1], True
        return tokens, emitted_before + len(tokens) >= self.max_new_tokens


@dataclass(frozen=True)
class Prefilled:
    """A batch after its prompts: what every method starts from.

    Attributes:
        prompts: token ids, a list a row.
        state: all prompt tokens committed.
        roots: [B], the first token of each row, already emitted, not yet in the state.
        rows: [B] int64, identities in the noise.
        sampling: how the roots were chosen, and all that follows is.
        hidden: [B, S, hidden], hidden states of the prompts, padded on the left; for drafters that go on from them.
        flat: whether all tokens had the same logit in some row, so that its root means nothing.
    """

    prompts: list[list[int]]
    state: DecodeState
    roots: list[int]
    rows: Tensor
    sampling: Sampling
    hidden: Tensor | None = None
    flat: bool = False


@torch.inference_mode()
def prefill(
    model: GatedDeltaNetLM, prompts: Sequence[Sequence[int]], sampling: Sampling, rows: Iterable[int] | None = None
) -> Prefilled:
    """Run prompts of any lengths, and choose each row's first token.

    Args:
        prompts: token ids, at least one a row.
        rows: identities in the noise; 0, 1, 2, ... unless given.

    Raises:
        SpeclaError: there is no prompt, one has no tokens, or the logits are not finite.
    """
    empty = [str(row) for row, prompt in enumerate(prompts) if not len(prompt)]
    if empty or not len(prompts):
        what = f"prompt {empty[0]} of {len(prompts)} has no tokens" if empty else "no prompts"
        raise SpeclaError(f"{what}: a model goes on from at least one token")
    length = max(len(prompt) for prompt in prompts)
    tokens = torch.tensor([[0] * (length - len(p)) + list(p) for p in prompts], device=model.device)
    lengths = torch.tensor([len(p) for p in prompts], device=model.device)
    full = all(len(p) == length for p in prompts)
    valid = None if full else torch.arange(length, device=model.device) >= length - lengths[:, None]
    state = DecodeState.empty(model.config, len(prompts), model.dtype, model.device)
    hidden = model.extend(tokens, state, valid)
    row_ids = torch.tensor(list(rows if rows is not None else range(len(prompts))), device=model.device)
    logits = model.logits(hidden[:, -1])
    if not logits.isfinite().all():
        raise SpeclaError("the model's logits are not finite after the prompt: its weights or config are broken")
    roots = choose(logits, sampling, row_ids, state.lengths)
    flat = bool((logits == logits[:, :1]).all(-1).any())
    return Prefilled([list(p) for p in prompts], state, roots.tolist(), row_ids, sampling, hidden, flat)


@dataclass(frozen=True)
class Step:
    """What one step did.

    Attributes:
        emitted: tokens that count, a list a row: accepted drafts and the bonus token, cut at the stop rule.
        accepted: accepted drafts a row, before the cut.
        tree: the tree that was verified, of all rows or the deepest.
        path: the accepted nodes a row, root first, before the cut.
        seconds: of the four phases draft, verify, accept, commit.
        asked: the tree that was asked for, where the drafter filled less of it; siblings keep their order.
        trees: one a row, where rows have trees of their own; else empty.
    """

    emitted: list[list[int]]
    accepted: list[int]
    tree: DraftTree
    path: list[list[int]]
    seconds: tuple[float, float, float, float]
    asked: DraftTree | None = None
    trees: tuple[DraftTree, ...] = ()

    def tree_of(self, row: int) -> DraftTree:
        """The tree that was verified for a row."""
        return self.trees[row] if self.trees else self.tree


class _Plain:
    """AR's own way to verify and commit, on a state that another recovery shares."""

    def __init__(self, model: GatedDeltaNetLM, state: DecodeState) -> None:
        self.verify = get_verify("ar")
        self.recovery = EngineRecovery("in_place", model, state, 1)


class Decoding:
    """One batch being decoded. The prefilled state is copied, so that many methods can start from one prefill.

    Args:
        model: ready for inference.
        start: the batch.
        tree: the tree to draft; a drafter may fill less of it.
        drafter: already told of nothing.
        verify: strategy that makes what `recover` needs.
        recover: the recovery strategy, by name alone where its ring is the usual one.
        stop: when rows end.
    """

    def __init__(
        self,
        model: GatedDeltaNetLM,
        start: Prefilled,
        tree: DraftTree,
        drafter: Drafter,
        verify: VerifyStrategy,
        recover: str | Recovery,
        stop: StopRule,
    ) -> None:
        self.model, self.start, self.tree, self.drafter = model, start, tree, drafter
        self.verify, self.stop = verify, stop
        self.state = start.state.clone()
        chosen = Recovery(recover) if isinstance(recover, str) else recover
        self.recovery = EngineRecovery(chosen.name, model, self.state, tree.depth + 1, chosen.ring)
        self.adaptive: Adaptive | None = None
        self._plain: _Plain | None = None
        self.emitted = [[root] for root in start.roots]
        self.finished = [stop.cut([root], 0)[1] for root in start.roots]
        forget_noise()
        drafter.begin(start.prompts, start.roots)
        if start.hidden is not None:
            drafter.prime(start.hidden)

    def adapt(self, adaptive: Adaptive) -> "Decoding":
        """Let `adaptive` decide how deep each step drafts, from now on."""
        self.adaptive, self._plain = adaptive, _Plain(self.model, self.state)
        return self

    @property
    def done(self) -> bool:
        """Whether every row has ended."""
        return all(self.finished)

    @torch.inference_mode()
    def step(self) -> Step:
        """One cycle over the batch."""
        check()
        started = time.perf_counter()
        asked = self.tree if self.adaptive is None else self.adaptive.choose()
        draft = self.drafter.draft(asked)
        verify, recovery = self._ways(asked)
        tokens = torch.tensor(draft.tokens, device=self.model.device)
        tree = drafted_tensors(draft, self.model.device, self.model.config.conv_size)
        drafted = time.perf_counter()
        hidden, records = self.model.forward_nodes(tokens, tree, recovery.layers(), verify)
        logits = self.model.logits(hidden)
        verified = time.perf_counter()
        acceptance = accept(logits, tokens, tree, self.start.sampling, self.start.rows, self.state.lengths)
        emitted, accepted = self._emit(acceptance)
        decided = time.perf_counter()
        length = self._commit(acceptance, records, recovery)
        committed = time.perf_counter()
        self.drafter.verified(Verified(hidden, acceptance.path, acceptance.emitted, length))
        self.drafter.observe(emitted)
        observed = time.perf_counter()
        seconds = (
            drafted - started + observed - committed,
            verified - drafted,
            decided - verified,
            committed - decided,
        )
        if self.adaptive is not None:
            taken = [a for a, kept in zip(accepted, emitted, strict=True) if kept]
            self.adaptive.observe(outcome_of(asked.depth, draft.tree.depth, taken, observed - started))
        path = [nodes[: a + 1] for nodes, a in zip(acceptance.path.tolist(), accepted, strict=True)]
        wanted = None if draft.shaped or draft.tree is asked else asked
        return Step(emitted, accepted, draft.tree, path, seconds, wanted, draft.trees)

    def _emit(self, acceptance: Acceptance) -> tuple[list[list[int]], list[int]]:
        """Cut each row's tokens at its end; a finished row emits nothing."""
        chosen, accepted = acceptance.emitted.tolist(), acceptance.accepted.tolist()
        emitted: list[list[int]] = []
        for row, tokens in enumerate(chosen):
            kept: list[int] = []
            if not self.finished[row]:
                kept, self.finished[row] = self.stop.cut(tokens[: accepted[row] + 1], len(self.emitted[row]))
                self.emitted[row] += kept
            emitted.append(kept)
        return emitted, accepted

    def _ways(self, asked: DraftTree) -> tuple[VerifyStrategy, EngineRecovery]:
        """How to verify and commit this step: as configured, or as AR does where no draft is asked for."""
        if self._plain is None or asked.nodes > 1:
            return self.verify, self.recovery
        # AR reads the state itself.
        self.recovery.flush()
        return self._plain.verify, self._plain.recovery

    def _commit(self, acceptance: Acceptance, records: list[LayerRecord], recovery: EngineRecovery) -> Tensor:
        """Commit the root and the accepted drafts of every row that goes on, the others nothing: how many, [B]."""
        length = acceptance.accepted + 1
        if any(self.finished):
            length = length.masked_fill(torch.tensor(self.finished, device=length.device), 0)
        recovery.commit(records, acceptance.path, length)
        self.state.lengths += length
        return length

    def flush(self) -> DecodeState:
        """The state with everything committed taken in; it may be read until the next step."""
        self.recovery.flush()
        return self.state


def trace_rows(decoding: Decoding) -> None:
    """Give an oracle new traces of the rows that left theirs by a near tie: AR from here on, on a copy of the state."""
    rows = list(decoding.drafter.rows_off_trace())
    if not rows:
        return
    texts = [[*prompt, *out[:-1]] for prompt, out in zip(decoding.start.prompts, decoding.emitted, strict=True)]
    roots = [tokens[-1] for tokens in decoding.emitted]
    here = replace(decoding.start, prompts=texts, state=decoding.recovery.settled_copy(), roots=roots, hidden=None)
    stop = StopRule(decoding.stop.max_new_tokens + decoding.tree.depth)
    ar = Decoding(decoding.model, here, chain(0), NoDrafter(), get_verify("ar"), "in_place", stop)
    while not ar.done:
        ar.step()
    for row in rows:
        decoding.drafter.retrace(row, ar.emitted[row][1:])


@lru_cache(maxsize=256)
def tree_tensors(tree: DraftTree, device: torch.device, conv_size: int) -> TreeTensors:
    """A tree's tensors on a device, kept: trees recur from step to step."""
    return TreeTensors.from_tree(tree, device, conv_size)


def drafted_tensors(draft: Draft, device: torch.device, conv_size: int) -> TreeTensors:
    """The tensors of a draft's tree, or of a tree for each row."""
    if not draft.trees:
        return tree_tensors(draft.tree, device, conv_size)
    return TreeTensors.from_rows(draft.trees, device, conv_size)
