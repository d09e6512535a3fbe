"""What flash-linear-attention makes of checkpoints that specla wrote: `python -m tests.models.fla_outputs FOLDER`.

In every FOLDER/NAME it loads `ours`, runs `ids` and writes `outputs.pt`, and saves the model again as `theirs`. It runs
in a process of its own, since Triton's interpreter is chosen, for all kernels, when Triton is first imported.
"""

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.interpreter import hasten

PREFILL, SHARD = 6, "10KB"


def import_fla() -> Any:
    """The model class, its kernels interpreted, each with one configuration: the interpreter cannot time several."""
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.runtime.autotuner import Autotuner

    hasten()
    whole = Autotuner.__init__

    def widest_config(self: Any, fn: Any, arg_names: Any, configs: Any, *args: Any, **more: Any) -> None:
        # The interpreter is slow by the program.
        whole(self, fn, arg_names, [max(configs, key=lambda one: math.prod(one.kwargs.values()))], *args, **more)

    Autotuner.__init__ = widest_config
    from fla.models import GatedDeltaNetForCausalLM

    return GatedDeltaNetForCausalLM


def load(model_class: Any, folder: Path) -> Any:
    """The model; its blocks do not pass `conv_bias` on to their layers, so those are made anew where it is set."""
    unfused = {"fuse_norm": False, "fuse_swiglu": False, "fuse_cross_entropy": False}
    model, told = model_class.from_pretrained(folder, output_loading_info=True, **unfused)
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    unread = set(told["unexpected_keys"])
    if raw["conv_bias"]:
        unread -= add_biases(model, folder, raw)
    assert not told["missing_keys"] and not unread and not told["mismatched_keys"], told
    return model.eval()


def add_biases(model: Any, folder: Path, raw: dict[str, Any]) -> set[str]:
    """Give every layer its convolution biases; returns their names."""
    from fla.layers import GatedDeltaNet
    from safetensors.torch import load_file

    sizes = ("hidden_size", "expand_v", "head_dim", "num_heads", "num_v_heads", "conv_bias", "norm_eps")
    weights, biases = load_file(folder / "model.safetensors"), set()
    for i, block in enumerate(model.model.layers):
        layer = GatedDeltaNet(**{name: raw[name] for name in sizes}, layer_idx=i)
        start = f"model.layers.{i}.attn."
        own = {name.removeprefix(start): tensor for name, tensor in weights.items() if name.startswith(start)}
        layer.load_state_dict(own)
        block.attn = layer
        biases |= {start + name for name in own if name.endswith("conv1d.bias")}
    return biases


def outputs(model: Any, ids: Tensor) -> dict[str, Tensor]:
    """Logits of the prompt and of every cached step after it; the cache after each of the two."""
    found = model(ids[:, :PREFILL], use_cache=True)
    kept = {"prefill": found.logits, **cache(found.past_key_values, "prefill")}
    steps = []
    for i in range(PREFILL, ids.shape[1]):
        found = model(ids[:, i : i + 1], past_key_values=found.past_key_values, use_cache=True)
        steps.append(found.logits)
    return {**kept, "steps": torch.cat(steps, dim=1), **cache(found.past_key_values, "steps")}


def cache(cached: Any, when: str) -> dict[str, Tensor]:
    """States [L, B, HV, V, K], and the newest three inputs of the convolutions of q, k, v side by side [L, B, 3, C]."""
    layers = [cached[i] for i in range(len(cached))]
    windows = [torch.cat([part[..., -3:] for part in layer["conv_state"]], dim=1).mT for layer in layers]
    return {
        f"{when} recurrent": torch.stack([layer["recurrent_state"] for layer in layers]).clone(),
        f"{when} window": torch.stack(windows).clone(),
    }


@torch.inference_mode()
def main(root: Path) -> None:
    """All models under `root`."""
    torch.set_num_threads(1)
    model_class = import_fla()
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        model = load(model_class, folder / "ours")
        torch.save(outputs(model, torch.load(folder / "ids.pt")), folder / "outputs.pt")
        size = SHARD if (folder / "ours" / "model.safetensors.index.json").exists() else "1GB"
        model.save_pretrained(folder / "theirs", max_shard_size=size)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
