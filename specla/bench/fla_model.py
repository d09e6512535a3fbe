"""flash-linear-attention's model with our weights, and its cache with our state."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from specla.errors import SpeclaError, told
from specla.models.config import GatedDeltaNetConfig
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.state import DecodeState

ENGINES = ("fla-generate", "fla-graph")


def obstacle(engine: str, device: str) -> str:
    """Why an engine cannot decode on a device, or nothing; it has its kernels in Triton alone.

    Args:
        engine: of a cell, our own too.
        device: `cpu`, `cuda` or `cuda:N`.
    """
    if engine not in ENGINES:
        return ""
    if not device.startswith("cuda"):
        return f"{engine} runs flash-linear-attention's kernels, which need a GPU: give device=cuda"
    try:
        import fla.models  # noqa: F401
    except Exception as error:  # an ImportError, or whatever its own checks of versions and drivers raise
        return f"{engine} needs flash-linear-attention, which cannot be imported ({told(error)})"
    return ""


def foreign_model(model: GatedDeltaNetLM, **changes: Any) -> Any:
    """flash-linear-attention's GatedDeltaNetForCausalLM with our weights, which lie in the same memory.

    Args:
        model: ours.
        changes: of its configuration.

    Raises:
        SpeclaError: it has no such model.
    """
    if model.config.conv_bias:
        raise SpeclaError("model.conv_bias=true: flash-linear-attention's model has no bias in its convolutions")
    from fla.models import GatedDeltaNetConfig, GatedDeltaNetForCausalLM
    from transformers.generation.utils import GenerationMixin

    class Bridged(GatedDeltaNetForCausalLM):  # type: ignore[misc]
        """Its model, under any transformers that specla runs with.

        Newer ones call a cache `cache`. The forward pass of flash-linear-attention 0.6.0 lets an argument of that name
        go by unread, so that its generate would begin every token with an empty state.
        """

        def prepare_inputs_for_generation(
            self, input_ids: Tensor, cache: Any = None, past_key_values: Any = None, **given: Any
        ) -> dict[str, Any]:
            """What the model is called with for the next token."""
            given[cache_argument()] = past_key_values if cache is None else cache
            prepared: dict[str, Any] = GenerationMixin.prepare_inputs_for_generation(self, input_ids, **given)
            if "cache" in prepared:
                prepared["past_key_values"] = prepared.pop("cache")
            return prepared

    with torch.device("meta"):
        made = Bridged(GatedDeltaNetConfig(**{**model.config.to_hf(), **changes}))
    # Its kernels want them contiguous, and would copy the others in every step.
    made.load_state_dict({name: x.contiguous() for name, x in model.state_dict().items()}, assign=True)
    # Texts are ended by our stop rule.
    made.generation_config.eos_token_id = made.generation_config.pad_token_id = None
    return made.eval().requires_grad_(False)


def cache_argument() -> str:
    """What the installed transformers calls a cache."""
    from inspect import signature

    from transformers.generation.utils import GenerationMixin

    given = signature(GenerationMixin.prepare_inputs_for_generation).parameters
    return "cache" if "cache" in given else "past_key_values"


Layers = list[dict[str, Any]]
"""A cache, a layer each: `recurrent_state` [B, HV, V, K] float32; `conv_state`, of q, k and v, [B, C, W]."""


def foreign_layers(state: DecodeState, config: GatedDeltaNetConfig) -> Layers:
    """A copy of a state as its cache holds it: windows oldest first, behind a place that it never reads."""
    sizes = [config.key_dim, config.key_dim, config.value_dim]
    layers: Layers = []
    for recurrent, window in zip(state.recurrent, state.window, strict=True):
        parts = F.pad(window.transpose(1, 2), (1, 0)).split(sizes, dim=1)
        layers.append({"recurrent_state": recurrent.clone(), "conv_state": tuple(x.contiguous() for x in parts)})
    return layers


class InPlace(TorchFunctionMode):
    """Inside, the step of every layer in turn is given its own state's memory for the new one, where it asks for some.

    Its kernel reads an element of the state before it writes the same one, so that both may be one tensor. It asks for
    new memory all the same, and a graph that begins each step at the same place would have to copy the state back,
    which takes as long as the step's work on it.

    Args:
        states: [B, HV, V, K] float32, of the layers in their order.
    """

    def __init__(self, states: Sequence[Tensor]) -> None:
        super().__init__()
        self._shape, self._next = tuple(states[0].shape), iter(states)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Any call into torch."""
        given = kwargs or {}
        if func is Tensor.new_empty and args[1:] == self._shape and given.get("dtype") == torch.float32:
            return next(self._next)
        return func(*args, **given)


def tensors_of(layers: Iterable[dict[str, Any]]) -> list[Tensor]:
    """All tensors of a cache."""
    return [x for layer in layers for x in (layer["recurrent_state"], *layer["conv_state"])]
