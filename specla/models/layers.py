"""The token mixer of a gated delta net layer.

A mixer runs in two ways: `sequence` over consecutive tokens, and `nodes` over a draft tree on top of a state.
"""

import math

import torch
from torch import Tensor, nn

from specla.models.config import GatedDeltaNetConfig
from specla.models.parts import RMSNorm, ShortConvolution
from specla.models.records import LayerRecord, LayerState, Projected, Ran
from specla.ops.conv import conv_places, conv_sequence
from specla.ops.gates import decay_rate, gates_at, l2_normalise
from specla.ops.linear import Linear, Norm, PackedLinear, Stream
from specla.ops.norm import gated_rms_norm
from specla.ops.prefill import prefill_gated_delta_rule
from specla.ops.types import Bank, NodeInputs, TreeTensors, VerifyOutput
from specla.ops.verify import VerifyStrategy


class GatedDeltaNet(nn.Module):
    """The token mixer of one layer."""

    def __init__(self, config: GatedDeltaNetConfig) -> None:
        super().__init__()
        self.config = config
        hidden, heads = config.hidden_size, config.num_v_heads
        self.q_proj = nn.Linear(hidden, config.key_dim, bias=False)
        self.k_proj = nn.Linear(hidden, config.key_dim, bias=False)
        self.v_proj = nn.Linear(hidden, config.value_dim, bias=False)
        self.a_proj = nn.Linear(hidden, heads, bias=False)
        self.b_proj = nn.Linear(hidden, heads, bias=False)
        self.q_conv1d = ShortConvolution(config.key_dim, config.conv_size, config.conv_bias)
        self.k_conv1d = ShortConvolution(config.key_dim, config.conv_size, config.conv_bias)
        self.v_conv1d = ShortConvolution(config.value_dim, config.conv_size, config.conv_bias)
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(1e-4, 16).log())
        step = torch.exp(torch.rand(heads) * math.log(0.1 / 0.001) + math.log(0.001))
        # The inverse of softplus, so that softplus(dt_bias) starts out log-uniform in [0.001, 0.1].
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        if config.use_gate:
            self.g_proj = nn.Linear(hidden, config.value_dim, bias=False)
        self.o_norm = RMSNorm(config.head_v_dim, config.norm_eps)
        self.o_proj = nn.Linear(config.value_dim, hidden, bias=False)
        self._inputs: PackedLinear | None = None
        self._output: PackedLinear | None = None
        self._convolution: tuple[Tensor, Tensor | None] | None = None
        self._scales: Tensor | None = None
        self._rate: Tensor | None = None

    def _projections(self) -> list[nn.Linear]:
        gate = [self.g_proj] if self.config.use_gate else []
        return [self.q_proj, self.k_proj, self.v_proj, *gate, self.a_proj, self.b_proj]

    def _input_weight(self) -> Tensor:
        """All input projections side by side, [N, hidden]."""
        return torch.cat(tuple(projection.weight for projection in self._projections()))

    def _conv_weights(self) -> tuple[Tensor, Tensor | None]:
        """The convolution's weight [C, W] and bias [C], those of q, k and v side by side."""
        if self._convolution is not None:
            return self._convolution
        convs = (self.q_conv1d, self.k_conv1d, self.v_conv1d)
        biases = tuple(conv.bias for conv in convs if conv.bias is not None)
        return torch.cat(tuple(conv.weight for conv in convs)).squeeze(1), torch.cat(biases) if biases else None

    def pack(self) -> None:
        """Lay the input projections side by side in memory, so that one product serves all; for inference only."""
        self._convolution = None
        weight, bias = self._conv_weights()
        self._rate = decay_rate(self.A_log.detach())
        # Stored channels last, as the convolution on a tree reads it.
        self._convolution = weight.detach().t().contiguous().t(), None if bias is None else bias.detach()
        self._inputs, self._output = PackedLinear(self._input_weight()), PackedLinear(self.o_proj.weight)
        rows = self._inputs.weight.split([projection.out_features for projection in self._projections()])
        for projection, part in zip(self._projections(), rows, strict=True):
            projection.weight = nn.Parameter(part, requires_grad=False)

    @property
    def _projection(self) -> Linear:
        return Linear(self._input_weight()) if self._inputs is None else self._inputs

    def project(self, x: Tensor) -> Projected:
        """Of x [B, T, hidden]."""
        return self._parts(self._projection(x))

    def _parts(self, product: Tensor) -> Projected:
        config = self.config
        gate_size = config.value_dim if config.use_gate else 0
        sizes = [config.conv_dim, gate_size, config.num_v_heads, config.num_v_heads]
        raw, gate, a, b = product.split(sizes, dim=-1)
        return Projected(raw, gate if config.use_gate else None, a, b)

    def delta_inputs(self, mixed: Tensor, a: Tensor, b: Tensor) -> NodeInputs:
        """From the convolution's output [B, T, C] to what the delta rule reads."""
        config = self.config
        both, v = mixed.split([2 * config.key_dim, config.value_dim], dim=-1)
        q, k = l2_normalise(both.unflatten(-1, (2, config.num_heads, config.head_dim)), self._key_scales).unbind(-3)
        v = v.unflatten(-1, (config.num_v_heads, config.head_v_dim))
        rate = decay_rate(self.A_log) if self._rate is None else self._rate
        return NodeInputs(q, k, v, *gates_at(a, b, rate, self.dt_bias, config.allow_neg_eigval))

    @property
    def _key_scales(self) -> Tensor:
        """Of unit queries and keys, [2, 1, 1] float32."""
        if self._scales is None or self._scales.device != self.A_log.device:
            # Made in inference mode, it could not be trained through afterwards.
            with torch.inference_mode(False):
                scales = torch.tensor([self.config.head_dim**-0.5, 1.0], device=self.A_log.device)
                self._scales = scales.view(2, 1, 1)
        return self._scales

    def gated_output(self, out: Tensor, gate: Tensor | None, dtype: torch.dtype) -> Tensor:
        """The delta rule's output [B, T, HV, V] -> [B, T, HV*V]: rounded, normed, gated."""
        norm = self.o_norm.weight, self.config.norm_eps, self.config.output_gate_activation
        # The kernel has no backward.
        if out.is_cuda and not torch.is_grad_enabled():
            from specla.ops.kernels import gated_norm

            return gated_norm.gated_rms_norm(out, gate, *norm, dtype)
        if gate is not None:
            gate = gate.unflatten(-1, (self.config.num_v_heads, self.config.head_v_dim))
        return gated_rms_norm(out.to(dtype), gate, *norm).flatten(-2)

    def finish(self, out: Tensor, gate: Tensor | None, dtype: torch.dtype) -> Tensor:
        """The delta rule's output [B, T, HV, V] -> [B, T, hidden]: rounded, normed, gated, projected."""
        return self._out(self.gated_output(out, gate, dtype))

    @property
    def _out(self) -> Linear:
        return Linear(self.o_proj.weight) if self._output is None else self._output

    def sequence(
        self, x: Tensor, state: LayerState | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """Run consecutive tokens x [B, T, hidden]; where valid [B, T] is false, a token leaves the state alone."""
        raw, gate, a, b = self.project(x)
        if valid is not None:
            # Replaced, not weighed by zero: what padding embeds may be NaN.
            raw = torch.where(valid[..., None], raw, 0.0)
        conv_weight, conv_bias = self._conv_weights()
        mixed, window = conv_sequence(raw, None if state is None else state.window, conv_weight, conv_bias)
        q, k, v, g, beta = self.delta_inputs(mixed, a, b)
        if valid is not None:
            g, beta = (torch.where(valid[..., None], x, 0.0) for x in (g, beta))
        out, recurrent = prefill_gated_delta_rule(q, k, v, g, beta, None if state is None else state.recurrent)
        return self.finish(out, gate, x.dtype), LayerState(recurrent, window)

    def nodes(
        self, stream: Stream, norm: Norm, tree: TreeTensors, state: LayerState, verify: VerifyStrategy
    ) -> tuple[Stream, LayerRecord]:
        """Run the nodes of a draft tree on a committed state that only a fold may write.

        Args:
            stream: [B, T, hidden], before the layer's norm.
            norm: the layer's.
            tree: of the nodes.
            state: the layer's.
            verify: how.

        Returns:
            (the stream with what the mixer adds, the record).
        """
        product, x = self._projection.after_norm(stream, norm)
        parts = self._parts(product)
        raw, inputs, output = self._verified(parts, tree, state, verify)
        mixed = self.gated_output(output.out, parts.gate, x.dtype)
        return self._out.added(mixed, stream), LayerRecord(x, raw, inputs, output)

    def more_nodes(
        self, stream: Stream, norm: Norm, ran: Ran, tree: TreeTensors, state: LayerState, verify: VerifyStrategy
    ) -> Stream:
        """Run some more nodes of a tree whose first ones have run; the state stays as it is.

        Arguments and result are those of `nodes`, but `stream` is of the m new nodes, the last of the tree's, and
        `ran` holds what the nodes before them left, and takes what these leave.
        """
        last = ran.nodes + stream.hidden.shape[1]
        _, x = self._projection.after_norm(stream, norm, ran.projected[:, ran.nodes : last])
        parts = self._parts(ran.projected[:, :last])
        _, _, output = self._verified(parts, tree, state, verify)
        out = output.out[:, ran.nodes :]
        gate = None if parts.gate is None else parts.gate[:, ran.nodes :]
        return self._out.added(self.gated_output(out, gate, x.dtype), stream)

    def _verified(
        self, parts: Projected, tree: TreeTensors, state: LayerState, verify: VerifyStrategy
    ) -> tuple[Tensor, NodeInputs | None, VerifyOutput]:
        """(raw convolution inputs, the delta rule's inputs where they were made, what verification returns)."""
        batch, shape = parts.raw.shape[0], self.config.head_shape
        if state.bank is not None and parts.raw.is_cuda and verify.mixes(tree, batch, shape):
            output = self._mixed(parts, state, state.bank)
            if output is not None:
                return state.bank.raw, None, output
        raw, inputs = self._node_inputs(parts, tree, state.window, state.bank)
        verify.reflects = self.config.allow_neg_eigval
        output = verify.verify(state.recurrent, inputs, tree, state.known, state.fold, state.bank)
        if state.bank is not None:
            state.bank.keep(output.factors, raw)
        return raw, inputs, output

    def room(self, batch: int, nodes: int) -> Tensor:
        """[batch, nodes, N], for `more_nodes`."""
        return self._projection.weight.new_empty(batch, nodes, self._projection.weight.shape[0])

    def node_inputs(
        self, x: Tensor, tree: TreeTensors, window: Tensor, bank: Bank | None = None
    ) -> tuple[Tensor, Tensor | None, NodeInputs]:
        """(raw convolution inputs, output gate or None, the delta rule's inputs) of the nodes; window [B, W-1, C]."""
        parts = self.project(x)
        raw, inputs = self._node_inputs(parts, tree, window, bank)
        return raw, parts.gate, inputs

    def _node_inputs(
        self, parts: Projected, tree: TreeTensors, window: Tensor, bank: Bank | None
    ) -> tuple[Tensor, NodeInputs]:
        raw, _, a, b = parts
        if raw.is_cuda:
            inputs = self._fused_inputs(raw, (a, b), window, tree.taps, bank)
            return raw if bank is None else bank.raw, inputs
        conv_weight, conv_bias = self._conv_weights()
        seen = torch.cat((window, raw), dim=1)
        return raw, self.delta_inputs(conv_places(seen, conv_weight, conv_bias, tree.places), a, b)

    def regenerate(self, x: Tensor, window: Tensor) -> NodeInputs:
        """The delta rule's inputs of accepted tokens, again: x [B, L, hidden] along the path, window [B, W-1, C]."""
        raw, _, a, b = self.project(x)
        if raw.is_cuda:
            return self._fused_inputs(raw, (a, b), window, self._chain_taps(window, x.shape[1]))
        conv_weight, conv_bias = self._conv_weights()
        return self.delta_inputs(conv_sequence(raw, window, conv_weight, conv_bias)[0], a, b)

    @staticmethod
    def _chain_taps(window: Tensor, tokens: int) -> Tensor:
        """The taps of a path, [1, tokens, W-1]: every token sees the W-1 before it."""
        before = torch.arange(-window.shape[1], 0, device=window.device)
        return torch.arange(tokens, device=window.device)[None, :, None] + before

    def _fused_inputs(
        self, raw: Tensor, gates: tuple[Tensor, Tensor], window: Tensor, taps: Tensor, bank: Bank | None = None
    ) -> NodeInputs:
        """Convolution, norms and gates in one kernel."""
        from specla.ops.kernels import node_inputs as kernel

        weights, heads = kernel.Weights(*self._kernel_weights), kernel.Heads(*self.config.head_shape)
        doubled = self.config.allow_neg_eigval
        return NodeInputs(*kernel.node_inputs(raw, gates, window, taps, weights, heads, doubled, bank))

    def _mixed(self, parts: Projected, state: LayerState, bank: Bank) -> VerifyOutput | None:
        """A short chain of a few rows in one kernel; None of others."""
        from specla.ops.kernels import mixer, node_inputs
        from specla.ops.kernels.walk import Pending

        if not mixer.takes(parts.a.shape[0] * parts.a.shape[2], parts.a.shape[1]):
            return None
        products = mixer.Products(parts.raw, parts.a, parts.b, state.window)
        weights = node_inputs.Weights(*self._kernel_weights)
        heads, doubled = node_inputs.Heads(*self.config.head_shape), self.config.allow_neg_eigval
        pending = Pending(state.known, state.fold)
        return mixer.mix_chain(state.recurrent, products, weights, heads, pending, bank, doubled)

    @property
    def _kernel_weights(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Of the convolution and the gates."""
        return *self._conv_weights(), self.A_log, self.dt_bias
