"""Weight files: shards and their index, damage by name, and that nothing is allocated or run that does not fit."""

import json
import math
import os
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specla.errors import SpeclaError
from specla.models.checkpoint import load_model, save_model, weights_digest
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.look import look_at
from specla.models.shapes import ModelShapes
from specla.models.shards import INDEX, stored_tensors, weight_files
from specla.models.weights import is_finite, require_finite
from tests.models.cases import raw_model, tiny_config

NAME = "model.layers.1.attn.q_proj.weight"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of one model: `whole` in one file, `shards` in several."""
    root = tmp_path_factory.mktemp("weights")
    save_model(raw_model(), root / "whole", torch.float32)
    save_model(raw_model(), root / "shards", torch.float32, shard_size="10KB")
    return root


@pytest.fixture
def whole(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written / "whole", tmp_path / "whole"))


@pytest.fixture
def shards(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written / "shards", tmp_path / "shards"))


def refusal(folder: Path) -> str:
    with pytest.raises(SpeclaError) as caught:
        load_model(folder, torch.float32)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 900
    return str(caught.value)


def reindex(folder: Path, change: Callable[[dict[str, str]], None]) -> None:
    raw = json.loads((folder / INDEX).read_text())
    change(raw["weight_map"])
    (folder / INDEX).write_text(json.dumps(raw))


def test_a_weight_in_two_shards_is_named(shards: Path) -> None:
    stored = stored_tensors(shards)[NAME]
    other = next(file for file in weight_files(shards) if file != stored.file)
    save_file({**load_file(other), NAME: load_file(stored.file)[NAME]}, other)
    told = refusal(shards)
    assert f"weight {NAME!r} is in" in told and "as well" in told


def test_an_index_that_says_another_shard(shards: Path) -> None:
    real = stored_tensors(shards)[NAME].file.name
    other = next(file.name for file in weight_files(shards) if file.name != real)
    reindex(shards, lambda said: said.update({NAME: other}))
    assert refusal(shards).startswith(f"{shards / INDEX}: weight {NAME!r} is in {other}, but it is in {real}")


def test_an_index_that_knows_a_weight_too_many_or_too_few(shards: Path) -> None:
    real = stored_tensors(shards)[NAME].file.name
    reindex(shards, lambda said: said.update({"ghost": real}))
    assert f"weight 'ghost' is in {real}, but it is in none of its files" in refusal(shards)
    reindex(shards, lambda said: [said.pop("ghost"), said.pop(NAME)])
    assert f"weight {NAME!r} is nowhere, but it is in {real}" in refusal(shards)


def test_two_sets_of_weights_are_not_chosen_from(whole: Path, shards: Path) -> None:
    shutil.copy(whole / "model.safetensors", shards)
    assert "has model.safetensors and the shards of model.safetensors.index.json" in refusal(shards)


@pytest.mark.parametrize("name", ["../x.safetensors", "/x.safetensors", "a/../../x.safetensors", ".."])
def test_an_index_stays_inside_its_folder(name: str, shards: Path) -> None:
    reindex(shards, lambda said: said.update({NAME: name}))
    assert f"{INDEX}: names {name!r}, outside of the checkpoint's folder" in refusal(shards)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", ""])
def test_an_index_with_names_that_nothing_has(name: str, shards: Path) -> None:
    for said in ({NAME: name}, {name: "model-00001-of-00002.safetensors"}):
        reindex(shards, lambda known, said=said: known.update(said))
        assert refusal(shards).startswith(f"{shards / INDEX}: damaged, ") and "is no name" in refusal(shards)


def renamed(folder: Path, name: Callable[[str], str]) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name(one): tensor for one, tensor in weights.items()}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            lambda name: name.removeprefix("model."),
            "but 'embeddings.weight' and 37 more of no such network: the names lack 'model.'",
        ),
        (
            lambda name: f"net.{name}",
            "but 'net.lm_head.weight' and 38 more of no such network: the names begin with 'net.'",
        ),
        (lambda name: name.upper(), "but 'LM_HEAD.WEIGHT' and 38 more of no such network; config.json does not fit"),
    ],
)
def test_weights_by_other_names_are_told_with_them(name: Callable[[str], str], told: str, whole: Path) -> None:
    """By a run, and by a dry run, which looks at headers alone."""
    renamed(whole, name)
    assert f"{whole}: no weight 'model.embeddings.weight'" in refusal(whole) and told in refusal(whole)
    with pytest.raises(SpeclaError) as caught:
        look_at(whole)
    assert f"{whole}: no weight 'model.embeddings.weight'" in str(caught.value) and told in str(caught.value)


def test_links_are_followed_as_the_hubs_cache_is_made_of_them(whole: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for file in whole.iterdir():
        file.rename(blobs / file.name)
        (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
    assert load_model(snapshot, torch.float32).config.vocab_size == 97
    assert len(weights_digest(snapshot)) == 64


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", [NAME, "model.layers.0.attn.A_log", "model.embeddings.weight"])
def test_weights_that_are_no_numbers_are_named(name: str, value: float, whole: Path) -> None:
    weights = load_file(whole / "model.safetensors")
    weights[name].view(-1)[-1] = value
    save_file(weights, whole / "model.safetensors")
    assert refusal(whole) == f"{whole}: weight {name!r} holds NaN or infinity; get the checkpoint again"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_finite_in_every_dtype(dtype: torch.dtype) -> None:
    for shape in ((3, 5), (1,), (), (0,)):
        tensor = torch.full(shape, 60000.0, dtype=dtype)
        assert is_finite(tensor)
        for value in (float("nan"), float("inf"), float("-inf")):
            if tensor.numel():
                tensor.view(-1)[-1] = value
                assert not is_finite(tensor)


def test_a_weight_that_its_dtype_cannot_hold_is_told_from_damage() -> None:
    large = torch.tensor([1e6])
    require_finite("w", large, large.bfloat16(), "here")
    with pytest.raises(SpeclaError, match=r"^here: weight 'w' is beyond what float16 holds"):
        require_finite("w", large, large.half(), "here")


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        (torch.int8, "I8"),
        (torch.uint8, "U8"),
        (torch.int32, "I32"),
        (torch.bool, "BOOL"),
        (torch.float8_e4m3fn, "F8_E4M3"),
        (torch.float8_e5m2, "F8_E5M2"),
        (torch.complex64, "C64"),
    ],
)
def test_weights_that_are_not_run_are_named_with_their_dtype(dtype: torch.dtype, told: str, whole: Path) -> None:
    weights = load_file(whole / "model.safetensors")
    save_file({**weights, NAME: weights[NAME].to(dtype), f"{NAME}.scale": torch.ones(1)}, whole / "model.safetensors")
    assert f"model.safetensors: weight {NAME!r} is {told}; specla runs F64, F32, F16, BF16" in refusal(whole)


def test_float64_is_run(whole: Path) -> None:
    wanted = load_model(whole, torch.float32).state_dict()[NAME]
    weights = load_file(whole / "model.safetensors")
    save_file({name: tensor.double() for name, tensor in weights.items()}, whole / "model.safetensors")
    assert torch.equal(load_model(whole, torch.float32).state_dict()[NAME], wanted)


class Trap:
    """Runs where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize("modern", [True, False])
