"""What a gated delta net must hold, move and compute, from its shape alone: no torch, nothing measured.

The floors of the benchmarks come from here: bytes that must move, over a measured bandwidth. Of activations only the
delta rule's operands and its factors count, since recovery or another kernel reads them; the rest could stay on chip.
"""

import dataclasses
from dataclasses import dataclass

from specla.errors import SpeclaError
from specla.models.config import GatedDeltaNetConfig

FLOAT32 = 4
"""Bytes of the state, of u, of gates and of decays, whatever the model's dtype. Strategies in torch keep decays in
float64; a floor asks for no more than float32."""

_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Traffic:
    """Bytes that must cross the memory bus."""

    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Both ways."""
        return self.read_bytes + self.written_bytes

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.read_bytes + other.read_bytes, self.written_bytes + other.written_bytes)

    def floor_us(self, read_bytes_s: float, copy_bytes_s: float) -> float:
        """The least time this takes, in microseconds.

        Every byte written goes with one that is read, at the speed of a copy; what is left of the reading goes at the
        speed of reading.

        Args:
            read_bytes_s: bandwidth measured while only reading.
            copy_bytes_s: bandwidth measured while copying, bytes read and bytes written both counted.
        """
        only_read = max(0, self.read_bytes - self.written_bytes)
        return 1e6 * (only_read / read_bytes_s + (self.total_bytes - only_read) / copy_bytes_s)


@dataclass(frozen=True)
class ModelCost:
    """Bytes and operations of one model in one dtype, over all of its layers.

    With L layers, H key heads, HV value heads, K and V their sizes, C channels and width W of the short convolution,
    e bytes an item of the dtype.
    """

    config: GatedDeltaNetConfig
    item_bytes: int

    @classmethod
    def of(cls, config: GatedDeltaNetConfig, dtype: object) -> "ModelCost":
        """The cost of a model.

        Args:
            config: its shape.
            dtype: float32, float16 or bfloat16, by name or as torch's dtype.
        """
        name = str(dtype).removeprefix("torch.")
        if name not in _ITEM_BYTES:
            raise SpeclaError(f"dtype={name}: no model runs in it; use {', '.join(_ITEM_BYTES)}")
        return cls(config, _ITEM_BYTES[name])

    @property
    def one_layer(self) -> "ModelCost":
        """The same for one layer: what the timing of a single operation is held against."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, num_hidden_layers=1))

    @property
    def weight_bytes(self) -> int:
        """Held by the weights: e x parameters, A_log and dt_bias being float32 always."""
        gates = 2 * self.config.num_v_heads * self.config.num_hidden_layers
        return self.config.parameters * self.item_bytes + gates * (FLOAT32 - self.item_bytes)

    @property
    def weight_read_bytes(self) -> int:
        """Read by one step: every weight once, but of an untied embedding table only the rows of the tokens."""
        table = self.config.vocab_size * self.config.hidden_size * self.item_bytes
        return self.weight_bytes - (0 if self.config.tie_word_embeddings else table)

    @property
    def state_bytes(self) -> int:
        """Recurrent state of a row: 4 L HV V K. It is also what a snapshot of one draft token takes."""
        return FLOAT32 * self._layers * self.config.value_dim * self.config.head_dim

    @property
    def window_bytes(self) -> int:
        """Convolution windows of a row: e L (W - 1) C."""
        return self.item_bytes * self._layers * (self.config.conv_size - 1) * self.config.conv_dim

    @property
    def factor_bytes(self) -> int:
        """Factors (k, u, G) of a node: L (e H K + 4 HV V + 4 HV)."""
        return self._layers * self.item_bytes * self.config.key_dim + self.new_factor_bytes

    @property
    def new_factor_bytes(self) -> int:
        """What verification adds to memory for them: u and G, since k is among its inputs."""
        return self._layers * FLOAT32 * (self.config.value_dim + self.config.num_v_heads)

    @property
    def input_bytes(self) -> int:
        """Inputs (q, k, v, g, beta) of the delta rule for a node: L (e (2 H K + HV V) + 8 HV)."""
        return self._layers * (self.item_bytes * self.config.conv_dim + 2 * FLOAT32 * self.config.num_v_heads)

    @property
    def output_bytes(self) -> int:
        """Output of the delta rule for a node, rounded to the dtype as the gated norm reads it: e L HV V."""
        return self._layers * self.item_bytes * self.config.value_dim

    @property
    def _layers(self) -> int:
        return self.config.num_hidden_layers

    def held_bytes(self, batch: int, states: int = 1) -> int:
        """Weights, and `states` recurrent states with their windows for each of `batch` rows."""
        return self.weight_bytes + batch * states * (self.state_bytes + self.window_bytes)

    def verify(
        self, batch: int, nodes: int, *, known: int = 0, writes_state: bool = False, leaves_factors: bool = True
    ) -> Traffic:
        """One verification: the state read once, inputs read, outputs and new factors written.

        Args:
            batch: rows.
            nodes: T, root included.
            known: committed factors a row that are read beside the state.
            writes_state: whether they, or the nodes themselves, are taken into the state: deferred, in place.
            leaves_factors: whether recovery will read factors.
        """
        read = self.state_bytes + nodes * self.input_bytes + known * self.factor_bytes
        written = nodes * (self.output_bytes + (self.new_factor_bytes if leaves_factors else 0))
        return Traffic(batch * read, batch * (written + (self.state_bytes if writes_state else 0)))

    def commit(self, batch: int, tokens: int) -> Traffic:
        """One commit by itself: the state read and written, the factors of `tokens` nodes a row read."""
        return Traffic(batch * (self.state_bytes + tokens * self.factor_bytes), batch * self.state_bytes)

    def step(
        self, batch: int, nodes: int, *, known: int = 0, writes_state: bool = True, leaves_factors: bool | None = None
    ) -> Traffic:
        """One decoding step: weights once, and for each row the state, the windows and the delta rule's operands.

        The state is read and written once however a strategy goes about it, so that what an extra pass costs shows
        against this floor; only a lazy ring, which seldom folds, may leave it unwritten. None takes AR (nodes=1) to
        work in place and drafts to leave factors. The other arguments are those of `verify`.
        """
        kept = nodes > 1 if leaves_factors is None else leaves_factors
        rule = self.verify(batch, nodes, known=known, writes_state=writes_state, leaves_factors=kept)
        rows = 0 if self.config.tie_word_embeddings else nodes * self.config.hidden_size * self.item_bytes
        around = Traffic(batch * (self.window_bytes + rows), batch * self.window_bytes)
        return Traffic(read_bytes=self.weight_read_bytes) + around + rule

    def step_flops(self, batch: int, nodes: int, committed: int = 1) -> int:
        """Floating point operations of one step, a multiplication and an addition counted as two.

        For a row of T nodes: 2 T (weights of the matrix products + W C L), and per layer 4 T HV V K for S k and S q,
        2 T^2 (H K + HV V) for the triangles of K K^T and Q K^T, the solve and the masked product with U, and
        2 HV V K for each committed node. Norms, gates and other elementwise work is left out.
        """
        config, layers = self.config, self._layers
        gate = config.value_dim if config.use_gate else 0
        mixer = config.hidden_size * (config.conv_dim + gate + 2 * config.num_v_heads + config.value_dim)
        products = layers * (mixer + 3 * config.hidden_size * config.intermediate_size)
        products += config.vocab_size * config.hidden_size
        dense = 2 * nodes * (products + layers * config.conv_size * config.conv_dim)
        state = (4 * nodes + 2 * committed) * config.value_dim * config.head_dim
        pairs = 2 * nodes**2 * (config.key_dim + config.value_dim)
        return batch * (dense + layers * (state + pairs))
