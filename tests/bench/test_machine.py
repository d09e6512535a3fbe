"""The machine record: whole, free of names and folders, and with a code digest that moves with the code."""

import getpass
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specla.bench import gpu, machine

SHA256 = re.compile(r"[0-9a-f]{64}")


def test_record_on_a_cpu_is_whole() -> None:
    record = machine.machine_record("cpu", 2)
    assert record["device"] == record["cpu"]["model"] == machine.device_name("cpu")
    assert record["device_kind"] == "cpu"
    assert record["gpu"] is None
    assert record["torch_threads"] == 2
    assert record["cpu"]["logical_cores"] >= record["cpu"]["usable_cores"] >= 1
    assert record["cpu"]["memory_gib"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record["date"])
    for name in ("python", "specla", "torch", "flash-linear-attention", "transformers", "numpy", "hydra-core"):
        assert record["versions"][name], name
    assert SHA256.fullmatch(record["code"])
    json.dumps(record)


def test_threads_are_asked_of_torch_where_not_given() -> None:
    import torch

    assert machine.machine_record("cpu", None)["torch_threads"] == torch.get_num_threads()


def test_record_names_no_host_no_user_no_folder() -> None:
    text = json.dumps(machine.machine_record("cpu", 1))
    assert str(Path(machine.__file__).parent) not in text
    assert str(Path.home()) not in text
    words = re.split(r"[^A-Za-z0-9._-]+", text)
    assert socket.gethostname() not in words
    assert getpass.getuser() not in words


def test_import_takes_no_torch() -> None:
    code = "import sys, specla.bench.machine; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_code_digest_follows_places_and_bytes(tmp_path: Path) -> None:
    def digest() -> str:
        machine.code_digest.cache_clear()
        return machine.code_digest(tmp_path)

    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "a.py").write_text("x = 1\n")
    first = digest()
    assert digest() == first
    (tmp_path / "notes.txt").write_text("no code")
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "b.py").write_text("y = 1\n")
    assert digest() == first, "what no measurement runs leaves it as it is"
    (tmp_path / "ops" / "a.py").write_text("x = 2\n")
    second = digest()
    assert second != first
    (tmp_path / "ops" / "a.py").rename(tmp_path / "ops" / "c.py")
    assert digest() not in (first, second)


def test_code_digest_of_specla_itself() -> None:
    assert SHA256.fullmatch(machine.code_digest())


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[..., None]:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    git("init", "--quiet")
    (tmp_path / "specla").mkdir()
    (tmp_path / "specla" / "a.py").write_text("x = 1\n")
    return git


def test_checkout_before_its_first_commit_is_dirty(checkout: Callable[..., None], tmp_path: Path) -> None:
    found = machine._checkout(tmp_path)
    assert found["commit"] is None
    assert found["dirty"] is True
    assert SHA256.fullmatch(found["diff_hash"])


