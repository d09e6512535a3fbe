"""The keys of a config.json: their types, their defaults, and what is outside what they can be."""

import ast
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from specla.errors import SpeclaError
from specla.models.config import DEFAULTS, MOST, GatedDeltaNetConfig
from tests.models.cases import SHAPE, tiny_config


def read(**changes: Any) -> GatedDeltaNetConfig:
    # Through JSON, as it comes.
    raw = json.loads(json.dumps({**tiny_config().to_hf(), **changes}))
    return GatedDeltaNetConfig.from_hf(raw, "config.json")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("num_hidden_layers", 2.7, "num_hidden_layers=2.7: give a whole number"),
        ("num_hidden_layers", 2.0, "num_hidden_layers=2.0: give a whole number"),
        ("num_hidden_layers", "2", "num_hidden_layers='2': give a whole number"),
        ("num_hidden_layers", True, "num_hidden_layers=True: give a whole number"),
        ("num_hidden_layers", 0, "num_hidden_layers=0: must be at least 1"),
        ("num_hidden_layers", -3, "num_hidden_layers=-3: must be at least 1"),
        ("hidden_size", None, "hidden_size=None: give a whole number"),
        ("hidden_size", [32], "hidden_size=[32]: give a whole number"),
        ("hidden_size", {"a": 1}, "hidden_size={'a': 1}: give a whole number"),
        ("hidden_size", 2**31, f"hidden_size={2**31}: must be at most {MOST}"),
        ("hidden_size", 10**3000, "hidden_size=9966 bits: must be at most"),
        ("hidden_size", float("inf"), "hidden_size=inf: give a whole number"),
        ("vocab_size", "wide" * 100, "vocab_size='widewide"),
        ("num_v_heads", 0, "num_v_heads=0: must be at least 1"),
        ("conv_size", 0, "conv_size=0: must be at least 1"),
        ("conv_size", 4.0, "conv_size=4.0: give a whole number"),
        ("intermediate_size", 48.5, "intermediate_size=48.5: give a whole number"),
        ("expand_v", float("inf"), "expand_v=inf: give a number"),
        ("expand_v", float("nan"), "expand_v=nan: give a number"),
        ("expand_v", -1, "expand_v=-1.0: give a number above 0"),
        ("expand_v", 0, "expand_v=0.0: give a number above 0"),
        ("expand_v", 1e-9, "expand_v=1e-09: times head_dim=8 must be a whole number"),
        ("expand_v", True, "expand_v=True: give a number"),
        ("expand_v", "1", "expand_v='1': give a number"),
        ("expand_v", 10**400, "expand_v="),
        ("norm_eps", float("nan"), "norm_eps=nan: give a number"),
        ("norm_eps", 0, "norm_eps=0.0: give a small number above 0"),
        ("initializer_range", -0.1, "initializer_range=-0.1: give 0 or more"),
        ("hidden_ratio", "4", "hidden_ratio='4': give a number"),
        ("use_gate", "false", "use_gate='false': give true or false"),
        ("use_gate", 1, "use_gate=1: give true or false"),
        ("use_short_conv", "false", 'use_short_conv="false"'),
        ("output_gate_activation", ["swish"], "output_gate_activation=['swish']: one of"),
        ("eos_token_id", 97, "eos_token_id=97: the vocabulary has the tokens 0 to 96"),
        ("eos_token_id", -1, "eos_token_id=-1: the vocabulary has the tokens 0 to 96"),
        ("eos_token_id", [3, 97], "eos_token_id=97: the vocabulary has the tokens 0 to 96"),
        ("eos_token_id", 2.0, "eos_token_id=2.0: give token ids"),
        ("eos_token_id", True, "eos_token_id=True: give token ids"),
        ("eos_token_id", {"a": 1}, "eos_token_id={'a': 1}: give token ids"),
        ("bos_token_id", 97, "bos_token_id=97: the vocabulary has the tokens 0 to 96"),
        ("bos_token_id", [1], "bos_token_id=[1]: give one token id, or null"),
        ("model_type", {"a": "b" * 1000}, "model_type={'a': 'bbb"),
    ],
)
def test_a_value_that_is_not_what_it_stands_for_is_refused(name: str, value: Any, told: str) -> None:
    with pytest.raises(SpeclaError) as caught:
        read(**{name: value})
    assert str(caught.value).startswith(f"config.json: {told}")
    assert len(str(caught.value)) < 200


def test_whole_numbers_do_for_numbers() -> None:
    assert read(expand_v=2, norm_eps=1e-5).expand_v == 2.0


def test_a_bare_config_is_flash_linear_attentions_default() -> None:
    config = GatedDeltaNetConfig.from_hf({"model_type": "gated_deltanet"}, "config.json")
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (32000, 2048, 21)
    assert (config.num_heads, config.num_v_heads, config.head_dim, config.expand_v) == (6, 6, 256, 2.0)
    assert (config.intermediate_size, config.conv_size, config.norm_eps) == (5632, 4, 1e-6)
    assert (config.bos_token_id, config.eos_token_id) == (1, (2,))
    assert config.use_gate and not (config.conv_bias or config.allow_neg_eigval or config.tie_word_embeddings)


def test_the_defaults_are_those_of_the_installed_library() -> None:
    """Its file is read, not run: importing it loads torch, Triton and transformers."""
    found = find_spec("fla")
    if found is None or found.origin is None:
        pytest.skip("flash-linear-attention is not installed")
    file = Path(found.origin).parent / "models" / "gated_deltanet" / "configuration_gated_deltanet.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (made,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    names = [argument.arg for argument in made.args.args][-len(made.args.defaults) :]
    theirs = dict(zip(names, map(ast.literal_eval, made.args.defaults), strict=True))
    # It knows conv_bias in its layers alone.
    ours = {name: value for name, value in DEFAULTS.items() if name != "conv_bias"}
    assert ours == {name: theirs[name] for name in ours}


@pytest.mark.parametrize("name", SHAPE)
def test_a_dial_is_held_to_the_same_bounds(name: str) -> None:
    with pytest.raises(SpeclaError, match=f"^model.{name}="):
        tiny_config(**{name: float("nan") if name == "expand_v" else 2**31})
