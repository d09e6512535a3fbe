"""Checkpoint folders: what is refused and how, and that nothing is lost between writing and reading."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import WordLevel

from specla.errors import SpeclaError
from specla.models.checkpoint import load_model, resolve_folder, save_model, weights_digest
from specla.models.config import DEFAULTS, GatedDeltaNetConfig
from specla.models.folder import read_config
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.look import checkpoint_notes
from specla.models.shards import weight_files
from specla.models.tokenizer import TextTokenizer
from tests.models.cases import raw_model, tiny_config, tiny_model, tokens

ROOT = Path(__file__).parents[2]
SHARDS = "10KB"
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of one model: `whole` in one file, `shards` in several."""
    root = tmp_path_factory.mktemp("checkpoints")
    save_model(raw_model(), root / "whole", torch.float32)
    save_model(raw_model(), root / "shards", torch.float32, shard_size=SHARDS)
    return root


@pytest.fixture
def whole(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written / "whole", tmp_path / "whole"))


@pytest.fixture
def shards(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written / "shards", tmp_path / "shards"))


def refused(call: Callable[[], object], *parts: object) -> None:
    """The call ends in one line that holds all parts."""
    with pytest.raises(SpeclaError) as caught:
        call()
    told = str(caught.value)
    assert "\n" not in told
    for part in parts:
        assert str(part) in told, told


