"""What a decode holds in memory at its fullest, on a CPU: counted from shapes, tensor by tensor.

What a layer leaves for recovery is held for all layers at once, what it needs while it runs for one at a time. A
decode is fullest in one of these moments: a prompt's layer, a layer that verifies, the choice of tokens, the commit.
"""

from dataclasses import dataclass

from specla.models.cost import FLOAT32, ModelCost
from specla.topology import DraftTree

CHUNK = 64
"""Tokens that the prompt's form of the delta rule solves together."""
SEGMENT = 2048
"""Tokens of a prompt that run at once."""
_FLOAT64 = 8
SLACK_BYTES = 256 << 20
"""Libraries and tables that are loaded when they are first called."""
_HEAP = 1.2
"""What the allocator takes over what is asked of it: blocks below 32 MiB are kept and not all used again."""
BANDWIDTH_BYTES = {"cpu": 2 * (256 << 20), "cuda": 2 * (4 << 30)}
"""Of the two tensors that memory bandwidth is measured on, while the prompts' states are kept."""
_NOISE = 96
"""Bytes that drawing, sorting and adding noise take for a token of the vocabulary: words of 64 bits, many at a time."""


@dataclass(frozen=True)
class Decode:
    """What is decoded, and how.

    Attributes:
        batch: rows.
        tree: that every step verifies.
        verify, recover: the strategies.
        ring: places of a ring of factors; 0 without one.
        prompt: tokens of the longest prompt.
        items: batches of prompts, all of which are kept after their prefill.
        sampled: whether tokens are chosen with noise.
        drafted: tokens that an aligned drafter scores; 0 where no network drafts.
    """

    batch: int
    tree: DraftTree
    verify: str
    recover: str
    ring: int
    prompt: int
    items: int
    sampled: bool
    drafted: int


