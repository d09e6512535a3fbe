"""The aligned drafter on a device: chains and fixed trees, drafted and caught up by launches alone.

A level runs the block over all nodes drafted so far, not over its own alone: at these few rows a product takes as long
as its weights do to arrive, and a whole tree runs in the target's own kernels.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from specla.drafters.aligned import state_after
from specla.drafters.device import DeviceDrafter
from specla.drafters.fixed import generations, picked, tree_plan
from specla.drafters.network import AlignedNetwork, DrafterState
from specla.models.layers import LayerState
from specla.models.state import make_bank
from specla.ops.linear import Stream
from specla.ops.rows import take_nodes
from specla.ops.sampling import Sampling
from specla.ops.texts import Texts, Walked
from specla.ops.types import Moving, TreeTensors
from specla.ops.verify import get_verify
from specla.topology import DraftTree, chain


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
        self._banks = {depth + 1: make_bank(config, (batch, depth + 1), window) for depth in depths}
        """By nodes of a path."""
        self._verify = get_verify("tree")

    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Remember the prompts; `prime` brings the hidden states."""
        self._prompts, self._roots = prompts, roots

    @torch.inference_mode()
    def prime(self, hidden: Tensor) -> None:
        """Run over the prompts."""
        after = state_after(self.network, self._prompts, self._roots, hidden)
        for place, new in zip(vars(self._state).values(), vars(after).values(), strict=True):
            place.copy_(new)

    def draft(self, tree: TreeTensors, texts: Texts) -> Tensor:
        """Fill a chain or a fixed tree."""
        root = texts.root[:, None]
        if tree.nodes == 1:
            return root
        net, target = self.network.net, self.network.target
        key = (tree.tree, root.device, self._state.window.shape[1] + 1)
        plan = tree_plan(*key)
        predicted, entered, drafted = self._state.predicted[:, None], None, list[Tensor]()
        for depth, (level, forest) in enumerate(zip(plan.levels, forests(*key), strict=True)):
            best = self._best(predicted, level.width, texts, depth)
            tokens = picked(best.flatten(1), level.children)
            drafted.append(tokens)
            if forest is None:
                break
            hidden, running = picked(predicted, level.parents), picked(tokens, level.running)
            new = net.enter(hidden, target.model.embeddings(running))
            entered = new if entered is None else torch.cat((entered, new), dim=1)
            layer = LayerState(self._state.recurrent, self._state.window)
            stream, _ = net.block.nodes(Stream(entered), forest, layer, self._verify)
            predicted = net.norm(stream.hidden[:, -new.shape[1] :])
        if plan.order is None:
            return torch.cat((root, *drafted), dim=1)
        return torch.cat((root, picked(torch.cat(drafted, dim=1), plan.order)), dim=1)

    def _best(self, predicted: Tensor, width: int, texts: Texts, depth: int) -> Tensor:
        """The best tokens after each prediction, [B, M, width] int64."""
        from specla.ops.kernels.choose import Places, best_tokens

        network = self.network
        if network.ids is None or self.sampling.greedy:
            depths = _depths(depth, predicted.shape[1], predicted.device)
            logits = network.head(predicted)
            places = Places(texts.rows, texts.length, depths)
            return network.tokens(best_tokens(logits, self.sampling, places, width))
        positions = (texts.length + depth + 1)[:, None].expand(predicted.shape[:2])
        scores = network.scores(predicted, self.sampling, texts.rows[:, None].expand_as(positions), positions)
        return network.tokens(scores.topk(width, dim=-1).indices)

    def observe(self, hidden: Tensor, walked: Walked, texts: Texts) -> None:
        """Run again over what was accepted, with the target's hidden states, and commit it."""
        from specla.ops.kernels.commit import commit_factors
        from specla.ops.kernels.launch import Taken

        places = walked.path.shape[1]
        at = torch.arange(places, device=hidden.device)
        # The token after each accepted node: the newest of the text, as many as were committed.
        after = (texts.tokens - walked.length)[:, None] + at
        tokens = texts.emitted.gather(1, after.clamp(max=texts.emitted.shape[1] - 1))
        net, bank = self.network.net, self._banks[places]
        entered = net.enter(take_nodes(hidden, walked.path), self.network.target.model.embeddings(tokens))
        layer = LayerState(self._state.recurrent, self._state.window, bank=bank)
        path = _chain(places, hidden.device, self._state.window.shape[1] + 1)
        stream, _ = net.block.nodes(Stream(entered), path, layer, self._verify)
        last = (walked.length - 1).clamp(min=0)[:, None]
        predicted = net.norm(take_nodes(stream.hidden, last))[:, 0]
        self._state.predicted.copy_(torch.where((walked.length > 0)[:, None], predicted, self._state.predicted))
        line = Taken(at.expand(hidden.shape[0], -1).contiguous(), walked.length)
        commit_factors(self._state.recurrent, bank.factors, line, Moving(self._state.window, bank.raw))


@lru_cache(maxsize=64)
def forests(tree: DraftTree, device: torch.device, width: int) -> tuple[TreeTensors | None, ...]:
    """For every level the nodes below the root that have run by then, None where none of its own has children."""
    found, ran = list[TreeTensors | None](), list[int]()
    for children in generations(tree):
        running = [child for child in children if tree.children[child]]
        ran += running
        found.append(_forest(tree, ran, device, width) if running else None)
    return tuple(found)


def _forest(tree: DraftTree, nodes: Sequence[int], device: torch.device, width: int) -> TreeTensors:
    """Some nodes of a tree, parents first, whose root is committed."""
    place = {node: i for i, node in enumerate(nodes)}
    paths = [[place[node] for node in tree.path(one)[1:]] for one in nodes]
    ancestors = torch.zeros(1, len(nodes), len(nodes), dtype=torch.bool)
    taps = torch.empty(1, len(nodes), width - 1, dtype=torch.int64)
    for i, path in enumerate(paths):
        ancestors[0, i, path[:-1]] = True
        # Places from the end of the window, where the path is shorter than the convolution.
        seen = [*range(1 - width, 0), *path[:-1]]
        taps[0, i] = torch.tensor(seen[len(seen) - (width - 1) :])
    parents = torch.tensor([[path[-2] if len(path) > 1 else -1 for path in paths]])
    depths = torch.tensor([[len(path) - 1 for path in paths]])
    return TreeTensors((), *(x.to(device) for x in (parents, depths, ancestors, taps)))


@lru_cache(maxsize=256)
def _depths(depth: int, nodes: int, device: torch.device) -> Tensor:
    return torch.full((1, nodes), depth, dtype=torch.int64, device=device)


@lru_cache(maxsize=64)
def _chain(nodes: int, device: torch.device, width: int) -> TreeTensors:
    return TreeTensors.from_tree(chain(nodes - 1), device, width)