def edit(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**raw, **changes}), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"attn": {"layers": [1], "num_heads": 2}}, ["attn", "attention layers are not supported"]),
        ({"attnres_block_size": 2}, ["attnres_block_size", "not supported"]),
        ({"use_short_conv": False}, ["use_short_conv=false", "not supported"]),
        ({"model_type": "mamba2"}, ["model_type='mamba2'", "'gated_deltanet'"]),
        ({"model_type": None}, ["model_type=None", "'gated_deltanet'"]),
        ({"hidden_act": "gelu"}, ["hidden_act='gelu'", "'swish'"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config", "not supported"]),
        ({"output_gate_activation": "tanh"}, ["output_gate_activation", "tanh", "sigmoid"]),
        ({"conv_size": 1}, ["conv_size", "2 or more"]),
        ({"num_v_heads": 3}, ["num_v_heads=3", "multiple of num_heads=2"]),
        ({"num_heads": 0}, ["num_heads=0", "at least 1"]),
        ({"expand_v": 1.3}, ["expand_v=1.3", "whole number"]),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(changes: dict[str, Any], parts: list[str], whole: Path) -> None:
    edit(whole, **changes)
    refused(lambda: load_model(whole, torch.float32), whole / "config.json", *parts)


@pytest.mark.parametrize("content", [b"", b"{", b'{"vocab_size": 97', b"\xff\xfe\x00", b"[1, 2]", b"null", b"{}"])
def test_damaged_configuration(content: bytes, whole: Path) -> None:
    (whole / "config.json").write_bytes(content)
    refused(lambda: read_config(whole), whole / "config.json")


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_hidden_layers", "num_heads", "head_dim"])
def test_a_size_that_is_left_out_is_the_default_and_told_where_it_does_not_fit(key: str, whole: Path) -> None:
    raw = json.loads((whole / "config.json").read_text(encoding="utf-8"))
    del raw[key], raw["num_v_heads"]
    (whole / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    assert getattr(read_config(whole), key) == DEFAULTS[key]
    told = f"it leaves out {key} ({DEFAULTS[key]} by default): add what differs"
    refused(lambda: load_model(whole, torch.float32), whole, told)


def test_missing_configuration(whole: Path) -> None:
    (whole / "config.json").unlink()
    refused(lambda: load_model(whole, torch.float32), whole, "no config.json")


def test_missing_weights(whole: Path) -> None:
    (whole / "model.safetensors").unlink()
    refused(lambda: load_model(whole, torch.float32), whole, "model.safetensors is missing")


def test_missing_shard(shards: Path) -> None:
    lost = weight_files(shards)[1]
    lost.unlink()
    refused(lambda: load_model(shards, torch.float32), shards, f"{lost.name} is missing", "complete")


@pytest.mark.parametrize("kept", [0, 4, 8, 200, 0.5, 0.99])
def test_truncated_weights(kept: float, whole: Path, shards: Path) -> None:
    """Cut in the header's length, in the header, in the weights: a full disk or a broken download."""
    for folder in (whole, shards):
        file = weight_files(folder)[-1]
        content = file.read_bytes()
        file.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
        refused(lambda folder=folder: load_model(folder, torch.float32), file, "cut short")


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_damaged_index(content: str, shards: Path) -> None:
    (shards / INDEX).write_text(content, encoding="utf-8")
    refused(lambda: load_model(shards, torch.float32), shards / INDEX)


@pytest.mark.parametrize("where", ["beside", "absolute"])
def test_an_index_that_leads_out_of_the_folder(where: str, whole: Path, tmp_path: Path) -> None:
    """The file is there and sound, but it is not the checkpoint's."""
    outside = tmp_path / "outside.safetensors"
    (whole / "model.safetensors").rename(outside)
    name = f"../{outside.name}" if where == "beside" else str(outside)
    (whole / INDEX).write_text(json.dumps({"weight_map": {"a": name}}), encoding="utf-8")
    refused(lambda: load_model(whole, torch.float32), whole / INDEX, name)


def test_weights_that_do_not_fit(whole: Path) -> None:
    file = whole / "model.safetensors"
    weights = load_file(file)
    name = "model.layers.1.attn.q_proj.weight"
    for changed, parts in (
        ({**weights, name: weights[name][:-1].clone()}, [name, "(15, 32)", "(16, 32)"]),
        ({key: value for key, value in weights.items() if key != name}, [f"no weight {name!r}", "1 missing"]),
        ({**weights, "model.layers.1.attn.extra": weights[name].clone()}, ["unexpected weight", "attn.extra"]),
    ):
        save_file(changed, file)
        refused(lambda: load_model(whole, torch.float32), whole, *parts)


def test_configuration_of_another_model(whole: Path) -> None:
    edit(whole, vocab_size=96)
    refused(lambda: load_model(whole, torch.float32), whole, "embeddings.weight", "(97, 32)", "(96, 32)")
    edit(whole, vocab_size=97, num_hidden_layers=3)
    refused(lambda: load_model(whole, torch.float32), whole, "no weight 'model.layers.2.")
    edit(whole, num_hidden_layers=1)
    refused(lambda: load_model(whole, torch.float32), whole, "unexpected weight 'model.layers.1.")


def test_tokenizer_of_another_model(whole: Path) -> None:
    config = read_config(whole)
    refused(lambda: TextTokenizer(whole, config), whole, "no tokenizer.json")
    file = whole / "tokenizer.json"
    file.write_text("{", encoding="utf-8")
    refused(lambda: TextTokenizer(whole, config), file, "cannot be read")
    for size in (97, 98):
        words = {f"w{i}": i for i in range(size)}
        LibraryTokenizer(WordLevel(words, unk_token="w0")).save(str(file))
        if size == 97:
            assert TextTokenizer(whole, config).decode([96]) == "w96"
        else:
            refused(lambda: TextTokenizer(whole, config), file, "'w97' has the id 97", "vocabulary has 97")


def test_folders_that_are_not_there(whole: Path) -> None:
    refused(lambda: resolve_folder("asset:gdn-huge"), "model.path=asset:gdn-huge", "gdn-mini")
    refused(lambda: resolve_folder(str(whole / "nowhere")), whole / "nowhere", "no such folder")
    refused(lambda: resolve_folder("./gdn"), "model.path=./gdn", "no such folder")
    refused(lambda: resolve_folder(str(whole / "config.json")), "config.json", "name the folder")
    refused(lambda: resolve_folder("~no-such-user/model"), "model.path=~no-such-user/model: cannot be looked at")
    refused(lambda: resolve_folder("x" * 5000), "cannot be looked at (", "too long")
    assert resolve_folder(str(whole)) == whole


@pytest.mark.parametrize("shard_size", ["1GB", SHARDS])
@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True, "conv_bias": True, "num_v_heads": 4}])
def test_bfloat16_comes_back_to_the_bit(changes: dict[str, Any], shard_size: str, tmp_path: Path) -> None:
    model = raw_model(**changes)
    save_model(model, tmp_path, torch.bfloat16, shard_size)
    assert (len(weight_files(tmp_path)) > 1) == (shard_size == SHARDS)
    loaded = load_model(tmp_path, torch.bfloat16)
    assert loaded.config == model.config == read_config(tmp_path)
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        kept = name.endswith(("A_log", "dt_bias"))
        wanted = tensor if kept else tensor.bfloat16()
        assert loaded.state_dict()[name].dtype == (torch.float32 if kept else torch.bfloat16)
        assert torch.equal(loaded.state_dict()[name], wanted), name
    stored = {name: tensor for file in weight_files(tmp_path) for name, tensor in load_file(file).items()}
    assert {name for name, tensor in stored.items() if tensor.dtype == torch.float32} == {
        name for name in stored if name.endswith(("A_log", "dt_bias"))
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_in_use_can_be_saved(dtype: torch.dtype, tmp_path: Path) -> None:
    """Packed weights share memory; what was loaded can be written again, in the dtype it has, and reads the same."""
    model = tiny_model(dtype=dtype)
    save_model(model, tmp_path / "first", dtype)
    again = load_model(tmp_path / "first", dtype)
    save_model(again, tmp_path / "second", dtype)
    ids = tokens(2, 9)
    wanted = model.logits(model(ids))
    for folder in ("first", "second"):
        loaded = load_model(tmp_path / folder, dtype)
        assert torch.equal(loaded.logits(loaded(ids)), wanted)


def test_tied_embeddings_stay_one_tensor(tmp_path: Path) -> None:
    save_model(raw_model(tie_word_embeddings=True), tmp_path, torch.float32)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    model = load_model(tmp_path, torch.float32)
    assert model.lm_head.weight is model.model.embeddings.weight


def test_saving_over_a_checkpoint_leaves_none_of_it(tmp_path: Path) -> None:
    save_model(raw_model(1), tmp_path, torch.float32, SHARDS)
    save_model(raw_model(2), tmp_path, torch.float32)
    loaded = load_model(tmp_path, torch.float32).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in raw_model(2).state_dict().items())


