"""What a layer starts from, and what it leaves."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from specla.ops.types import Bank, Fold, Known, NodeInputs, VerifyOutput


@dataclass(frozen=True)
class LayerRecord:
    """What one layer's verification leaves for its recovery.

    Attributes:
        x: [B, T, hidden], the mixer's input; token replay generates the factors again from it.
        conv_inputs: [B, T, C], raw inputs of the short convolution, from which the window recovers.
        inputs: the delta rule's inputs, cached for `replay_cached`; None where no such recovery asked for them.
        output: outputs, and factors or states as the strategy produced them.
    """

    x: Tensor
    conv_inputs: Tensor
    inputs: NodeInputs | None
    output: VerifyOutput


@dataclass(frozen=True)
class LayerState:
    """One layer's slice of a decode state.

    Attributes:
        recurrent: [B, HV, V, K].
        window: [B, W-1, C].
        known, fold: what is not folded yet.
        bank: where the next verification leaves its factors, or None for memory of its own.
    """

    recurrent: Tensor
    window: Tensor
    known: Known | None = None
    fold: Fold = None
    bank: Bank | None = None


class Projected(NamedTuple):
    """A layer's input projections.

    Attributes:
        raw: [B, T, C], inputs of the short convolution.
        gate: of the output, [B, T, HV*V], or None.
        a: of the decay, [B, T, HV].
        b: of the write strength, [B, T, HV].
    """

    raw: Tensor
    gate: Tensor | None
    a: Tensor
    b: Tensor


class Ran(NamedTuple):
    """What a layer has run of a draft tree.

    Attributes:
        projected: [B, T, N], input projections of the nodes that have run, and room for the others.
        nodes: how many have run.
    """

    projected: Tensor
    nodes: int
