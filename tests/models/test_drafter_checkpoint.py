"""Folders of trained drafters: nothing is lost between writing and reading, and what does not fit is refused."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specla.errors import SpeclaError
from specla.models.checkpoint import random_model
from specla.models.drafter_checkpoint import WEIGHTS, load_drafter, save_drafter
from specla.models.gated_deltanet import GatedDeltaNetLM
from tests.drafters.networks import raw_net
from tests.models.cases import tiny_config

DIGEST = "ab" * 32


@pytest.fixture(scope="module")
def target() -> GatedDeltaNetLM:
    return random_model(tiny_config(vocab_size=61, initializer_range=0.1), torch.float32)


def saved(target: GatedDeltaNetLM, folder: Path) -> Path:
    save_drafter(raw_net(target), folder, DIGEST, torch.arange(61), 40)
    return folder


def refusal(folder: Path, digest: str = DIGEST, vocabulary: int = 61) -> str:
    with pytest.raises(SpeclaError) as caught:
        load_drafter(folder, digest, vocabulary, torch.float32)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_comes_back(target: GatedDeltaNetLM, tmp_path: Path) -> None:
    folder = saved(target, saved(target, tmp_path / "drafter"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drafter"]
    trained = load_drafter(folder, DIGEST, 61, torch.float32)
    assert trained.draft_vocabulary == 40
    for name, tensor in raw_net(target).state_dict().items():
        torch.testing.assert_close(trained.net.state_dict()[name], tensor, rtol=1e-2, atol=1e-2)


def test_folders_that_do_not_fit_are_refused(target: GatedDeltaNetLM, tmp_path: Path) -> None:
    folder = saved(target, tmp_path / "drafter")
    assert "was trained for another target (weights abababababab, these are cdcdcdcdcdcd)" in refusal(folder, "cd" * 32)
    assert "drafts from 61 tokens, the target has 97" in refusal(folder, vocabulary=97)
    assert "no config.json there" in refusal(tmp_path)
    weights_file = folder / "drafter.safetensors"
    whole = weights_file.read_bytes()
    weights_file.write_bytes(whole[: len(whole) // 2])
    assert "is not the file that config.json was written with, perhaps cut short" in refusal(folder)
    weights_file.unlink()
    assert "is missing; the folder is incomplete" in refusal(folder)
    weights_file.write_bytes(whole)
    config = json.loads((folder / "config.json").read_text())
    for key, value, message in (
        ("format", 9, "format 9, this version reads 1"),
        ("kind", "other", "is not that of an aligned drafter"),
        ("hidden_size", 48, "has shape"),
        ("draft_vocabulary", 0, "its draft vocabulary does not fit 61 tokens"),
        ("num_heads", "two", "no usable"),
        ("hidden_size", float("inf"), "no usable value"),
        ("hidden_size", 10**12, "no usable value"),
        ("hidden_size", 2**31 - 1, "no such network"),
        ("hidden_size", 10**6, "has shape"),
        ("num_heads", 2.0, "no usable value of num_heads"),
        ("num_heads", True, "no usable value of num_heads"),
        ("draft_vocabulary", "40", "no usable value of draft_vocabulary"),
        ("norm_eps", float("nan"), "no such network"),
        ("weights_sha256", 3, "no usable value of weights_sha256"),
        ("head_dim", 0, "config.json: no such network"),
        ("num_heads", -4, "config.json: no such network"),
    ):
        (folder / "config.json").write_text(json.dumps({**config, key: value}))
        assert message in refusal(folder)
    (folder / "config.json").write_text("{")
    assert "not valid JSON" in refusal(folder)
    del config["num_heads"]
    (folder / "config.json").write_text(json.dumps(config))
    assert "no usable value of num_heads" in refusal(folder)


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    """Change the weights as whoever means harm would: with a digest that fits."""
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS)
    sign(folder)


def sign(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["weights_sha256"] = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(config))


def not_a_number(weights: dict[str, Tensor]) -> None:
    weights["combine.weight"][3, 5] = float("nan")


def eight_bits(weights: dict[str, Tensor]) -> None:
    weights["combine.weight"] = weights["combine.weight"].to(torch.int8)


def twice_the_same_token(weights: dict[str, Tensor]) -> None:
    weights["vocabulary_order"][1] = weights["vocabulary_order"][0]


def beyond_the_vocabulary(weights: dict[str, Tensor]) -> None:
    weights["vocabulary_order"][0] = 61


def shorter_order(weights: dict[str, Tensor]) -> None:
    weights["vocabulary_order"] = weights["vocabulary_order"][:-1].clone()


def without_order(weights: dict[str, Tensor]) -> None:
    del weights["vocabulary_order"]


def one_more(weights: dict[str, Tensor]) -> None:
    weights["extra"] = torch.ones(1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (not_a_number, "weight 'combine.weight' holds NaN or infinity"),
        (eight_bits, "weight 'combine.weight' is I8"),
        (twice_the_same_token, "its order of tokens is not every one of the 61 once"),
        (beyond_the_vocabulary, "its order of tokens is not every one of the 61 once"),
        (shorter_order, "'vocabulary_order' has shape (60,), not (61,)"),
        (without_order, "no 'vocabulary_order' in it"),
        (one_more, "unexpected weight 'extra'"),
    ],
)
def test_weights_that_no_training_wrote(
    change: Callable[[dict[str, Tensor]], None], told: str, target: GatedDeltaNetLM, tmp_path: Path
) -> None:
    folder = saved(target, tmp_path / "drafter")
    rewrite(folder, change)
    assert told in refusal(folder)


def test_a_pickle_by_another_name(target: GatedDeltaNetLM, tmp_path: Path) -> None:
    folder = saved(target, tmp_path / "drafter")
    torch.save({}, folder / WEIGHTS)
    sign(folder)
    assert "is a file of torch.save under another name" in refusal(folder)
