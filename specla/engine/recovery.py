"""Recovery over all layers of a model: which rows of the state, which records, which window."""

from typing import NamedTuple

import torch
from torch import Tensor

from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.records import LayerRecord, LayerState
from specla.models.state import DecodeState
from specla.ops.conv import move_window
from specla.ops.known import fold_known
from specla.ops.recover import RING, Record, RecoverStrategy, get_recover
from specla.ops.rows import stack_factors
from specla.ops.types import Moving, NodeInputs


class Recovery(NamedTuple):
    """How a decode recovers: the strategy, and places of the ring of `factors_lazy`."""

    name: str
    ring: int = RING


class EngineRecovery:
    """Commits accepted paths into a decode state, in place.

    Layers are stacked in the rows, so that one product serves all of them; token replay goes layer by layer, since it
    runs each layer's own weights again.

    Args:
        name: of the recovery strategy.
        state: written by every commit.
        longest: the most nodes that a step commits, D + 1.
        ring: places of the ring of `factors_lazy`.
    """

    def __init__(self, name: str, model: GatedDeltaNetLM, state: DecodeState, longest: int, ring: int = RING) -> None:
        self.state = state
        mixers = [block.attn for block in model.blocks]
        self.strategy = get_recover(name, regenerate=mixers[0].regenerate, ring=ring, longest=longest)
        self.strategy.reflects = model.config.allow_neg_eigval
        self._per_layer: list[RecoverStrategy] = []
        if "inputs" in self.strategy.needs:
            self._per_layer = [get_recover(name, regenerate=mixer.regenerate) for mixer in mixers]

    def layers(self) -> list[LayerState]:
        """What the next verification starts from, a layer at a time."""
        known, fold = self.strategy.pending()
        batch = self.state.recurrent.shape[1]
        layers = []
        for i, (recurrent, window) in enumerate(zip(self.state.recurrent, self.state.window, strict=True)):
            span = (i * batch, (i + 1) * batch)
            pending = None if known is None else known.rows(*span)
            folds = fold[slice(*span)] if isinstance(fold, Tensor) else fold
            layers.append(LayerState(recurrent, window, pending, folds))
        return layers

    def commit(self, records: list[LayerRecord], path: Tensor, length: Tensor, raw: Tensor | None = None) -> None:
        """Commit path[b, :length[b]] of every row, state and convolution window; a row of length 0 keeps its bits.

        `raw` [L * B, T, C] is the records' convolution inputs, where they lie together already.
        """
        needs = self.strategy.needs
        inputs = torch.cat([record.conv_inputs for record in records]) if raw is None else raw
        moving = Moving(self.state.window.flatten(0, 1), inputs)
        if not self._per_layer:
            self.strategy.commit(self.state.recurrent.flatten(0, 1), _stack(records, needs), path, length, moving)
            return
        for i, (strategy, record) in enumerate(zip(self._per_layer, records, strict=True)):
            layer = Record(x=record.x, window=self.state.window[i])
            strategy.commit(self.state.recurrent[i], layer, path, length)
        # All layers at once, after each has read its old one.
        move_window(moving, path, length)

    def settled_copy(self) -> DecodeState:
        """A copy of the state with everything pending taken in; this one stays as it is."""
        copy = self.state.clone()
        known, _ = self.strategy.pending()
        if known is not None:
            fold_known(copy.recurrent.flatten(0, 1), known)
        return copy

    def flush(self) -> None:
        """Take everything pending into the state."""
        self.strategy.flush(self.state.recurrent.flatten(0, 1))


def _stack(records: list[LayerRecord], needs: frozenset[str]) -> Record:
    """The records of all layers, layer by layer in the rows: only what is needed."""
    outputs = [record.output for record in records]
    factors = states = gated = None
    if "factors" in needs:
        factors = stack_factors([output.factors for output in outputs if output.factors is not None])
    if "states" in needs:
        states = tuple(output.states for output in outputs if output.states is not None)
    if "gated" in needs:
        inputs = [record.inputs for record in records if record.inputs is not None]
        gated = NodeInputs(*(torch.cat(parts) for parts in zip(*inputs, strict=True)))
    return Record(factors=factors, states=states, gated=gated)
