"""Random inputs of a model's shape for every layer, and what the equations make of them in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import torch
from torch import Tensor

from specla.bench.estimate import mixers_alone
from specla.models.checkpoint import random_model
from specla.models.config import GatedDeltaNetConfig
from specla.models.cost import ModelCost
from specla.models.layers import GatedDeltaNet
from specla.ops.recover import Record
from specla.ops.reference import reference_commit, reference_verify
from specla.ops.types import NodeInputs, TreeTensors, VerifyOutput
from specla.topology import DraftTree

CHECKED_ROWS = 8
"""Rows of a batch that are held against the equations, spread evenly: those go node by node."""
COLD = 2
"""States of this many times the cache, taken in turn, are all in memory again when their turn comes."""
MOST_LAYERS = 512
"""Beyond a model's own: tiny states stay in a large cache, and whoever times them says so."""


@dataclass(frozen=True)
class Layer:
    """One layer as a step finds it, the nodes of a draft tree on their way through.

    Attributes:
        mixer: its weights.
        x: [B, T, hidden], the mixer's input.
        raw: [B, T, C], inputs of the short convolution.
        window: [B, W-1, C], the committed ones before those.
        inputs: of the delta rule.
    """

    mixer: GatedDeltaNet
    x: Tensor
    raw: Tensor
    window: Tensor
    inputs: NodeInputs

    def record(self, output: VerifyOutput, window: Tensor) -> Record:
        """What its verification leaves for recovery; `window` is the live one."""
        states = None if output.states is None else (output.states,)
        return Record(output.factors, states, self.inputs, self.x, window)


class RandomLayers:
    """All layers of a model's shape, with random weights, on random tokens and states.

    Their inputs come out of projections, convolutions and gates: unit keys, decays as a model starts out with. Where a
    cache could hold the states of all layers there are more layers, so that each finds its state in memory, as in a
    decoding step, which reads gigabytes of weights in between.

    Args:
        config: the shape.
        batch: B.
        tree: of all rows.
        dtype: of the weights, and of q, k and v.
        device: where.
        seed: of everything random.
        cache_bytes: of the cache that must not hold the states; 0 makes the model's own layers and no more.
    """

    def __init__(
        self,
        config: GatedDeltaNetConfig,
        batch: int,
        tree: DraftTree,
        dtype: torch.dtype,
        device: str,
        seed: int,
        cache_bytes: int = 0,
    ) -> None:
        self.config, self.batch, self.dtype = config, batch, dtype
        self.tree = TreeTensors.from_tree(tree, device, config.conv_size)
        # Drawn where it is used: gigabytes of states would take longer to cross the bus than to time.
        generator = torch.Generator(device).manual_seed(seed)

        def draw(*sizes: int) -> Tensor:
            return torch.randn(*sizes, generator=generator, device=device)

        count = layer_count(config, batch, cache_bytes)
        self.initial = draw(count, batch, config.num_v_heads, config.head_v_dim, config.head_dim)
        self.state = self.initial.clone()
        """[layers, B, HV, V, K] float32, which operations may write."""
        mixers = _mixers(config, dtype, device, seed)
        self.layers = []
        for i in range(count):
            x, before = (draw(batch, n, config.hidden_size).to(dtype) for n in (tree.nodes, config.conv_size - 1))
            self.layers.append(_layer(mixers[i % len(mixers)], x, before, self.tree))
        self.windows = [layer.window.clone() for layer in self.layers]
        """[B, W-1, C] each, which operations may write."""
        self.rows = torch.linspace(0, batch - 1, min(batch, CHECKED_ROWS)).round().long().tolist()
        self.cold = self.state.nbytes >= COLD * cache_bytes
        """Whether the cache is too small for the states to stay in it."""

    def restore(self) -> None:
        """Put states and windows back to what they were before anything was committed."""
        self.state.copy_(self.initial)
        for window, layer in zip(self.windows, self.layers, strict=True):
            window.copy_(layer.window)

    def path(self, accepted: int) -> tuple[Tensor, Tensor]:
        """(path [B, L], length [B]), that many drafts down the tree's deepest path in every row; L is accepted + 1."""
        nodes = torch.tensor(self.path_nodes(accepted), device=self.initial.device)
        return nodes.expand(self.batch, -1).contiguous(), nodes.new_full((self.batch,), len(nodes))

    def path_nodes(self, accepted: int) -> tuple[int, ...]:
        """The nodes of that path."""
        tree = self.tree.tree
        return tree.path(int(tree.depths.argmax()))[: accepted + 1]


