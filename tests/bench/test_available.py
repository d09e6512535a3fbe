"""How much memory may still be taken: the least of what the machine, the groups and the user's limits leave."""

import importlib
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch  # noqa: F401  # Loaded, it takes nothing more.

from specla.bench.available import available_bytes, guarded_imports, require_room
from specla.errors import MeasurementError

GIB = 1 << 30


def unlimited(_: int) -> tuple[int, int]:
    return (-1, -1)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(autouse=True)
def big_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the machine itself is not what is short."""
    memory = psutil.virtual_memory()._replace(available=1000 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


V2 = {"proc/self/cgroup": "0::/user/job\n"}
V1 = {"proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n"}
GROUP = "sys/fs/cgroup/user/job"
OLD = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, 1000 * GIB),
        ({**V2, f"{GROUP}/memory.max": "max\n", f"{GROUP}/memory.current": "5\n"}, 1000 * GIB),
        ({**V2, f"{GROUP}/memory.max": f"{8 * GIB}\n", f"{GROUP}/memory.current": f"{3 * GIB}\n"}, 5 * GIB),
        # A group above may leave less.
        (
            {
                **V2,
                f"{GROUP}/memory.max": f"{8 * GIB}\n",
                f"{GROUP}/memory.current": f"{GIB}\n",
                "sys/fs/cgroup/user/memory.max": f"{6 * GIB}\n",
                "sys/fs/cgroup/user/memory.current": f"{4 * GIB}\n",
            },
            2 * GIB,
        ),
        # In a container the group is mounted at the top, whatever it is called outside.
        ({**V2, "sys/fs/cgroup/memory.max": f"{4 * GIB}\n", "sys/fs/cgroup/memory.current": f"{GIB}\n"}, 3 * GIB),
        # Pages of files make room.
        (
            {
                **V2,
                f"{GROUP}/memory.max": f"{8 * GIB}\n",
                f"{GROUP}/memory.current": f"{7 * GIB}\n",
                f"{GROUP}/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
            },
            3 * GIB,
        ),
        ({**V2, f"{GROUP}/memory.max": "1\n", f"{GROUP}/memory.current": "5\n"}, 0),
        (
            {
                **V1,
                f"{OLD}/job/memory.limit_in_bytes": f"{8 * GIB}\n",
                f"{OLD}/job/memory.usage_in_bytes": f"{3 * GIB}\n",
                f"{OLD}/job/memory.stat": f"total_inactive_file {GIB}\n",
            },
            6 * GIB,
        ),
        (
            {**V1, f"{OLD}/memory.limit_in_bytes": "9223372036854771712\n", f"{OLD}/memory.usage_in_bytes": "1\n"},
            1000 * GIB,
        ),
        ({**V2, f"{GROUP}/memory.max": "nonsense\n", f"{GROUP}/memory.current": "5\n"}, 1000 * GIB),
        ({"proc/self/cgroup": "nonsense\n"}, 1000 * GIB),
    ],
)
def test_a_control_group_counts(files: dict[str, str], left: int, tmp_path: Path) -> None:
    assert available_bytes(write(tmp_path, files), unlimited) == left


@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_users_limit_counts_less_what_is_taken(name: str, tmp_path: Path) -> None:
    mine = psutil.Process().memory_info()
    taken = mine.vms if name == "RLIMIT_AS" else mine.data

    def limit(number: int) -> tuple[int, int]:
        return (taken + 3 * GIB, -1) if number == getattr(resource, name) else (-1, -1)

    assert available_bytes(tmp_path, limit) == pytest.approx(3 * GIB, rel=0.05)


def test_what_torch_will_take_is_left_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    assert 999 * GIB < available_bytes(tmp_path, unlimited) < 1000 * GIB


def room(name: str, left: int) -> Callable[[int], tuple[int, int]]:
    """Limits of which one leaves so many bytes."""
    mine = psutil.Process().memory_info()
    taken = mine.vms if name == "RLIMIT_AS" else mine.data
    return lambda number: (taken + left, -1) if number == getattr(resource, name) else (-1, -1)


@pytest.mark.parametrize(("name", "shell"), [("RLIMIT_AS", "ulimit -v"), ("RLIMIT_DATA", "ulimit -d")])
@pytest.mark.parametrize("library", ["numpy", "scipy", "pandas", "torch"])
def test_a_library_that_has_no_room_is_not_loaded(library: str, name: str, shell: str) -> None:
    """It would hang, abort, or say that it was interrupted."""
    told = rf"^out of memory: {shell} leaves \d+ MiB, and {library} takes about \d+ MiB when it is loaded; raise the "
    with pytest.raises(MeasurementError, match=told):
        require_room(library, room(name, 40 << 20))
    with pytest.raises(MeasurementError, match="leaves 0 MiB"):
        require_room(library, room(name, -(10 << 20)))
    require_room(library, room(name, GIB))


def test_threads_that_cannot_be_started_are_told_before_openmp_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def limited(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    require_room("torch", unlimited)
    assert len(started) == 2 and not any(thread.is_alive() for thread in started)
    started.clear()
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    with pytest.raises(MeasurementError, match=r"torch wants 4, and 3 are allowed; .* OMP_NUM_THREADS=3$"):
        require_room("torch", unlimited)
    assert not any(thread.is_alive() for thread in started)


def test_inside_a_command_a_library_is_looked_at_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise MeasurementError(f"no room for {name}")

    monkeypatch.setattr("specla.bench.available.require_room", refuse)
    monkeypatch.setattr("specla.bench.available._LOADED", {"this": {}})
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = list(sys.meta_path)
    with guarded_imports(), pytest.raises(MeasurementError, match="no room for this"):
        importlib.import_module("this")
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert sys.meta_path == before and "this" not in sys.modules
