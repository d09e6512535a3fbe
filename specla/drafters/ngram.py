"""Prompt lookup: what followed the last few tokens the last time they occurred is drafted again."""

from collections import defaultdict
from collections.abc import Sequence

from specla.drafters.base import Draft, Drafter
from specla.topology import DraftTree, explicit


class _History:
    """One row's tokens, and where each n-gram in them was followed by what."""

    def __init__(self, tokens: Sequence[int], min_ngram: int, max_ngram: int) -> None:
        self.tokens: list[int] = []
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._followers: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            for size in self._sizes:
                if size <= len(self.tokens):
                    self._followers[tuple(self.tokens[-size:])].append(token)
            self.tokens.append(token)

    def candidates(self, drafted: list[int], count: int) -> list[int]:
        """At most `count` distinct tokens that followed the end of (history, drafted): longest n-gram, then newest."""
        context = (self.tokens[-self._sizes.start :] + drafted)[-self._sizes.start :]
        found: list[int] = []
        for size in self._sizes:
            if size > len(context):
                continue
            for token in reversed(self._followers.get(tuple(context[-size:]), ())):
                if token not in found:
                    found.append(token)
                    if len(found) == count:
                        return found
        return found


class NgramDrafter(Drafter):
    """Prompt lookup on chains and trees; nodes it has no candidate for are left out of the step.

    Args:
        min_ngram: shortest context that may be looked up.
        max_ngram: longest; longer matches are preferred.
    """

    name = "ngram"

    def __init__(self, min_ngram: int = 2, max_ngram: int = 4) -> None:
        self._min, self._max = min_ngram, max_ngram
        self._rows: list[_History] = []
        self._trees: dict[tuple[int, ...], DraftTree] = {}

    def begin(self, prompts: Sequence[Sequence[int]], roots: Sequence[int]) -> None:
        """Index the prompts."""
        pairs = zip(prompts, roots, strict=True)
        self._rows = [_History([*prompt, root], self._min, self._max) for prompt, root in pairs]

    def draft(self, tree: DraftTree) -> Draft:
        """Look up every node's context; the tree keeps the nodes that some row has a candidate for."""
        filled = [self._fill(row, tree) for row in self._rows]
        kept = [node for node in range(tree.nodes) if any(node in row for row in filled)]
        if len(kept) == tree.nodes:
            return Draft([[row.get(node, 0) for node in kept] for row in filled], tree)
        place = {node: i for i, node in enumerate(kept)}
        parents = (-1, *(place[tree.parents[node]] for node in kept[1:]))
        smaller = self._trees.setdefault(parents, explicit(parents))
        return Draft([[row.get(node, 0) for node in kept] for row in filled], smaller)

    @staticmethod
    def _fill(row: _History, tree: DraftTree) -> dict[int, int]:
        """Node -> token, for the nodes that have one; a node without candidates ends its branch."""
        tokens, paths = {0: row.tokens[-1]}, {0: list[int]()}
        for node, children in enumerate(tree.children):
            if node not in paths or not children:
                continue
            for child, token in zip(children, row.candidates(paths[node], len(children)), strict=False):
                tokens[child] = token
                paths[child] = [*paths[node], token]
        return tokens

    def observe(self, emitted: Sequence[Sequence[int]]) -> None:
        """Append what was emitted to each row's history."""
        for row, tokens in zip(self._rows, emitted, strict=True):
            row.extend(tokens)
