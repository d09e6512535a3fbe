"""Parity with `fla.models.GatedDeltaNetForCausalLM` in float32, through checkpoints written by either side."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from torch import Tensor

from specla.engine.recovery import EngineRecovery
from specla.models.checkpoint import load_model, save_model
from specla.models.gated_deltanet import GatedDeltaNetLM
from specla.models.state import DecodeState
from specla.ops.types import TreeTensors
from specla.ops.verify import get_verify
from specla.topology import chain
from tests.models.cases import VARIANTS, raw_model, tokens
from tests.models.fla_outputs import PREFILL, SHARD
from tests.tolerances import assert_close

ROOT = Path(__file__).parents[2]
STEPS = 4
SHARDED = "grouped value heads"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Every variant written by specla, run and written again by flash-linear-attention: once, whatever the workers."""
    if worker_id == "master":
        return exchange(tmp_path_factory.mktemp("parity"))
    folder = tmp_path_factory.getbasetemp().parent / "parity"
    with FileLock(f"{folder}.lock"):
        return folder if (folder / "done").exists() else exchange(folder)


def exchange(root: Path) -> Path:
    for seed, (name, changes) in enumerate(VARIANTS.items()):
        folder = root / name.replace(" ", "-")
        folder.mkdir(parents=True)
        torch.save(tokens(2, PREFILL + STEPS, seed=seed), folder / "ids.pt")
        size = SHARD if name == SHARDED else "1GB"
        save_model(raw_model(seed, **changes), folder / "ours", torch.float32, shard_size=size)
    call = [sys.executable, "-m", "tests.models.fla_outputs", str(root)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-4000:]
    (root / "done").touch()
    return root


@pytest.mark.parametrize("folder", ["ours", "theirs"])
@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_a_checkpoint_means_the_same_to_both(variant: str, folder: str, exchanged: Path) -> None:
    """`theirs` came through FLA's save_pretrained; FLA's outputs are of the model it had read from `ours`."""
    place = exchanged / variant.replace(" ", "-")
    if folder == "theirs" and variant == "convolution bias":
        # FLA's configuration has no such key: it travels as an extra one.
        assert json.loads((place / "theirs" / "config.json").read_text(encoding="utf-8"))["conv_bias"] is True
    model = load_model(place / folder, torch.float32)
    ids, theirs = torch.load(place / "ids.pt"), torch.load(place / "outputs.pt")
    assert_close(model.logits(model(ids))[:, :PREFILL], theirs["prefill"], "parity")
    hidden, state = model.prefill(ids[:, :PREFILL])
    assert_close(model.logits(hidden), theirs["prefill"][:, -1], "parity")
    assert_close(state.recurrent, theirs["prefill recurrent"], "parity")
    assert_close(state.window, theirs["prefill window"], "parity")
    assert_close(cached_steps(model, ids[:, PREFILL:], state), theirs["steps"], "parity")
    assert_close(state.recurrent, theirs["steps recurrent"], "parity")
    assert_close(state.window, theirs["steps window"], "parity")


def cached_steps(model: GatedDeltaNetLM, ids: Tensor, state: DecodeState) -> Tensor:
    """The logits of one token after the other, each committed to the state as the decoding loop does."""
    recovery, root = EngineRecovery("in_place", model, state, longest=1), TreeTensors.from_tree(chain(0))
    path, length, found = torch.zeros(len(ids), 1, dtype=torch.int64), torch.ones(len(ids), dtype=torch.int64), []
    for token in ids.split(1, dim=1):
        hidden, records = model.forward_nodes(token, root, recovery.layers(), get_verify("ar"))
        recovery.commit(records, path, length)
        found.append(model.logits(hidden))
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("variant", ["plain", SHARDED])
def test_shards(variant: str, exchanged: Path) -> None:
    """The sharded variant was sharded both ways, the plain one neither."""
    place = exchanged / variant.replace(" ", "-")
    for folder in ("ours", "theirs"):
        assert (len(list((place / folder).glob("*.safetensors"))) > 1) == (variant == SHARDED)
