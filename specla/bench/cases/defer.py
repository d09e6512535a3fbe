"""`ablate defer`: a verification and the commit of what it accepted, step after step, however the commit is done.

A step verifies all layers, then commits all, as the decoding loop does, so that a commit finds the state as cold as
there. Every layer is committed by a call of its own; where calls are dear, as on a CPU, the loop pays less for a commit
at once, since it takes all layers in one. The convolution's windows are left out: they are the same for all.
"""

from typing import NamedTuple

from torch import Tensor

from specla.bench.cases.layers import Layer, relative_rms
from specla.bench.cases.operation import Demand, Given, Kind, Operation, pair
from specla.bench.settings import EngineSettings
from specla.models.cost import ModelCost, Traffic
from specla.ops.recover import RING, RecoverStrategy, get_recover
from specla.ops.types import VerifyOutput


class _Place(NamedTuple):
    """One layer, with its own recovery and its share of the state."""

    recovery: RecoverStrategy
    layer: Layer
    state: Tensor
    window: Tensor


class Steps(Operation):
    """Steps in their steady state: as many in a run as it takes a ring to come round."""

    def __init__(self, given: Given, engine: EngineSettings) -> None:
        super().__init__(given, engine)
        layers, ring = given.layers, engine.ring or RING
        longest = layers.tree.tree.depth + 1
        self._path, self._length = layers.path(given.accepted)
        self._steps = period(engine, given.accepted + 1, longest)
        self._places = []
        for layer, state, window in zip(layers.layers, layers.state, layers.windows, strict=True):
            again = layer.mixer.regenerate
            recovery = get_recover(self.recover_name, regenerate=again, ring=ring, longest=longest)
            recovery.reflects = self.verify.reflects
            self._places.append(_Place(recovery, layer, state, window))

    @property
    def calls(self) -> int:
        return len(self._places) * self._steps

    def restore(self) -> None:
        """The first state again, then once round, so that what is pending, and what a ring holds, is as ever after."""
        self.layers.restore()
        for place in self._places:
            place.recovery.reset()
        self.run()

    def run(self) -> None:
        for _ in range(self._steps):
            outputs = [self._verify(place) for place in self._places]
            for place, output in zip(self._places, outputs, strict=True):
                self._commit(place, output)

    def held(self) -> object:
        # What is pending is another tensor after every step.
        return [dict(vars(place.recovery)) for place in self._places]

    def error(self) -> float:
        self.layers.restore()
        place, truth, rows = self._places[0], self.given.truth, self.layers.rows
        place.recovery.reset()
        # Beyond the first fold, which comes after the ring has come round.
        steps, worst = self._steps + 2, 0.0
        for step in range(steps):
            output = self._verify(place)
            worst = max(worst, relative_rms(output.out[rows], truth.outputs(step)))
            self._commit(place, output)
        place.recovery.flush(place.state)
        return max(worst, relative_rms(place.state[rows], truth.state(steps)))

    def _verify(self, place: _Place) -> VerifyOutput:
        known, fold = place.recovery.pending()
        return self.verify.verify(place.state, place.layer.inputs, self.layers.tree, known, fold)

    def _commit(self, place: _Place, output: VerifyOutput) -> None:
        record = place.layer.record(output, place.window)
        place.recovery.commit(place.state, record, self._path, self._length)


def period(engine: EngineSettings, committed: int, longest: int) -> int:
    """Steps from one fold to the next where each commits `committed` tokens and might commit `longest`."""
    if engine.recover != "factors_lazy":
        return 1
    return ((engine.ring or RING) - longest) // committed + 1


def _traffic(cost: ModelCost, demand: Demand) -> Traffic:
    """Mean of a period: every step reads the state and what was committed since the last fold; one writes the state.

    Committing at once has the floor of deferring, so that what it moves beyond that shows.
    """
    committed, total = demand.accepted + 1, Traffic()
    steps = period(demand.engine, committed, demand.tree.depth + 1)
    for step in range(steps):
        known, folds = committed * (step + 1), step == steps - 1
        total += cost.verify(demand.batch, demand.tree.nodes, known=known, writes_state=folds)
    return Traffic(total.read_bytes // steps, total.written_bytes // steps)


DEFER = Kind(
    name="defer",
    dial="recover",
    baselines={"factors": pair("tree", "factors")},
    make=Steps,
    traffic=_traffic,
    keeps_records=True,
)
