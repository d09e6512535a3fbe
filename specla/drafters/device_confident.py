"""The aligned drafter on a device that shapes a tree for each row: `specla.drafters.confidence` by launches alone.

Shapes are those of the largest tree that there can be, so a graph holds them: what a row does not run is idle, and what
it does not keep is padding. So a margin saves no time here, which it does on the host: a smaller budget of nodes does.
"""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate

import torch
from torch import Tensor

from specla.drafters.breadth import Breadth, breadths, too_wide
from specla.drafters.confidence import Confidence
from specla.drafters.device import Drafted
from specla.drafters.device_aligned import DeviceAligned, depths_of, line_of
from specla.drafters.network import AlignedNetwork
from specla.errors import SpeclaError
from specla.models.records import Ran
from specla.ops.growth import Kept, Level, Likely, Running
from specla.ops.rows import take_nodes
from specla.ops.sampling import Sampling
from specla.ops.texts import Texts
from specla.ops.types import Sources, TreeTensors
from specla.topology import DraftTree


class DeviceConfident(DeviceAligned):
    """Best-first drafting on a device.

    Args:
        network: for the target that decodes.
        sampling: how the target chooses.
        batch: rows.
        trees: every tree that it may be asked for: their nodes and levels count.
        confidence: how trees are shaped.

    Raises:
        SpeclaError: a level may have more nodes than kernels take.
    """

    shapes = True

    def __init__(
        self,
        network: AlignedNetwork,
        sampling: Sampling,
        batch: int,
        trees: Sequence[DraftTree],
        confidence: Confidence,
    ) -> None:
        problem = next(filter(None, (too_wide(tree, confidence.branching) for tree in trees)), None)
        if problem is not None:
            raise SpeclaError(problem)
        super().__init__(network, sampling, batch, [tree.depth for tree in trees])
        size = len(network.ids) if network.ids is not None else network.target.config.vocab_size
        # More children than drafts can never stay.
        drafts = max(tree.nodes for tree in trees) - 1
        self._branching, self._margin = min(confidence.branching, size, max(1, drafts)), confidence.margin

    def draft(self, tree: TreeTensors, texts: Texts) -> Drafted:
        """Shape trees within the nodes and levels of the one asked for."""
        from specla.ops.kernels.grow import grow
        from specla.ops.kernels.lay import lay

        root = texts.root[:, None]
        if tree.nodes == 1:
            return Drafted(root, tree)
        width, depth = self._state.window.shape[1] + 1, tree.tree.depth
        kept, above, projected = _roots(root.shape[0], tree.nodes, root.device), None, None
        predicted = self._state.predicted[:, None]
        for number, level in enumerate(_levels(tree.nodes, depth, self._branching)):
            kept, running = grow(self._likely(predicted, texts, number), above, kept, level, self._margin)
            if level.width:
                forest = lay(running.ids, running.parents, width, number)
                predicted, projected = self._descend(predicted, running, projected, forest)
                above = running.q
        tokens = torch.cat((root, kept.tokens[:, 1:]), dim=1)
        return Drafted(tokens, lay(kept.ids, kept.parents, width, depth))

    def _likely(self, predicted: Tensor, texts: Texts, depth: int) -> Likely:
        """What may follow the nodes of a level, [B, F, hidden] predicted."""
        from specla.ops.kernels.choose import Places
        from specla.ops.kernels.likely import likeliest

        network = self.network
        if network.ids is None or self.sampling.greedy:
            places = Places(texts.rows, texts.length, depths_of(depth, predicted.shape[1], predicted.device))
            return likeliest(network.head(predicted), self.sampling, places, self._branching, network.ids)
        positions = (texts.length + depth + 1)[:, None].expand(predicted.shape[:2])
        scores = network.scores(predicted, self.sampling, texts.rows[:, None].expand_as(positions), positions)
        logs, best = scores.log_softmax(-1).topk(self._branching, dim=-1)
        return Likely(logs, network.tokens(best))

    def _descend(
        self, predicted: Tensor, running: Running, projected: Tensor | None, forest: TreeTensors
    ) -> tuple[Tensor, Tensor]:
        """Run a level's new nodes on those that have run.

        Args:
            predicted: [B, F', hidden], by the nodes that ran last.
            running: what runs.
            projected: [B, R' + F', N], of all that the last level had; None where nothing has run.
            forest: of `running`.

        Returns:
            (the new ones' predictions [B, F, hidden], `projected` of this level).
        """
        batch, width = running.tokens.shape
        ran, net = forest.nodes - width, self.network.net
        room = net.block.attn.room(batch, forest.nodes)
        if ran:
            assert projected is not None
            room[:, :ran].copy_(take_nodes(projected, running.moved))
        line = line_of(1, width, room.device)
        sources = Sources(predicted, running.sources, running.tokens, line)
        stream = net.block.more_nodes(self._entered(sources), Ran(room, ran), forest, *self._layer(forest))
        return net.norm(stream.hidden), room


@cache
def _levels(nodes: int, depth: int, branching: int) -> tuple[Level, ...]:
    """What every level runs: identities go on from the root's."""
    run = [*breadths(nodes, depth, branching), Breadth(0, 0)]
    first = [*accumulate((level.width for level in run), initial=1)]
    return tuple(Level(start, after, *level) for start, after, level in zip([0, *first], first, run, strict=False))


@cache  # graphs keep the addresses
def _roots(batch: int, nodes: int, device: torch.device) -> Kept:
    return Kept.roots(batch, nodes, device)
