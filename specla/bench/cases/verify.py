"""`ablate verify`: one verification, on a state that it must leave as it is. Copies of the state count where a strategy
makes any."""

import torch

from specla.bench.cases.layers import relative_rms
from specla.bench.cases.operation import Demand, Given, Kind, Operation, pair
from specla.bench.settings import EngineSettings
from specla.models.cost import ModelCost, Traffic


class Verification(Operation):
    """`VerifyStrategy.verify` alone, layer by layer."""

    def __init__(self, given: Given, engine: EngineSettings) -> None:
        super().__init__(given, engine)
        inputs = [layer.inputs for layer in given.layers.layers]
        self._calls = list(zip(given.layers.state, inputs, strict=True))

    def restore(self) -> None:
        # Nothing is written: `error` looks.
        pass

    def run(self) -> None:
        tree = self.layers.tree
        for state, inputs in self._calls:
            self.verify.verify(state, inputs, tree)

    def error(self) -> float:
        self.layers.restore()
        state, inputs = self._calls[0]
        out = self.verify.verify(state, inputs, self.layers.tree).out
        if not torch.equal(state, self.layers.initial[0]):
            raise AssertionError(f"{self.engine.verify} wrote the state that it verifies on")
        return relative_rms(out[self.layers.rows], self.given.truth.outputs(0))


def _traffic(cost: ModelCost, demand: Demand) -> Traffic:
    """One floor for all strategies of a case: the state is read once, factors are left unless nothing was drafted."""
    nodes = demand.tree.nodes
    return cost.verify(demand.batch, nodes, leaves_factors=nodes > 1)


VERIFY = Kind(
    name="verify",
    dial="verify",
    baselines={
        "sequential_replay": pair("sequential_replay", "replay_tokens"),
        "naive_batched": pair("naive_batched", "replay_tokens"),
        "parent_pointer": pair("parent_pointer", "snapshot"),
    },
    make=Verification,
    traffic=_traffic,
    keeps_records=False,
)
