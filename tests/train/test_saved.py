"""What a run goes on from: a checkpoint or a log that no run wrote is refused by name, one cut by a kill is not."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from specla.errors import SpeclaError
from specla.train.loop import adamw
from specla.train.saved import TrainLog, load_checkpoint, restore, save_checkpoint
from tests.disk import files_of_at_most

IDENTITY = {"seed": 0, "model": {"sizes": (2, 3)}}
STEPS = 6


def net(width: int = 3) -> nn.Module:
    return nn.Linear(width, 2)


@pytest.fixture
def content() -> dict[str, Any]:
    """Of a run after two steps."""
    trained = net()
    optimizer = adamw(trained, 0.1)
    for _ in range(2):
        trained(torch.ones(3)).sum().backward()
        optimizer.step()
    return {"model": trained.state_dict(), "optimizer": optimizer.state_dict(), "step": 2, "identity": IDENTITY}


def resumed(path: Path, width: int = 3) -> int:
    fresh = net(width)
    found = load_checkpoint(path, IDENTITY)
    assert found is not None
    return restore(path, found, fresh, adamw(fresh, 0.1), STEPS)


def test_a_checkpoint_comes_back(content: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    assert load_checkpoint(path, IDENTITY) is None
    save_checkpoint(path, content)
    fresh = net()
    optimizer = adamw(fresh, 0.1)
    found = load_checkpoint(path, IDENTITY)
    assert found is not None and restore(path, found, fresh, optimizer, STEPS) == 2
    assert torch.equal(fresh.weight, content["model"]["weight"])
    wanted = content["optimizer"]["state"][0]
    state = optimizer.state[fresh.weight]
    assert state["step"] == 2 and all(torch.equal(state[name], wanted[name]) for name in ("exp_avg", "exp_avg_sq"))


def other(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        if value is None:
            del content[key]
        else:
            content[key] = value

    return change


def weight(value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        content["model"]["weight"] = value

    return change


def state(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        content["optimizer"]["state"][0][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (other("identity", None), "does not say which run it is of"),
        (other("identity", [1]), "does not say which run it is of"),
        (other("step", None), "at step ? of 6"),
        (other("step", 10**6), "at step 1000000 of 6"),
        (other("step", -1), "at step -1 of 6"),
        (other("step", 2.5), "at step ? of 6"),
        (other("model", None), "it holds no weights"),
        (other("model", {}), "weight is missing"),
        (weight(torch.ones(2, 4)), "weight has shape (2, 4), not (2, 3)"),
        (weight(torch.full((2, 3), float("nan"))), "weight holds something else than finite numbers"),
        (weight(torch.ones(2, 3, dtype=torch.int64)), "weight holds something else than finite numbers"),
        (weight(3), "weight is not of this model"),
        (other("optimizer", None), "its optimizer's state is not of this model"),
        (other("optimizer", {"state": {}, "param_groups": []}), "its optimizer's state is not of this model"),
        (state("exp_avg", torch.ones(4)), "optimizer.0.exp_avg has shape (4,), not (2, 3)"),
        (state("exp_avg_sq", 1), "optimizer.0.exp_avg_sq is not of this model"),
        (state("more", torch.ones(1)), "optimizer.0.more is not of this model"),
    ],
)
def test_a_checkpoint_that_no_run_wrote(
    change: Callable[[dict[str, Any]], None], told: str, content: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.pt"
    change(content)
    save_checkpoint(path, content)
    with pytest.raises(SpeclaError) as caught:
        resumed(path)
    assert str(caught.value) == f"{path}: the checkpoint is damaged ({told}); delete it to start again"


def test_a_checkpoint_of_another_shape(content: dict[str, Any], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint.pt", content)
    with pytest.raises(SpeclaError, match=r"weight has shape \(2, 3\), not \(2, 4\)"):
        resumed(tmp_path / "checkpoint.pt", width=4)


@pytest.mark.parametrize("found", [1, {"sizes": torch.ones(2)}, {"sizes": (2, 4)}, torch.ones(2, 2)])
def test_a_checkpoint_of_another_run(found: Any, content: dict[str, Any], tmp_path: Path) -> None:
    content["identity"] = {**IDENTITY, "model": found}
    save_checkpoint(tmp_path / "checkpoint.pt", content)
    with pytest.raises(SpeclaError, match=r"was written with another model; use the same settings"):
        resumed(tmp_path / "checkpoint.pt")


@pytest.mark.parametrize("written", [b"", b"half", b"PK\x03\x04 and no more"])
def test_a_checkpoint_that_cannot_be_read(written: bytes, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(written)
    with pytest.raises(SpeclaError, match=r"the checkpoint is damaged \(cannot be read, \w+\)"):
        resumed(tmp_path / "checkpoint.pt")


@pytest.mark.parametrize("value", [[1, 2], torch.ones(2), "text"])
def test_a_checkpoint_of_something_else(value: Any, tmp_path: Path) -> None:
    torch.save(value, tmp_path / "checkpoint.pt")
    with pytest.raises(SpeclaError, match="does not say which run it is of"):
        resumed(tmp_path / "checkpoint.pt")


def test_a_log_goes_on_where_the_checkpoint_is(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = TrainLog(path, 0)
    for step in (1, 2, 3):
        log.write(step=step, loss=1.0)
    with path.open("a") as file:
        file.write('{"step": 4, "lo')
    TrainLog(path, 2).write(step=3, loss=2.0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 1.0}, {"step": 3, "loss": 2.0}]
    assert TrainLog(path, 0).path.read_bytes() == b""


@pytest.mark.parametrize(
    "line", [b"{", b"\xff", b"", b"[1]", b'{"loss": 1}', b'{"step": "1"}', b'{"step": 1, "step": 2}', b"[" * 100_000]
)
def test_a_damaged_log_is_named_with_its_line(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    with pytest.raises(SpeclaError) as caught:
        TrainLog(path, 3)
    told = str(caught.value)
    assert told.startswith(f"{path}:2: ") and told.endswith("; delete this line, or the log, and go on")
    assert len(path.read_bytes().splitlines()) == 3


def test_a_disk_that_ends_leaves_the_checkpoint_before(content: dict[str, Any], tmp_path: Path) -> None:
    """Torch says something else of it than the disk did."""
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, content)
    before = path.read_bytes()
    with files_of_at_most(len(before) // 2), pytest.raises(OSError, match="too large") as error:
        save_checkpoint(path, content)
    assert error.value.filename == str(path) and path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_by_the_file(
    content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as error:
        save_checkpoint(tmp_path / "checkpoint.pt", content)
    assert error.value.filename == str(tmp_path / "checkpoint.pt")