def test_checkout_tells_what_differs_from_its_commit(checkout: Callable[..., None], tmp_path: Path) -> None:
    checkout("add", ".")
    checkout("commit", "--quiet", "-m", "first")
    clean = machine._checkout(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{40}", clean["commit"])
    assert (clean["dirty"], clean["diff_hash"]) == (False, None)

    (tmp_path / "specla" / "a.py").write_text("x = 2\n")
    edited = machine._checkout(tmp_path)
    assert edited["commit"] == clean["commit"]
    assert edited["dirty"] is True
    (tmp_path / "specla" / "b.py").write_text("new\n")
    added = machine._checkout(tmp_path)
    (tmp_path / "specla" / "b.py").write_text("newer\n")
    changed = machine._checkout(tmp_path)
    assert len({edited["diff_hash"], added["diff_hash"], changed["diff_hash"]}) == 3

    (tmp_path / "notes.txt").write_text("a file that no measurement reads")
    assert machine._checkout(tmp_path) == changed


def test_checkout_is_read_alike_inside_a_git_hook(
    checkout: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout("add", ".")
    checkout("commit", "--quiet", "-m", "first")
    plain = machine._checkout(tmp_path)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert machine._checkout(tmp_path) == plain


@pytest.mark.parametrize("mark", ["no .git", "no git"])
def test_outside_a_checkout_nothing_is_claimed(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if mark == "no git":
        (tmp_path / ".git").mkdir()
        monkeypatch.setenv("PATH", "")
    assert machine._checkout(tmp_path) == {"commit": None, "dirty": None, "diff_hash": None}


class FakeError(Exception):
    """NVML's error."""


def fake_nvml(**changes: Any) -> SimpleNamespace:
    """A driver with one card; a change that is an exception is raised by that call."""

    def answer(value: Any) -> Callable[..., Any]:
        def call(*_: Any) -> Any:
            if isinstance(value, Exception):
                raise value
            return value

        return call

    calls = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetHandleByIndex": "card",
        "nvmlDeviceGetHandleByUUID": "card",
        "nvmlDeviceGetName": b"NVIDIA Test",
        "nvmlSystemGetDriverVersion": "580.95",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=140 * 2**30, used=2**30),
        "nvmlDeviceGetClockInfo": 345,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x40,
        "nvmlDeviceGetTemperature": 31,
        "nvmlDeviceGetPowerUsage": 75_321,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)],
        **changes,
    }
    constants = {"NVMLError": FakeError, "NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0}
    return SimpleNamespace(**constants, **{name: answer(value) for name, value in calls.items()})


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    return monkeypatch


def test_gpu_tells_its_clocks_throttling_and_other_processes(without_cuda: pytest.MonkeyPatch) -> None:
    without_cuda.setitem(sys.modules, "pynvml", fake_nvml())
    assert gpu.gpu_record("cuda") == {
        "name": "NVIDIA Test",
        "driver": "580.95",
        "memory_gib": 140.0,
        "memory_used_gib": 1.0,
        "clocks": {"sm_mhz": 345, "sm_max_mhz": 1980, "memory_mhz": 345, "memory_max_mhz": 1980},
        "throttling": "power_cap, thermal_hardware",
        "temperature_c": 31,
        "power_w": 75.3,
        "power_limit_w": 700.0,
        "other_processes": 1,
    }


def test_gpu_facts_that_a_driver_refuses_are_none(without_cuda: pytest.MonkeyPatch) -> None:
    refused = FakeError("not supported")
    old = fake_nvml(nvmlDeviceGetPowerUsage=refused, nvmlDeviceGetComputeRunningProcesses=refused)
    del old.nvmlDeviceGetCurrentClocksEventReasons
    old.nvmlDeviceGetCurrentClocksThrottleReasons = lambda _: 0
    without_cuda.setitem(sys.modules, "pynvml", old)
    record = gpu.gpu_record("cuda")
    assert (record["power_w"], record["other_processes"], record["throttling"]) == (None, None, "none")
    assert record["name"] == "NVIDIA Test"


def test_gpu_without_nvml_leaves_a_note(without_cuda: pytest.MonkeyPatch) -> None:
    without_cuda.setitem(sys.modules, "pynvml", None)
    assert gpu.gpu_record("cuda") == {"note": "NVML does not answer (ModuleNotFoundError)"}
    without_cuda.setitem(sys.modules, "pynvml", fake_nvml(nvmlDeviceGetHandleByIndex=FakeError()))
    assert gpu.gpu_record("cuda") == {"note": "NVML does not know this device (FakeError)"}


def test_own_process_is_not_counted_where_it_has_another_id(without_cuda: pytest.MonkeyPatch) -> None:
    import torch

    without_cuda.setattr(torch.cuda, "is_initialized", lambda: True)
    foreign = fake_nvml(nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=-7), SimpleNamespace(pid=-8)])
    without_cuda.setitem(sys.modules, "pynvml", foreign)
    assert gpu.gpu_record("cuda")["other_processes"] == 1


def test_unknown_throttle_bits_are_shown() -> None:
    assert gpu.throttling(0) == "none"
    assert gpu.throttling(0x1000 | 0x1) == "idle, unknown 0x1000"


@pytest.mark.gpu
def test_record_on_a_gpu_names_it() -> None:
    record = machine.machine_record("cuda", 1)
    assert record["device"] == record["gpu"]["name"]
    assert record["gpu"]["driver"]
    assert record["gpu"]["other_processes"] is not None
    assert record["versions"]["cuda"]
