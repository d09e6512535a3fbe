"""The aligned drafter on a device: chains and fixed trees, drafted and caught up by launches alone.

The products of a level are those of its own nodes; the delta rule runs over all that have been drafted so far, in the
target's own kernels, so that nothing of a state is kept between levels.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from specla.drafters.aligned import state_after
from specla.drafters.device import DeviceDrafter, Drafted
from specla.drafters.device_levels import DeviceLevel, levels_of
from specla.drafters.network import AlignedNetwork, DrafterState
from specla.models.records import LayerState, Ran
from specla.models.state import make_bank
from specla.ops.linear import Stream
from specla.ops.sampling import Sampling
from specla.ops.texts import Texts, Walked
from specla.ops.types import Moving, Newest, Sources, TreeTensors
from specla.ops.verify import VerifyStrategy, get_verify
from specla.topology import chain


class DeviceAligned(DeviceDrafter):
    """`AlignedDrafter` on a device.

    Args:
        network: for the target that decodes.
        sampling: how the target chooses: drafts are chosen with the same noise.
        batch: rows.
        depths: D of every tree that it may be asked for.
    """

    def __init__(self, network: AlignedNetwork, sampling: Sampling, batch: int, depths: Sequence[int]) -> None:
        self.network, self.sampling = network, sampling
        config, model = network.net.block.attn.config, network.target
        window = torch.zeros(batch, config.conv_size - 1, config.conv_dim, dtype=model.dtype, device=model.device)
        self._state = DrafterState(
            torch.zeros(batch, config.num_v_heads, config.head_v_dim, config.head_dim, device=model.device),
            window,
            window.new_zeros(batch, model.config.hidden_size),
        )
        nodes = {nodes for depth in depths for nodes in range(1, depth + 2)}
        self._banks = {count: make_bank(config, (batch, count), window) for count in nodes}
        """By nodes of a path."""
        self._tree, self._chain = get_verify("tree"), get_verify("chain", frozenset({"factors"}))

    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Remember the prompts; `prime` brings the hidden states."""
        self._prompts, self._roots = prompts, roots

    @torch.inference_mode()
    def prime(self, hidden: Tensor) -> None:
        """Run over the prompts."""
        after = state_after(self.network, self._prompts, self._roots, hidden)
        for place, new in zip(vars(self._state).values(), vars(after).values(), strict=True):
            place.copy_(new)

    def draft(self, tree: TreeTensors, texts: Texts) -> Drafted:
        """Fill a chain or a fixed tree."""
        root = texts.root[:, None]
        if tree.nodes == 1:
            return Drafted(root, tree)
        net = self.network.net
        levels = levels_of(tree.tree, root.device, self._state.window.shape[1] + 1)
        tokens = root.new_empty(root.shape[0], tree.nodes)
        tokens[:, :1].copy_(root)
        projected = net.block.attn.room(root.shape[0], levels[-1].ran)
        predicted = self._state.predicted[:, None]
        for depth, level in enumerate(levels):
            self._place(predicted, level, tokens, texts, depth)
            if level.forest is None:
                break
            sources = Sources(predicted, level.parents, tokens, level.nodes)
            ran = Ran(projected, level.ran)
            stream = net.block.more_nodes(self._entered(sources), ran, level.forest, *self._layer(level.forest))
            predicted = net.norm(stream.hidden)
        return Drafted(tokens, tree)

    def _layer(self, tree: TreeTensors) -> tuple[LayerState, VerifyStrategy]:
        """(The state, how to verify on it): a short chain of a few rows walks, with a bank."""
        from specla.ops.kernels import mixer

        state = self._state
        if tree.shared and tree.tree.is_chain and mixer.takes(state.recurrent.shape[:2].numel(), tree.nodes):
            return LayerState(state.recurrent, state.window, bank=self._banks[tree.nodes]), self._chain
        return LayerState(state.recurrent, state.window), self._tree

    def _entered(self, sources: Sources) -> Stream:
        """What the block takes."""
        from specla.ops.kernels.entering import entered
        from specla.ops.kernels.skinny import Norm

        net = self.network.net
        norms = Norm(*net.hidden_norm.norm), Norm(*net.embedding_norm.norm)
        return Stream(net.combined(entered(sources, self.network.target.model.embeddings.weight, *norms)))

    def _place(self, predicted: Tensor, level: DeviceLevel, tokens: Tensor, texts: Texts, depth: int) -> None:
        """Put the best tokens after each prediction [B, M, hidden] in their nodes' places."""
        from specla.ops.kernels.choose import Places, Room, place_best

        network = self.network
        if network.ids is None or self.sampling.greedy:
            places = Places(texts.rows, texts.length, depths_of(depth, predicted.shape[1], predicted.device))
            room = Room(tokens, level.columns, network.ids)
            place_best(network.head(predicted), self.sampling, places, level.width, room)
            return
        positions = (texts.length + depth + 1)[:, None].expand(predicted.shape[:2])
        scores = network.scores(predicted, self.sampling, texts.rows[:, None].expand_as(positions), positions)
        best = network.tokens(scores.topk(level.width, dim=-1).indices).flatten(1)
        tokens.index_copy_(1, level.children, best.index_select(1, level.ranked))

    def observe(self, hidden: Tensor, walked: Walked, texts: Texts) -> None:
        """Run again over what was accepted, with the target's hidden states, and commit it."""
        from specla.ops.kernels.commit import commit_factors
        from specla.ops.kernels.entering import keep_predicted
        from specla.ops.kernels.launch import Taken
        from specla.ops.kernels.skinny import Norm

        batch, places = walked.path.shape
        line = line_of(batch, places, hidden.device)
        net, bank = self.network.net, self._banks[places]
        # The token after each accepted node: the newest of the text, as many as were committed.
        sources = Sources(hidden, walked.path, texts.emitted, line, Newest(texts.tokens, walked.length))
        path = _path(places, hidden.device, self._state.window.shape[1] + 1)
        layer, verify = self._layer(path)
        stream, _ = net.block.nodes(self._entered(sources), path, replace(layer, bank=bank), verify)
        keep_predicted(stream.hidden, walked.length, Norm(*net.norm.norm), self._state.predicted)
        taken = Taken(line, walked.length)
        moving, reflects = Moving(self._state.window, bank.raw), net.block.attn.config.allow_neg_eigval
        commit_factors(self._state.recurrent, bank.factors, taken, moving, reflects=reflects)


@cache  # graphs keep the addresses
def depths_of(depth: int, nodes: int, device: torch.device) -> Tensor:
    """The same depth for so many nodes, [1, nodes]."""
    return torch.full((1, nodes), depth, dtype=torch.int64, device=device)


@cache  # graphs keep the addresses
def _path(nodes: int, device: torch.device, width: int) -> TreeTensors:
    return TreeTensors.from_tree(chain(nodes - 1), device, width)


@cache  # graphs keep the addresses
def line_of(batch: int, nodes: int, device: torch.device) -> Tensor:
    """0, 1, 2, ... in every row, [batch, nodes]."""
    return torch.arange(nodes, device=device).expand(batch, -1).contiguous()