def test_what_is_left_unread_is_told(whole: Path, shards: Path) -> None:
    assert checkpoint_notes(whole) == checkpoint_notes(shards) == []
    edit(whole, auto_map={"AutoModel": "modeling_own.Model"})
    (whole / "modeling_own.py").write_text("raise SystemExit('run')", encoding="utf-8")
    load_model(whole, torch.float32)
    assert checkpoint_notes(whole) == [f"{whole}: the code that auto_map of config.json names is never run"]
    shutil.copy(weight_files(shards)[0], shards / "model-00009-of-00009.safetensors")
    load_model(shards, torch.float32)
    assert checkpoint_notes(shards) == [f"{shards}: model-00009-of-00009.safetensors not read: no index names it"]


def add(folder: Path, **tensors: torch.Tensor) -> None:
    file = folder / "model.safetensors"
    save_file({**load_file(file), **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}, file)


def test_early_checkpoints_hold_a_weight_that_was_never_used(whole: Path) -> None:
    """attn.D, a number a head, in every layer; anything else of that name is not theirs."""
    before = load_model(whole, torch.float32).state_dict()
    one = torch.ones(2)
    add(whole, model__layers__0__attn__D=one, model__layers__1__attn__D=one.clone())
    loaded = load_model(whole, torch.float32).state_dict()
    assert loaded.keys() == before.keys() and all(torch.equal(loaded[name], before[name]) for name in before)
    (note,) = checkpoint_notes(whole)
    assert note.startswith(f"{whole}: attn.D of 2 layers is not read")
    for wrong in (torch.ones(3), torch.ones(2, 1)):
        add(whole, model__layers__1__attn__D=wrong)
        refused(lambda: load_model(whole, torch.float32), "unexpected weight 'model.layers.0.attn.D'")
        refused(lambda: load_model(whole, torch.float32), "unexpected weight 'model.layers.")
    add(whole, model__layers__1__attn__D=one, model__layers__7__attn__D=one.clone())
    refused(lambda: load_model(whole, torch.float32), "unexpected weight 'model.layers.0.attn.D'")


@pytest.mark.parametrize(
    ("config", "generation", "wanted"),
    [
        (5, None, (5,)),
        ([5, 6, 5], None, (5, 6)),
        (None, None, ()),
        ([], None, ()),
        (5, {"eos_token_id": [7, 8]}, (7, 8)),
        (5, {"eos_token_id": 96}, (96,)),
        (5, {"eos_token_id": None}, ()),
        (5, {"temperature": 0.6}, (5,)),
    ],
)
def test_what_ends_a_text(config: Any, generation: dict[str, Any] | None, wanted: tuple[int, ...], whole: Path) -> None:
    edit(whole, eos_token_id=config)
    if generation is not None:
        (whole / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    found = read_config(whole)
    assert found.eos_token_id == wanted
    assert GatedDeltaNetConfig.from_hf(found.to_hf(), "config.json") == found
    assert load_model(whole, torch.float32).config == found


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "not valid JSON"),
        ('{"eos_token_id": 97}', "eos_token_id=97: the vocabulary has the tokens 0 to 96"),
        ('{"eos_token_id": [5, -1]}', "eos_token_id=-1: the vocabulary has the tokens 0 to 96"),
        ('{"eos_token_id": "</s>"}', "eos_token_id='</s>': give token ids"),
        ('{"eos_token_id": [true]}', "eos_token_id=[True]: give token ids"),
    ],
)
def test_a_damaged_generation_config(content: str, told: str, whole: Path) -> None:
    (whole / "generation_config.json").write_text(content, encoding="utf-8")
    refused(lambda: read_config(whole), f"{whole / 'generation_config.json'}: {told}")


