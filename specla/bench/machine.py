"""What a run was measured on and with: env.json. No host name, no user name, no folder."""

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

import specla
from specla.bench.gpu import gpu_record

PACKAGES = ("torch", "triton", "flash-linear-attention", "transformers", "numpy", "hydra-core")
"""Whose versions decide what is measured."""
UNMEASURED = ("cli", "report", "train")
"""Parts of specla that no measurement runs; an edit there leaves fingerprints as they are."""

_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Git's name of the empty tree, to compare with before the first commit."""


def machine_record(device: str, threads: int | None) -> dict[str, Any]:
    """The machine, the versions and the code, for env.json; what cannot be found out is None.

    Args:
        device: what is measured on: `cpu`, `cuda` or `cuda:N`.
        threads: threads that torch uses; None asks torch.
    """
    on_gpu = device.startswith("cuda")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device_name(device),
        "device_kind": "cuda" if on_gpu else device,
        "os": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "torch_threads": _torch_threads() if threads is None else threads,
        "gpu": gpu_record(device) if on_gpu else None,
        "versions": _versions(on_gpu),
        "triton_interpret": os.environ.get("TRITON_INTERPRET") == "1",
        **_checkout(Path(specla.__file__).resolve().parent.parent),
        "code": code_digest(),
    }


def device_name(device: str) -> str:
    """The name of the GPU or CPU that `device` stands for; it goes in records and fingerprints."""
    if not device.startswith("cuda"):
        return cpu_model()
    import torch

    return torch.cuda.get_device_name(torch.device(device)) if torch.cuda.is_available() else device


@cache
def cpu_model() -> str:
    """The processor's own name, or its architecture where it does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return next((name for name in named if name), platform.processor() or platform.machine())


@cache
def code_digest(package: Path | None = None) -> str:
    """sha256 over the sources that a measurement runs, for fingerprints: their places in the package and their bytes.

    Args:
        package: folder of the package; None takes specla itself. It is read once a process, since the code that runs
            is the code that was loaded.
    """
    package = Path(specla.__file__).resolve().parent if package is None else package
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py"), key=lambda path: path.relative_to(package).as_posix()):
        place = path.relative_to(package)
        if place.parts[0] not in UNMEASURED:
            content = path.read_bytes()
            digest.update(f"{place.as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _cpu() -> dict[str, Any]:
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "model": cpu_model(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "usable_cores": len(affinity(0)) if affinity else psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _torch_threads() -> int:
    import torch

    return torch.get_num_threads()


def _versions(on_gpu: bool) -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version(), "specla": specla.__version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    if on_gpu:
        import torch

        found["cuda"] = torch.version.cuda
    return found


def _checkout(root: Path) -> dict[str, Any]:
    """Commit, whether files differ from it, and a digest of how; all None outside a checkout.

    Files that git does not know count where code and configuration lie, in specla/ and conf/.
    """
    unknown: dict[str, Any] = {"commit": None, "dirty": None, "diff_hash": None}
    if not (root / ".git").exists():
        return unknown
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    base = _EMPTY_TREE if commit is None else "HEAD"
    diff = _git(root, "diff", "--binary", "--no-ext-diff", "--no-textconv", "--no-color", base)
    new = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", "specla", "conf")
    if diff is None or new is None:
        return unknown
    digest = hashlib.sha256(diff)
    names = sorted(name for name in new.decode(errors="surrogateescape").split("\0") if name)
    for name in names:
        digest.update(f"\0{name}\0".encode(errors="surrogateescape") + _file_digest(root / name))
    dirty = bool(diff or names)
    return {
        "commit": None if commit is None else commit.decode().strip(),
        "dirty": dirty,
        "diff_hash": digest.hexdigest() if dirty else None,
    }


def _file_digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return b"gone"


def _git(root: Path, *words: str) -> bytes | None:
    """What git prints; None where there is no git, or it fails or hangs."""
    # Inside a hook git sets variables that would turn these commands to another index.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, env=plain, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
