"""An oracle that knows the target's own text and is right as often as it is told to be: acceptance as a dial.

Its acceptance is synthetic; what it costs to draft is not part of it. At a node whose path is right so far, one
categorical draw decides which child rank, if any, holds the right token: P(rank r right | parent accepted) =
alpha[d, r].
"""

from collections.abc import Sequence

import numpy as np
import torch

from specla.drafters.base import Draft, Drafter
from specla.ops.texts import Traces
from specla.topology import DraftTree

Alpha = float | Sequence[float] | Sequence[Sequence[float]]


def alpha_table(alpha: Alpha) -> list[list[float]]:
    """alpha as a table [depth][rank] of shares, both from 0.

    A number is rank 1 at every depth; a list is rank 1 by depth; a list of lists is the whole table. Depths beyond the
    table repeat its last line.
    """
    if isinstance(alpha, int | float):
        return [[float(alpha)]]
    return [[float(line)] if isinstance(line, int | float) else [float(x) for x in line] for line in alpha]


class OracleDrafter(Drafter):
    """Drafts from the target's own autoregressive text (its trace).

    Args:
        alpha: see `alpha_table`.
        traces: one list a row, the tokens the target emits from the first on, at least the depth of the tree longer
            than what will be decoded.
        vocabulary: number of tokens.
        seed: of the draws; a draw depends on (seed, row, position), so every strategy sees the same luck.
        rows: identities of the rows, so that prompts decoded one by one are not lucky in the same places; 0, 1, 2, ...
            unless given.
    """

    name = "oracle"
    synthetic = True

    def __init__(
        self,
        alpha: Alpha,
        traces: Sequence[Sequence[int]],
        vocabulary: int,
        seed: int = 0,
        rows: Sequence[int] | None = None,
    ) -> None:
        self._thresholds = [np.cumsum(line).tolist() for line in alpha_table(alpha)]
        self._original = [list(trace) for trace in traces]
        self._vocabulary = vocabulary
        self._seed = seed
        self._rows = list(rows) if rows is not None else list(range(len(traces)))
        self.retraced = 0

    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Start on the batch whose traces were given."""
        self._traces = [list(trace) for trace in self._original]
        self._at = [0] * len(roots)
        self._off = [row for row, root in enumerate(roots) if self._traces[row][0] != root]
        for row in self._off:
            self._traces[row] = [roots[row]]
        self._luck = [
            np.random.default_rng([self._seed, row]).random(2 * len(trace)).tolist()
            for row, trace in zip(self._rows, self._original, strict=True)
        ]

    def draft(self, tree: DraftTree) -> Draft:
        """Right tokens where the draws say so, wrong ones elsewhere."""
        return Draft([self._fill(row, tree) for row in range(len(self._traces))], tree)

    def _fill(self, row: int, tree: DraftTree) -> list[int]:
        trace, at, luck = self._traces[row], self._at[row], self._luck[row]
        root = trace[at]
        tokens = [(root + node) % self._vocabulary for node in range(tree.nodes)]
        node, depth = 0, 0
        # A finished row is still drafted for while its batch goes on; its trace may have ended.
        while tree.children[node] and at + depth + 1 < len(trace):
            right = trace[at + depth + 1]
            thresholds = self._thresholds[min(depth, len(self._thresholds) - 1)]
            drawn = luck[(at + depth + 1) % len(luck)]
            rank = next((r for r, threshold in enumerate(thresholds) if drawn < threshold), -1)
            for r, child in enumerate(tree.children[node]):
                tokens[child] = right if r == rank else (right + 1 + r) % self._vocabulary
            if not 0 <= rank < len(tree.children[node]):
                break
            node, depth = tree.children[node][rank], depth + 1
        return tokens

    def observe(self, emitted: Sequence[Sequence[int]]) -> None:
        """Move along the trace; a row whose text has left it waits for `retrace`."""
        for row, tokens in enumerate(emitted):
            at = self._at[row]
            if list(tokens) != self._traces[row][at + 1 : at + 1 + len(tokens)]:
                self._traces[row][at + 1 :] = tokens
                self._off.append(row)
            self._at[row] = at + len(tokens)

    def known(self, capacity: int) -> Traces:
        """What an oracle on a device is given, as tensors on the CPU, with room for texts of `capacity` tokens."""
        text, luck = np.zeros((len(self._traces), capacity), np.int64), np.ones((len(self._traces), capacity))
        for row, (trace, draws) in enumerate(zip(self._traces, self._luck, strict=True)):
            text[row, : len(trace)] = trace[:capacity]
            luck[row] = np.resize(draws, capacity)
        length = torch.tensor([min(len(trace), capacity) for trace in self._traces])
        # Levels with fewer ranks than others give the others no chance.
        ranks = max(map(len, self._thresholds))
        shares = torch.tensor(
            [[*line, *[-1.0] * (ranks - len(line))] for line in self._thresholds], dtype=torch.float64
        )
        return Traces(torch.from_numpy(text), length, torch.from_numpy(luck), shares)

    def rows_off_trace(self) -> list[int]:
        """Rows whose text differs from their trace."""
        return self._off

    def retrace(self, row: int, tokens: Sequence[int]) -> None:
        """What the target emits after the row's present root."""
        self._traces[row][self._at[row] + 1 :] = tokens
        self._off.remove(row)
        self.retraced += 1
