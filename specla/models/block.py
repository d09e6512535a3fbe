"""One layer of a gated delta net: the mixer and the MLP on the residual stream."""

from torch import Tensor, nn

from specla.models.config import GatedDeltaNetConfig
from specla.models.layers import GatedDeltaNet
from specla.models.parts import GatedMLP, RMSNorm
from specla.models.records import LayerRecord, LayerState, Ran
from specla.ops.linear import Stream
from specla.ops.types import TreeTensors
from specla.ops.verify import VerifyStrategy


class Block(nn.Module):
    """One pre-norm layer: mixer, then MLP."""

    def __init__(self, config: GatedDeltaNetConfig) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attn = GatedDeltaNet(config)
        self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size)

    def sequence(
        self, hidden: Tensor, state: LayerState | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """Consecutive tokens, [B, T, hidden]."""
        mixed, state = self.attn.sequence(self.attn_norm(hidden), state, valid)
        hidden = hidden + mixed
        return hidden + self.mlp(self.mlp_norm(hidden)), state

    def nodes(
        self, stream: Stream, tree: TreeTensors, state: LayerState, verify: VerifyStrategy
    ) -> tuple[Stream, LayerRecord]:
        """The nodes of a draft tree, [B, T, hidden]."""
        stream, record = self.attn.nodes(stream, self.attn_norm.norm, tree, state, verify)
        return self.mlp.added(stream, self.mlp_norm.norm), record

    def more_nodes(
        self, stream: Stream, ran: Ran, tree: TreeTensors, state: LayerState, verify: VerifyStrategy
    ) -> Stream:
        """Some more nodes of a draft tree, [B, m, hidden]: see the mixer's."""
        stream = self.attn.more_nodes(stream, self.attn_norm.norm, ran, tree, state, verify)
        return self.mlp.added(stream, self.mlp_norm.norm)
