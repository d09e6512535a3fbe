"""A base commit beside the working tree: which one, and its files in a worktree of their own for a while."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import specla
from specla.errors import SpeclaError

UPSTREAM = "origin/main"


@dataclass(frozen=True)
class Base:
    """A commit to compare with."""

    commit: str
    why: str
    """How it was chosen."""


def repository() -> Path:
    """The checkout that specla is imported from. Raises SpeclaError where it is none."""
    root = Path(specla.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        raise SpeclaError(
            f"{root}: not a git checkout, so there is no base commit to compare with; clone the repository"
        )
    return root


def choose_base(root: Path, asked: str) -> Base:
    """The commit that was asked for, else where the working tree left `origin/main`, else the one before it.

    Args:
        root: the checkout.
        asked: anything that git resolves to a commit, or nothing.

    Raises:
        SpeclaError: there is no such commit.
    """
    if asked:
        commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{asked}^{{commit}}")
        if commit is None:
            raise SpeclaError(f"BASE={asked}: no such commit here (in a shallow clone: git fetch --unshallow)")
        return Base(commit, "as asked")
    head = _git(root, "rev-parse", "--verify", "HEAD")
    if head is None:
        raise SpeclaError(f"{root}: no commit yet, so there is nothing to compare with")
    fork = _git(root, "merge-base", "HEAD", UPSTREAM)
    if fork is not None and fork != head:
        return Base(fork, f"where HEAD left {UPSTREAM}")
    if _git(root, "status", "--porcelain"):
        return Base(head, "HEAD, since the working tree has edits")
    before = _git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")
    if before is None:
        raise SpeclaError("HEAD has no parent here: give BASE=COMMIT (in a shallow clone: git fetch --unshallow)")
    return Base(before, "the commit before HEAD")


@contextmanager
def checked_out(root: Path, commit: str) -> Iterator[Path]:
    """The files of a commit, in a worktree that is removed again."""
    folder = Path(tempfile.mkdtemp(prefix="specla-base-"))
    place = folder / "base"
    try:
        if _git(root, "worktree", "add", "--detach", "--quiet", str(place), commit) is None:
            raise SpeclaError(f"{commit[:12]}: git cannot check it out in {folder}; is the disk full?")
        yield place
    finally:
        _git(root, "worktree", "remove", "--force", str(place))
        shutil.rmtree(folder, ignore_errors=True)
        _git(root, "worktree", "prune")


def _git(root: Path, *words: str) -> str | None:
    """What git prints, stripped; None where it fails."""
    # Inside a hook git sets variables that would turn these commands to another repository.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, env=plain, timeout=120, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
