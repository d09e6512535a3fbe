"""How much memory this process may still take: the machine's, its control group's, its user's limits.

A library that meets a user's limit while it is loaded does not say so: OpenBLAS asks for the same memory for ever, or
sends the process a Ctrl-C where it may start no thread; others abort. So the limits are read before.
"""

import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path, PurePosixPath

import psutil

from specla.errors import NO_THREADS, MeasurementError

_TORCH = {"machine": 400 << 20, "address": 900 << 20, "data": 350 << 20}
"""What torch takes when it is loaded: a plan that is looked at without it must judge as the run will."""

_LOADED: Mapping[str, Mapping[str, int]] = {
    "numpy": {"address": 120 << 20, "data": 64 << 20},
    "scipy": {"address": 200 << 20, "data": 80 << 20},
    "pandas": {"address": 420 << 20, "data": 180 << 20},
    "torch": _TORCH,
}
"""What libraries take when they are loaded, those that are loaded after them included."""

_LIMITS = {"RLIMIT_AS": ("address", "ulimit -v"), "RLIMIT_DATA": ("data", "ulimit -d")}

Limit = Callable[[int], tuple[int, int]]


def available_bytes(root: Path = Path("/"), limit: Limit = resource.getrlimit) -> int:
    """Memory that can be taken before something refuses it, or ends the process for it.

    Args:
        root: where proc and sys/fs/cgroup are found.
        limit: (soft, hard) of one of the resource limits; negative is none.
    """
    later = dict.fromkeys(_TORCH, 0) if "torch" in sys.modules else _TORCH
    free = [int(psutil.virtual_memory().available), *_groups(root)]
    found = [bytes_free - later["machine"] for bytes_free in free]
    found += [left - later[_LIMITS[name][0]] for name, left in _limited(limit).items()]
    return max(0, min(found))


def _limited(limit: Limit) -> dict[str, int]:
    """By the name of a limit that is set, the bytes that it leaves; below 0 where more is taken already."""
    mine = psutil.Process().memory_info()
    taken = {"RLIMIT_AS": mine.vms, "RLIMIT_DATA": getattr(mine, "data", 0)}
    softs = {name: limit(getattr(resource, name))[0] for name in _LIMITS}
    return {name: soft - taken[name] for name, soft in softs.items() if soft >= 0}


def require_room(library: str, limit: Limit = resource.getrlimit) -> None:
    """Raise MeasurementError where a user's limits leave a library no room to be loaded, or torch no threads."""
    for name, left in _limited(limit).items():
        kind, shell = _LIMITS[name]
        if left < _LOADED[library][kind]:
            raise MeasurementError(
                f"out of memory: {shell} leaves {max(0, left) >> 20} MiB, and {library} takes about "
                f"{_LOADED[library][kind] >> 20} MiB when it is loaded; raise the limit, as in {shell} unlimited"
            )
    if library == "torch":
        _require_threads(_threads())


def _threads() -> int:
    """What torch starts besides this one, as OpenMP has it."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return (int(asked) if asked.isdecimal() else len(os.sched_getaffinity(0))) - 1


def _require_threads(count: int) -> None:
    """Raise MeasurementError where this process may not start so many threads: OpenMP would end it."""
    enough, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(count):
            one = threading.Thread(target=enough.wait, daemon=True)
            one.start()
            started.append(one)
    except RuntimeError:
        raise MeasurementError(
            f"{NO_THREADS}: torch wants {count + 1}, and {len(started) + 1} are allowed; raise the limit, or export "
            f"OMP_NUM_THREADS={len(started) + 1}"
        ) from None
    finally:
        enough.set()
        for one in started:
            one.join()


class _Guard(MetaPathFinder):
    """Finds no module, and lets none of _LOADED be found where there is no room for it."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname in _LOADED:
            require_room(fullname)


@contextmanager
def guarded_imports() -> Iterator[None]:
    """Inside, a large library is loaded where the user's limits have room for it, and refused in one line elsewhere."""
    # Torch does the arithmetic: NumPy and SciPy solve a few small systems, and each would start a thread a core.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    guard = _Guard()
    sys.meta_path.insert(0, guard)
    try:
        yield
    finally:
        sys.meta_path.remove(guard)


def _groups(root: Path) -> Iterator[int]:
    """What is left in each control group that this process is in, and in those above it; of either version."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            names, base = ("memory.max", "memory.current", "inactive_file"), root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            base = root / "sys/fs/cgroup/memory"
        else:
            continue
        # In a container the path may be the host's, and the group itself is mounted at the top.
        inside = PurePosixPath(path.lstrip("/"))
        for group in (inside, *inside.parents):
            yield from _left(base / group, *names)


def _left(group: Path, limit: str, usage: str, cache: str) -> Iterator[int]:
    """The limit less what is used, pages of files aside that nobody looked at lately: they make room."""
    try:
        most, used = (group / limit).read_text().strip(), int((group / usage).read_text())
        reclaimed = 0
        for line in (group / "memory.stat").read_text().splitlines() if (group / "memory.stat").is_file() else ():
            name, _, value = line.partition(" ")
            reclaimed = int(value) if name == cache else reclaimed
        if most != "max":
            yield int(most) - max(0, used - reclaimed)
    except (OSError, ValueError):
        return