class Footprint:
    """Of one model.

    Args:
        cost: the model's.
    """

    def __init__(self, cost: ModelCost) -> None:
        self.config, self.item = cost.config, cost.item_bytes
        self.layers = cost.config.num_hidden_layers
        self.state, self.window = cost.state_bytes // self.layers, cost.window_bytes // self.layers

    def peak_bytes(self, decode: Decode, least: int = BANDWIDTH_BYTES["cpu"]) -> int:
        """Bytes beside the weights; `least` of them, slack and prompts aside, as measuring the bandwidth takes."""
        config, batch, nodes = self.config, decode.batch, decode.tree.nodes
        row = self.layers * (self.state + self.window)
        hidden = self.item * config.hidden_size
        # A state of its own, and a copy while a row's commit leaves others alone or a text is judged.
        own = batch * (2 * row + self.layers * 2 * decode.ring * self._factors)
        record = batch * nodes * self._record(decode) + self._states_kept(decode)
        logits = batch * nodes * (self.item * config.vocab_size + hidden)
        choice = batch * config.vocab_size * (_NOISE if decode.sampled else FLOAT32)
        moments = (
            self._prompt(batch, decode.prompt),
            self.layers * record + self._verifying(decode),
            self.layers * record + logits + max(choice, self._committing(decode)),
            self._drafting(decode),
        )
        return SLACK_BYTES + self.prompt_bytes(decode) + max(least, int(_HEAP * (own + max(moments))))

    def prompt_bytes(self, decode: Decode) -> int:
        """Bytes of the states and hidden states after all prompts, which are kept."""
        row = self.layers * (self.state + self.window)
        return decode.batch * decode.items * (row + decode.prompt * self.item * self.config.hidden_size)

    @property
    def _factors(self) -> int:
        """Of a node in one layer: k, u, and G in float64."""
        config = self.config
        return self.item * config.key_dim + FLOAT32 * config.value_dim + _FLOAT64 * config.num_v_heads

    @property
    def _projected(self) -> int:
        """Of a token in one layer: all input projections."""
        config = self.config
        gate = config.value_dim if config.use_gate else 0
        return self.item * (config.conv_dim + gate + 2 * config.num_v_heads)

    @property
    def _gated(self) -> int:
        """Of a token in one layer: q, k, v and the gates."""
        config = self.config
        return self.item * (2 * config.key_dim + config.conv_dim) + 2 * FLOAT32 * config.num_v_heads

    @property
    def _mlp(self) -> int:
        """Of a token: its stream and norm, gate and up, and their product."""
        return self.item * (3 * self.config.hidden_size + 4 * self.config.intermediate_size)

    def _record(self, decode: Decode) -> int:
        """What one layer leaves of a node: the mixer's input, projections, operands, output, and factors if any."""
        config = self.config
        left = self.item * config.hidden_size + self._projected + self._gated + FLOAT32 * config.value_dim
        if decode.verify in ("ar", "chain", "tree", "hybrid", "auto"):
            left += FLOAT32 * config.value_dim + _FLOAT64 * config.num_v_heads
        return left

    def _states_kept(self, decode: Decode) -> int:
        """Of all nodes, in one layer, where verification hands them to recovery."""
        places = decode.tree.nodes + (decode.verify == "parent_pointer")
        return decode.batch * self.state * places if decode.recover == "snapshot" else 0

    def _verifying(self, decode: Decode) -> int:
        """In the layer that runs: its convolution, or its MLP, or its verification."""
        config, batch, tree = self.config, decode.batch, decode.tree
        tokens = batch * tree.nodes
        # The taps of every node side by side, in the dtype and in float32.
        taps = config.conv_dim * (config.conv_size * (self.item + FLOAT32) + 2 * FLOAT32)
        keys, values = 2 * FLOAT32 * config.key_dim, FLOAT32 * config.value_dim
        walk = tokens * (3 * keys + 10 * values) + 2 * batch * self.state
        match decode.verify:
            case "tree" | "auto":
                pairs = tree.nodes * (tree.nodes + decode.ring)
                rule = tokens * (4 * keys + 8 * values) + 28 * batch * config.num_v_heads * pairs
                rule += batch * self.state * bool(decode.ring)
            case "hybrid":
                widest = max(len(wave) for wave in tree.plan.waves)
                rule = walk + batch * self.state * (len(tree.plan.boundaries) + 2 * widest) + tokens * (keys + values)
            case "naive_batched":
                paths, length = tree.leaf_paths.shape
                rule = self._chunked(batch * paths, length) + batch * paths * self.state
            case "sequential_replay":
                live = tree.nodes if decode.recover == "snapshot" else _live_states(tree)
                rule = tokens * 2 * values + batch * self.state * (live + 1)
            case _:
                rule = walk
        return max(tokens * taps, tokens * self._mlp, rule)

    def _chunked(self, rows: int, tokens: int) -> int:
        """The delta rule over tokens in chunks, one layer."""
        config, chunk = self.config, min(CHUNK, tokens)
        padded = -(-tokens // chunk) * chunk
        heads = padded * config.num_v_heads
        sizes = 7 * config.head_dim + 5 * config.head_v_dim
        # Of a chunk's pairs of tokens two tables in float64, or four in float32, are alive at once.
        return rows * (heads * (FLOAT32 * sizes + 2 * _FLOAT64 * chunk) + 2 * self.state)

    def _prompt(self, batch: int, tokens: int) -> int:
        """A layer over the prompts, a segment at a time."""
        config, segment = self.config, min(tokens, SEGMENT)
        convolved = config.conv_dim * (2 * self.item + 3 * FLOAT32)
        stream = 2 * self.item * config.hidden_size
        mixer = batch * segment * (stream + self._projected + self._gated + convolved)
        return max(mixer + self._chunked(batch, segment), batch * segment * (stream + self._mlp))

    def _committing(self, decode: Decode) -> int:
        """All layers side by side: convolution inputs twice, and what the recovery reads."""
        config, batch, nodes = self.config, decode.batch, decode.tree.nodes
        node = 2 * self.item * config.conv_dim
        path = decode.tree.depth + 1
        if decode.recover == "replay_cached":
            node += self._gated
            path *= 2
        elif decode.recover.startswith("factors") or decode.recover == "in_place":
            node += self._factors
        taken = self.layers * batch * path * (self._factors + FLOAT32 * config.value_dim)
        return self.layers * batch * nodes * node + taken

    def _drafting(self, decode: Decode) -> int:
        """An aligned drafter's level of most nodes: their scores, and its layer on the nodes above them."""
        if not decode.drafted:
            return 0
        tree, config = decode.tree, self.config
        inner = [sum(1 for node in level if tree.children[node]) for level in _levels(tree)]
        scored = (_NOISE if decode.sampled else 3 * FLOAT32) * decode.drafted
        last = decode.batch * tree.nodes * self.item * config.hidden_size
        rows = decode.batch * max(inner)
        layer = decode.batch * tree.nodes * (self._gated + self._projected) + rows * self._mlp
        return last + layer + rows * scored + decode.batch * 2 * self.state


def _levels(tree: DraftTree) -> list[list[int]]:
    return [[node for node in range(tree.nodes) if tree.depths[node] == depth] for depth in range(tree.depth + 1)]


def _live_states(tree: DraftTree) -> int:
    """The most stored states of a node-by-node replay that drops a state after the last child."""
    live = most = 1
    for node, parent in enumerate(tree.parents):
        live += 1
        most = max(most, live)
        if parent >= 0 and tree.children[parent][-1] == node:
            live -= 1
    return most