class Truth:
    """The checked rows of the first layer in float64: every step verifies the tree, then commits the same path.

    Args:
        layers: the inputs.
        accepted: drafts that every step accepts.
    """

    def __init__(self, layers: RandomLayers, accepted: int = 0) -> None:
        self._layers, self._nodes = layers, layers.path_nodes(accepted)
        self._states = [layers.initial[0][layers.rows].double()]
        self._outputs: dict[int, Tensor] = {}

    def outputs(self, step: int) -> Tensor:
        """Of a step's verification, the first being 0: [rows, T, HV, V]."""
        if step not in self._outputs:
            self._outputs[step] = self._by_row(self._verify, self.state(step))
        return self._outputs[step]

    def state(self, steps: int) -> Tensor:
        """After that many steps: [rows, HV, V, K]."""
        while len(self._states) <= steps:
            self._states.append(self._by_row(self._commit, self._states[-1]))
        return self._states[steps]

    def _verify(self, state: Tensor, inputs: NodeInputs) -> Tensor:
        return reference_verify(state, inputs, self._layers.tree).out

    def _commit(self, state: Tensor, inputs: NodeInputs) -> Tensor:
        path = torch.tensor([self._nodes])
        return reference_commit(state, inputs, path, torch.tensor([len(self._nodes)]))

    def _by_row(self, equation: Callable[[Tensor, NodeInputs], Tensor], states: Tensor) -> Tensor:
        """Row by row, since the reference holds a state for every node."""
        inputs = self._layers.layers[0].inputs
        found = []
        for state, row in zip(states.split(1), self._layers.rows, strict=True):
            found.append(equation(state, NodeInputs(*(x[row : row + 1] for x in inputs))))
        return torch.cat(found)


def relative_rms(value: Tensor, truth: Tensor) -> float:
    """RMS of the difference over RMS of the truth; infinite where the value is not finite."""
    if not bool(value.isfinite().all()):
        return float("inf")
    scale = truth.double().square().mean().sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    return float((value.double() - truth.double()).square().mean().sqrt() / scale)


def layer_count(config: GatedDeltaNetConfig, batch: int, cache_bytes: int) -> int:
    """The model's layers, or as many as it takes for a cache not to hold their states, up to MOST_LAYERS."""
    own = config.num_hidden_layers
    state_bytes = batch * ModelCost(config, torch.float32.itemsize).one_layer.state_bytes
    return max(own, min(MOST_LAYERS, ceil(COLD * cache_bytes / state_bytes)))


@lru_cache(maxsize=1)
def _mixers(config: GatedDeltaNetConfig, dtype: torch.dtype, device: str, seed: int) -> tuple[GatedDeltaNet, ...]:
    """Token mixers that layers share in turn; the same for all cases of a run, as large ones take seconds to draw."""
    model = random_model(mixers_alone(config, dtype.itemsize), dtype, device, seed)
    return tuple(block.attn for block in model.blocks)


def _layer(mixer: GatedDeltaNet, x: Tensor, before: Tensor, tree: TreeTensors) -> Layer:
    window = mixer.project(before)[0].contiguous()
    raw, _, inputs = mixer.node_inputs(x, tree, window)
    return Layer(mixer, x, raw, window, inputs)
