"""The gated delta net language model: weights under flash-linear-attention's names, and three ways to run them.

`forward` runs whole sequences without a state (training), `prefill` runs prompts and leaves a decode state, and
`forward_nodes` runs the nodes of a draft tree on top of a state, through whichever verification strategy it is given.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specla.models.block import Block
from specla.models.config import GatedDeltaNetConfig
from specla.models.parts import RMSNorm
from specla.models.records import LayerRecord, LayerState
from specla.models.state import DecodeState
from specla.ops.linear import PackedLinear, Stream
from specla.ops.norm import rms_norm
from specla.ops.types import TreeTensors
from specla.ops.verify import VerifyStrategy

PREFILL_SEGMENT = 2048
"""Tokens of a prompt that run at once: longer prompts carry the state from segment to segment."""


class Backbone(nn.Module):
    """Embeddings, layers and the last norm."""

    def __init__(self, config: GatedDeltaNetConfig) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)


class GatedDeltaNetLM(nn.Module):
    """A gated delta net language model; parameter names are those of `fla.models.GatedDeltaNetForCausalLM`."""

    def __init__(self, config: GatedDeltaNetConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embeddings.weight
        self._head: PackedLinear | None = None
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=config.initializer_range)

    @property
    def blocks(self) -> list[Block]:
        """The layers, typed."""
        return cast(list[Block], list(self.model.layers))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, in which hidden states travel."""
        return self.model.embeddings.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.embeddings.weight.device

    def prepare(self) -> "GatedDeltaNetLM":
        """Make ready for inference: no gradients, packed weights. Call it after the last move to a device or dtype."""
        self.eval().requires_grad_(False)
        for block in self.blocks:
            block.attn.pack()
            block.mlp.pack()
        self._head = PackedLinear(self.lm_head.weight)
        return self

    def forward(self, tokens: Tensor) -> Tensor:
        """Hidden states after the last norm, [B, T, hidden], of whole sequences tokens [B, T]; differentiable."""
        hidden = self.model.embeddings(tokens)
        for block in self.blocks:
            hidden, _ = block.sequence(hidden)
        return rms_norm(hidden, self.model.norm.weight, self.config.norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [..., hidden] -> [..., vocabulary], in the model's dtype."""
        return self._head(hidden) if self._head is not None else F.linear(hidden, self.lm_head.weight)

    def prefill(self, tokens: Tensor, valid: Tensor | None = None) -> tuple[Tensor, DecodeState]:
        """Run prompts from the empty state.

        Args:
            tokens: [B, S] int64; shorter prompts are padded on the left.
            valid: [B, S] bool, false on padding; None where every row is full.

        Returns:
            (hidden state of the last token [B, hidden], the state with all S tokens committed).
        """
        state = DecodeState.empty(self.config, tokens.shape[0], self.dtype, self.device)
        hidden = self.extend(tokens, state, valid)
        return hidden[:, -1], state

    def extend(self, tokens: Tensor, state: DecodeState, valid: Tensor | None = None) -> Tensor:
        """Commit tokens [B, S] to the state in place, in segments; returns their hidden states [B, S, hidden]."""
        whole = []
        for start in range(0, tokens.shape[1], PREFILL_SEGMENT):
            span = slice(start, start + PREFILL_SEGMENT)
            mask = None if valid is None else valid[:, span]
            hidden = self.model.embeddings(tokens[:, span])
            for i, block in enumerate(self.blocks):
                hidden, layer = block.sequence(hidden, LayerState(state.recurrent[i], state.window[i]), mask)
                state.recurrent[i], state.window[i] = layer.recurrent, layer.window
            whole.append(rms_norm(hidden, self.model.norm.weight, self.config.norm_eps))
        state.lengths += tokens.shape[1] if valid is None else valid.sum(-1)
        return whole[0] if len(whole) == 1 else torch.cat(whole, dim=1)

    def forward_nodes(
        self, tokens: Tensor, tree: TreeTensors, layers: list[LayerState], verify: VerifyStrategy
    ) -> tuple[Tensor, list[LayerRecord]]:
        """Run the nodes of a draft tree, tokens [B, T], on top of `layers`, one state a layer.

        Returns:
            (hidden states after the last norm [B, T, hidden], one record a layer).
        """
        stream, records = Stream(self.model.embeddings(tokens)), []
        for block, state in zip(self.blocks, layers, strict=True):
            stream, record = block.nodes(stream, tree, state, verify)
            records.append(record)
        return self.model.norm(stream.hidden), records
