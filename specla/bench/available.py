"""How much memory this process may still take: the machine's, its control group's, its user's limits."""

import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import psutil

_TORCH = {"machine": 400 << 20, "address": 900 << 20, "data": 350 << 20}
"""What torch takes when it is loaded: a plan that is looked at without it must judge as the run will."""

Limit = Callable[[int], tuple[int, int]]


def available_bytes(root: Path = Path("/"), limit: Limit = resource.getrlimit) -> int:
    """Memory that can be taken before something refuses it, or ends the process for it.

    Args:
        root: where proc and sys/fs/cgroup are found.
        limit: (soft, hard) of one of the resource limits; negative is none.
    """
    mine = psutil.Process().memory_info()
    later = dict.fromkeys(_TORCH, 0) if "torch" in sys.modules else _TORCH
    free = [int(psutil.virtual_memory().available), *_groups(root)]
    found: list[int] = [bytes_free - later["machine"] for bytes_free in free]
    used = {"RLIMIT_AS": mine.vms + later["address"], "RLIMIT_DATA": getattr(mine, "data", 0) + later["data"]}
    for name, taken in used.items():
        soft = limit(getattr(resource, name))[0]
        if soft >= 0:
            found.append(soft - taken)
    return max(0, min(found))


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