def test_a_pickle_by_another_name_is_not_opened(
    modern: bool, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({NAME: Trap()}, whole / "model.safetensors", _use_new_zipfile_serialization=modern)
    assert zipfile.is_zipfile(whole / "model.safetensors") == modern
    assert "is a file of torch.save under another name" in refusal(whole)
    assert not (tmp_path / "sprung").exists()


def headed(file: Path, header: bytes, content: int = 4, length: int | None = None) -> None:
    size = len(header) if length is None else length
    file.write_bytes(struct.pack("<Q", size) + header + bytes(content))


ONE = b'"%s":{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}'


@pytest.mark.parametrize(
    ("header", "length"),
    [
        (b"{" + ONE % (b"a", b"[1]", 0, 4) + b"," + ONE % (b"b", b"[1]", 0, 4) + b"}", None),
        (b"{" + ONE % (b"a", b"[1]", 4, 8) + b"}", None),
        (b"{" + ONE % (b"a", b"[2]", 0, 4) + b"}", None),
        (b"{" + ONE % (b"a", b"[4611686018427387904]", 0, 4) + b"}", None),
        (b"{" + ONE % (b"a", b"[-1]", 0, 4) + b"}", None),
        (b"{" + ONE % (b"a", b"[1]", 0, 10**12) + b"}", None),
        (b'{"a":' + b"[" * 100_000, None),
        (b"{}", 2**60),
        (b"{}", 2**63),
        (b"", 0),
    ],
)
def test_headers_that_lie(header: bytes, length: int | None, whole: Path) -> None:
    headed(whole / "model.safetensors", header, length=length)
    told = refusal(whole)
    assert told.startswith(f"{whole / 'model.safetensors'}: cannot be read, perhaps cut short (")
    assert told.endswith("); get the file again")


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ("pytorch_model.bin", "but pytorch_model.bin is there: save the model again with safe_serialization=True"),
        ("adapter_model.safetensors", "but adapter_model.safetensors is there: an adapter is no model; merge it"),
        ("model.fp16.safetensors", "but model.fp16.safetensors is there; save the model whole, without a variant"),
    ],
)
def test_what_is_there_instead_of_weights_is_named(there: str, told: str, whole: Path) -> None:
    (whole / "model.safetensors").rename(whole / there)
    assert f"model.safetensors is missing, {told}" in refusal(whole)


def test_what_a_network_does_not_have_is_no_weight_of_another_dtype(whole: Path) -> None:
    """A dry run says the same, and of layers counted from one or a matrix that was turned."""
    weights = load_file(whole / "model.safetensors")
    one = "model.layers.0.attn.q_proj.weight"
    for changed, told in (
        ({**weights, "optimizer.step": torch.tensor(3)}, "unexpected weight 'optimizer.step' (1 in all)"),
        ({name.replace("layers.1.", "layers.2."): x for name, x in weights.items()}, "no weight 'model.layers.1."),
        ({**weights, one: weights[one].t().contiguous()}, f"weight '{one}' has shape (32, 16)"),
        ({**weights, "model.norm.weight": torch.tensor(1.0)}, "weight 'model.norm.weight' has shape ()"),
    ):
        save_file(changed, whole / "model.safetensors")
        assert told in refusal(whole)
        with pytest.raises(SpeclaError, match=re.escape(told)):
            look_at(whole)


@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_word_embeddings": True}, {"conv_bias": True, "use_gate": False}, {"num_v_heads": 4, "expand_v": 2.0}],
)
def test_the_shapes_are_those_of_the_network(changes: dict[str, Any]) -> None:
    config = tiny_config(**changes)
    made = {name: tuple(tensor.shape) for name, tensor in GatedDeltaNetLM(config).state_dict().items()}
    if config.tie_word_embeddings:
        del made["lm_head.weight"]
    assert dict(ModelShapes(config)) == made and len(ModelShapes(config)) == len(made)
    assert sum(math.prod(shape) for shape in made.values()) == config.parameters