def test_tied_embeddings_with_another_head(tmp_path: Path) -> None:
    """Transformers stores both at times; which one is meant where they differ is not for a loader to say."""
    save_model(raw_model(tie_word_embeddings=True), tmp_path, torch.float32)
    embeddings = load_file(tmp_path / "model.safetensors")["model.embeddings.weight"]
    add(tmp_path, lm_head__weight=embeddings.clone())
    load_model(tmp_path, torch.float32)
    add(tmp_path, lm_head__weight=embeddings + 1)
    refused(lambda: load_model(tmp_path, torch.float32), tmp_path, "tie_word_embeddings=true", "lm_head.weight")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**9},
        {"hidden_size": 10**6},
        {"hidden_size": 2**31 - 1, "vocab_size": 2**31 - 1},
        {"num_heads": 2**31 - 1, "num_v_heads": 2**31 - 1, "head_dim": 2**31 - 1},
        {"intermediate_size": 2**31 - 1},
        {"conv_size": 2**31 - 1},
    ],
)
def test_a_network_beyond_its_weights_is_refused_before_it_is_built(
    changes: dict[str, Any], whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specla.models.checkpoint.read_tensors", None)
    edit(whole, **changes)
    refused(lambda: load_model(whole, torch.float32), whole)


def test_the_digest_sees_every_byte(whole: Path) -> None:
    before = weights_digest(whole)
    file = whole / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    other = weights_digest(whole)
    edit(whole, eos_token_id=5)
    assert len({before, other, weights_digest(whole)}) == 3


def test_what_flash_linear_attention_leaves_out() -> None:
    """Its configurations write null for what follows from the rest."""
    sizes = {"vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 21, "num_heads": 6, "head_dim": 256}
    raw = {"model_type": "gated_deltanet", **sizes, "num_v_heads": None, "intermediate_size": None, "hidden_ratio": 4}
    config = GatedDeltaNetConfig.from_hf(raw, "config.json")
    assert (config.num_v_heads, config.expand_v, config.intermediate_size) == (6, 2.0, 5632)
    assert not config.tie_word_embeddings and config.use_gate
    assert GatedDeltaNetConfig.from_hf(config.to_hf(), "config.json") == config


def preset(name: str) -> dict[str, Any]:
    """What a preset says of the model's shape."""
    raw = yaml.safe_load((ROOT / "conf" / "model" / f"{name}.yaml").read_text(encoding="utf-8"))
    return {key: raw[key] for key in raw.keys() & GatedDeltaNetConfig.__dataclass_fields__.keys()}


PARAMETERS = {
    "gdn-tiny": 100_720,
    "gdn-mini": 9_483_072,
    "gdn-340m": 399_531_200,
    "gdn-1.3b": 1_466_343_808,
    "gdn-1.3b-fla": 1_387_348_732,
}


def test_every_preset_is_here() -> None:
    assert {file.stem for file in (ROOT / "conf" / "model").glob("*.yaml")} == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_the_presets(name: str) -> None:
    config = GatedDeltaNetConfig(**preset(name))
    with torch.device("meta"):
        held = sum(parameter.numel() for parameter in GatedDeltaNetLM(config).parameters())
    assert held == config.parameters == PARAMETERS[name]


@pytest.mark.parametrize("changes", [{}, {"conv_bias": True}, {"use_gate": False, "num_v_heads": 4, "expand_v": 2.0}])
def test_parameters_of_other_shapes(changes: dict[str, Any]) -> None:
    held = sum(parameter.numel() for parameter in raw_model(**changes).parameters())
    assert held == tiny_config(**changes).parameters


def test_the_bundled_model_is_what_its_preset_says() -> None:
    folder = resolve_folder("asset:gdn-mini")
    config = read_config(folder)
    assert {key: getattr(config, key) for key in preset("gdn-mini")} == preset("gdn-mini")
    size = sum(tensor.numel() for file in weight_files(folder) for tensor in load_file(file).values())
    assert size == PARAMETERS["gdn-mini"]
    assert TextTokenizer(folder, config).decode(TextTokenizer(folder, config).encode("def f(x):")) == "def f(x):"
