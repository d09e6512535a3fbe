"""`ablate recover`: one commit of what was accepted, the convolution's window included. Verification is off the clock.

Layer by layer, as one operation; the decoding loop commits all layers in one call where a strategy can.
"""

from specla.bench.cases.layers import relative_rms
from specla.bench.cases.operation import Demand, Given, Kind, Operation, pair
from specla.bench.settings import EngineSettings
from specla.models.cost import ModelCost, Traffic
from specla.ops.recover import get_recover
from specla.ops.types import Moving


class Commit(Operation):
    """`RecoverStrategy.commit` and the window, layer by layer, from what one verification left."""

    def __init__(self, given: Given, engine: EngineSettings) -> None:
        super().__init__(given, engine)
        layers = given.layers
        layers.restore()
        self._path, self._length = layers.path(given.accepted)
        self._calls = []
        for state, window, layer in zip(layers.state, layers.windows, layers.layers, strict=True):
            strategy = get_recover(self.recover_name, regenerate=layer.mixer.regenerate)
            strategy.reflects = self.verify.reflects
            output = self.verify.verify(state, layer.inputs, layers.tree)
            self._calls.append((strategy, state, layer.record(output, window), Moving(window, layer.raw)))

    def run(self) -> None:
        path, length = self._path, self._length
        for strategy, state, record, moving in self._calls:
            strategy.commit(state, record, path, length, moving)

    def error(self) -> float:
        self.restore()
        strategy, state, record, _ = self._calls[0]
        strategy.commit(state, record, self._path, self._length)
        return relative_rms(state[self.layers.rows], self.given.truth.state(1))


def _traffic(cost: ModelCost, demand: Demand) -> Traffic:
    """One floor for all strategies of a case: the state read and written, factors read, a window read and written."""
    window = demand.batch * cost.window_bytes
    return cost.commit(demand.batch, demand.accepted + 1) + Traffic(window, window)


RECOVER = Kind(
    name="recover",
    dial="recover",
    baselines={
        "replay_tokens": pair("sequential_replay", "replay_tokens"),
        "replay_cached": pair("sequential_replay", "replay_cached"),
        "snapshot": pair("parent_pointer", "snapshot"),
    },
    make=Commit,
    traffic=_traffic,
    keeps_records=True,
)
