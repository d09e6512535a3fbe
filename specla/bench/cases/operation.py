"""One operation as the ablations time it: by one strategy, over all layers of a model's shape."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from specla.bench.cases.layers import RandomLayers, Truth
from specla.bench.settings import EngineSettings
from specla.models.cost import ModelCost, Traffic
from specla.ops import pairs
from specla.ops.verify import Auto, DispatchTable, VerifyStrategy, get_verify
from specla.topology import DraftTree

TOLERANCES: Mapping[str, Mapping[str, float]] = {
    # Float32 arithmetic over at most 128 nodes in every dtype: both sides read the same rounded q, k and v.
    "verify": {"float32": 2e-6, "bfloat16": 2e-6, "float16": 2e-6},
    # One product over at most 128 factors, or a walk over as many cached inputs.
    "recover": {"float32": 1e-6, "bfloat16": 1e-6, "float16": 1e-6},
    # Several steps of both, each on the state that the one before left.
    "defer": {"float32": 2e-6, "bfloat16": 2e-6, "float16": 2e-6},
    # Projections of other rows are rounded anew: in 16 bits some k and v come out one place apart.
    "replay_tokens": {"float32": 2e-6, "bfloat16": 1e-2, "float16": 2e-3},
}
"""Relative RMS errors against `specla.ops.reference` in float64, by operation and dtype: a cell above its entry fails.
For the same arithmetic tests/tolerances.py has the same figures. Of torch's forms, on a CPU."""

_SPLIT = {"float32": 1e-5, "bfloat16": 1e-5, "float16": 1e-5}
CUDA_TOLERANCES: Mapping[str, Mapping[str, float]] = {
    # A float32 operand, state or u, goes into tensor cores as two bfloat16 halves of 8 bits each: it is off by up to
    # 2^-17, 8e-6 of itself, and the RMS over a sum of many is a third of that.
    "verify": _SPLIT,
    "recover": _SPLIT,
    # Several steps, each on the state that the one before left: the state decays, and its errors with it.
    "defer": _SPLIT,
    # As on a CPU: rounded anew by whichever product has that many rows.
    "replay_tokens": {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3},
}
"""The same for kernels."""


@dataclass(frozen=True)
class Given:
    """What the operations of a case are made of.

    Attributes:
        layers: inputs, which they share.
        truth: what the equations make of them.
        accepted: drafts that a commit takes, down the deepest path.
        table: what `auto` chooses by; None where nothing asks for it.
    """

    layers: RandomLayers
    truth: Truth
    accepted: int
    table: DispatchTable | None = None


@dataclass(frozen=True)
class Demand:
    """What decides how much a call must move, beside the model's shape."""

    batch: int
    tree: DraftTree
    accepted: int
    engine: EngineSettings


class Operation(ABC):
    """One strategy, ready to run. Operations of a case share states and windows, so they take turns.

    Args:
        given: what it runs on.
        engine: the strategy's names and dials.
    """

    def __init__(self, given: Given, engine: EngineSettings) -> None:
        assert engine.verify is not None and engine.recover is not None
        self.given, self.engine, self.layers = given, engine, given.layers
        self.recover_name = engine.recover
        self.verify = _verify_strategy(engine, given.table)
        self.verify.reflects = given.layers.config.allow_neg_eigval

    @property
    def calls(self) -> int:
        """Operations in one `run`: a time is divided by it."""
        return len(self.layers.layers)

    @property
    def why(self) -> str:
        """What `auto` picked, and why; empty for all others."""
        if not isinstance(self.verify, Auto):
            return ""
        return self.verify.choose(self.layers.tree.tree, self.layers.batch, self.layers.config.head_shape)[1]

    def restore(self) -> None:
        """Off the clock: everything that it writes is as it was at first."""
        self.layers.restore()

    @abstractmethod
    def run(self) -> None:
        """All layers in turn."""

    def held(self) -> object:
        """What a run reads and then lets go of, for as long as a captured one is replayed."""
        return None

    @abstractmethod
    def error(self) -> float:
        """Relative RMS error of the first layer against the equations."""


@dataclass(frozen=True)
class Kind:
    """One of the ablations of single operations.

    Attributes:
        name: verify, recover or defer.
        dial: which of a cell's names tells its strategies apart.
        baselines: the strategies that every cell is compared with, by that name, the main one first, each with the pair
            that stands in for it where the user asked for none.
        make: an operation of this kind.
        traffic: what one call must move, by the costs of a layer.
        keeps_records: whether the verifications of all layers are in memory at once.
    """

    name: Literal["verify", "recover", "defer"]
    dial: Literal["verify", "recover"]
    baselines: Mapping[str, EngineSettings]
    make: Callable[[Given, EngineSettings], Operation]
    traffic: Callable[[ModelCost, Demand], Traffic]
    keeps_records: bool

    def tolerance(self, engine: EngineSettings, dtype: str, device: str = "cpu") -> float:
        """The largest error of a strategy that still counts as right."""
        again = engine.recover == "replay_tokens" and self.name != "verify"
        table = CUDA_TOLERANCES if device.startswith("cuda") else TOLERANCES
        return table["replay_tokens" if again else self.name][dtype]

    def baseline(self, name: str, of: EngineSettings, planned: Sequence[EngineSettings]) -> EngineSettings:
        """What stands for a baseline beside a cell.

        Of a way to recover: with the cell's own verification, where they go together. Else the first of the case that
        the user asked for, else the usual pair.
        """
        if self.dial == "recover" and name in pairs.RECOVERS_WITH[str(of.verify)]:
            return pair(str(of.verify), name)
        asked = (engine for engine in planned if getattr(engine, self.dial) == name)
        return next(asked, self.baselines[name])


def pair(verify: str, recover: str) -> EngineSettings:
    """The engine of a cell with these two, in normal form."""
    return EngineSettings(name="specla", verify=verify, recover=recover)


def _verify_strategy(engine: EngineSettings, table: DispatchTable | None) -> VerifyStrategy:
    strategy = get_verify(str(engine.verify), pairs.NEEDS[str(engine.recover)])
    if isinstance(strategy, Auto):
        strategy.table = table
    return strategy
