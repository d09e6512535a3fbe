"""The weights that a configuration asks for, names and shapes, and files held against them; no network is made."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from specla.errors import SpeclaError
from specla.models.config import GatedDeltaNetConfig
from specla.models.shards import Stored, misnamed, require_floats

EMBEDDINGS, HEAD = "model.embeddings.weight", "lm_head.weight"
LAYER = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,9})\.(.+)")


class ModelShapes(Mapping[str, tuple[int, ...]]):
    """The shapes of a model's weights by name, tied ones once; made of one layer, however many a config asks for."""

    def __init__(self, config: GatedDeltaNetConfig) -> None:
        self._layers, self._layer = config.num_hidden_layers, _layer(config)
        embeddings = (config.vocab_size, config.hidden_size)
        self._around: dict[str, tuple[int, ...]] = {EMBEDDINGS: embeddings, "model.norm.weight": (config.hidden_size,)}
        if not config.tie_word_embeddings:
            self._around[HEAD] = embeddings

    def __getitem__(self, name: str) -> tuple[int, ...]:
        layer = LAYER.fullmatch(name)
        if layer is None:
            return self._around[name]
        if int(layer[1]) >= self._layers:
            raise KeyError(name)
        return self._layer[layer[2]]

    def __iter__(self) -> Iterator[str]:
        yield from self._around
        for layer in range(self._layers):
            yield from (f"model.layers.{layer}.{name}" for name in self._layer)

    def __len__(self) -> int:
        return len(self._around) + self._layers * len(self._layer)


def _layer(config: GatedDeltaNetConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.num_v_heads
    channels = {"q": config.key_dim, "k": config.key_dim, "v": config.value_dim}
    projected = {**channels, "a": heads, "b": heads, **({"g": config.value_dim} if config.use_gate else {})}
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (hidden,),
        "attn.A_log": (heads,),
        "attn.dt_bias": (heads,),
    }
    shapes |= {f"attn.{name}_proj.weight": (size, hidden) for name, size in projected.items()}
    shapes |= {f"attn.{name}_conv1d.weight": (size, 1, config.conv_size) for name, size in channels.items()}
    if config.conv_bias:
        shapes |= {f"attn.{name}_conv1d.bias": (size,) for name, size in channels.items()}
    shapes |= {"attn.o_norm.weight": (config.head_v_dim,), "attn.o_proj.weight": (hidden, config.value_dim)}
    shapes |= {"mlp_norm.weight": (hidden,), "mlp.down_proj.weight": (hidden, inner)}
    return shapes | {f"mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}


def require_fit(
    expected: Mapping[str, tuple[int, ...]], found: Mapping[str, Stored], folder: Path, hint: str = ""
) -> None:
    """Hold what files hold against what a configuration asks for.

    Args:
        expected: shapes by name; may have far more names than can be gone through.
        found: in the files.
        folder: of both, for messages.
        hint: what else to say where they differ.

    Raises:
        SpeclaError: a weight is missing, of another shape, of a dtype that is not run, or is unknown.
    """
    require_floats({name: stored for name, stored in found.items() if name in expected})
    missing = len(expected) - sum(name in expected for name in found)
    unknown = sorted(name for name in found if name not in expected)
    if missing:
        first = next(name for name in expected if name not in found)
        raise SpeclaError(
            f"{folder}: no weight {first!r} ({missing} missing){misnamed(first, unknown)}; config.json does not fit "
            f"the weights{hint}"
        )
    if unknown:
        raise SpeclaError(
            f"{folder}: unexpected weight {unknown[0][:200]!r} ({len(unknown)} in all); config.json does not fit the "
            f"weights{hint}"
        )
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise SpeclaError(
                f"{folder}: weight {name!r} has shape {found[name].shape}, config.json asks for {shape}{hint}"
            )
