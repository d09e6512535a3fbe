"""One step of decoding a layer: verification, and what recovery reads of it."""

import torch
from torch import Tensor

from specla.ops.recover import Record, RecoverStrategy, get_recover
from specla.ops.rows import take_nodes
from specla.ops.types import NodeInputs, TreeTensors
from specla.ops.verify import VerifyStrategy, get_verify
from specla.topology import DraftTree


class Layer:
    """What `replay_tokens` generates again: here the inputs of a token are looked up by what the layer reads."""

    def __init__(self) -> None:
        self.inputs: NodeInputs | None = None

    def read(self, inputs: NodeInputs) -> Tensor:
        """The layer's input of these nodes: their numbers."""
        self.inputs = inputs
        batch, nodes = inputs.g.shape[:2]
        return torch.arange(nodes, device=inputs.g.device)[None, :, None].expand(batch, nodes, 1).float()

    def regenerate(self, x: Tensor, window: Tensor) -> NodeInputs:
        assert self.inputs is not None and window.shape == (x.shape[0], 3, 1)
        return NodeInputs(*(take_nodes(part, x[..., 0].long()) for part in self.inputs))


def make(
    verify: str, recover: str, longest: int, ring: int = 0, reflects: bool = False
) -> tuple[VerifyStrategy, RecoverStrategy, Layer]:
    layer = Layer()
    strategy = get_recover(recover, regenerate=layer.regenerate, ring=ring or longest + 2, longest=longest)
    verifier = get_verify(verify, strategy.needs)
    verifier.reflects = strategy.reflects = reflects
    return verifier, strategy, layer


def step(
    verify: VerifyStrategy, recover: RecoverStrategy, layer: Layer, state: Tensor, inputs: NodeInputs, tree: DraftTree
) -> tuple[Tensor, Record]:
    """One verification; its outputs, and what it left."""
    found = verify.verify(state, inputs, TreeTensors.from_tree(tree, state.device), *recover.pending())
    x = layer.read(inputs)
    window = torch.zeros(state.shape[0], 3, 1, device=state.device)
    states = None if found.states is None else (found.states,)
    return found.out, Record(factors=found.factors, states=states, gated=inputs, x=x, window=window)
