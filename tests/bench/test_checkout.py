"""Which commit `make regress` compares with, in a repository made for the test."""

import subprocess
from pathlib import Path

import pytest

from specla.bench.checkout import checked_out, choose_base
from specla.errors import SpeclaError


def git(root: Path, *words: str) -> str:
    name = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.invalid")
    return subprocess.run(
        ["git", "-C", str(root), *name, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(root: Path, text: str) -> str:
    (root / "file").write_text(text)
    git(root, "add", "file")
    git(root, "commit", "-q", "-m", text)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


def test_the_commit_that_is_asked_for(root: Path) -> None:
    first = commit(root, "first")
    commit(root, "second")
    assert choose_base(root, first[:9]).commit == choose_base(root, "HEAD~1").commit == first
    with pytest.raises(SpeclaError, match="BASE=--all: no such commit here"):
        choose_base(root, "--all")


def test_where_the_branch_left_the_main_line(root: Path) -> None:
    fork = commit(root, "first")
    git(root, "update-ref", "refs/remotes/origin/main", fork)
    commit(root, "second")
    commit(root, "third")
    assert choose_base(root, "").commit == fork


def test_on_the_main_line_itself(root: Path) -> None:
    with pytest.raises(SpeclaError, match="no commit yet"):
        choose_base(root, "")
    first = commit(root, "first")
    with pytest.raises(SpeclaError, match="HEAD has no parent here: give BASE=COMMIT"):
        choose_base(root, "")
    second = commit(root, "second")
    git(root, "update-ref", "refs/remotes/origin/main", second)
    assert choose_base(root, "").commit == first
    (root / "file").write_text("edited")
    assert choose_base(root, "").commit == second


def test_its_files_for_a_while(root: Path) -> None:
    first = commit(root, "first")
    commit(root, "second")
    with checked_out(root, first) as place:
        assert (place / "file").read_text() == "first"
    assert not place.exists() and git(root, "worktree", "list").count("\n") == 0
    assert (root / "file").read_text() == "second"
