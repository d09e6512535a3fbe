"""Recipes: what ships is whole, packages are checked before they are used, and every failure is one line."""

import hashlib
import io
import re
import shutil
import subprocess
import tarfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

import specla
from specla.errors import SpeclaError
from specla.train.recipe import fetch_recipe, load_recipe

SHIPPED = Path(str(files(specla))) / "assets" / "gdn-mini" / "recipe.yaml"


def make_archive(path: Path, name: str = "texts-1.0/a.txt") -> str:
    """A package of one file; returns its SHA-256."""
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = 6
        archive.addfile(member, io.BytesIO(b"hello\n"))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_recipe(
    folder: Path, sha256: str = "0" * 64, package: dict[str, Any] | None = None, source: dict[str, Any] | None = None
) -> Path:
    """A recipe of one package and one source, with entries changed."""
    content = {
        "packages": [
            {"name": "texts", "client": "pip", "version": "1.0", "file": "texts-1.0.tar.gz", "sha256": sha256}
            | (package or {})
        ],
        "sources": [
            {"name": "letters", "package": "texts", "path": "texts-1.0", "licence": "MIT", "category": "prose"}
            | (source or {})
        ],
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def refuse_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a client is called."""

    def run(command: list[str], **_: object) -> None:
        raise AssertionError(f"no client should be called: {command}")

    monkeypatch.setattr(subprocess, "run", run)


def test_the_shipped_recipe_is_whole() -> None:
    recipe = load_recipe(SHIPPED)
    assert {package.name for package in recipe.packages} == {source.package for source in recipe.sources}
    assert all(re.fullmatch("[0-9a-f]{64}", package.sha256) for package in recipe.packages)
    assert {source.category for source in recipe.sources} == {"prose", "documentation", "code"}
    assert len({source.name for source in recipe.sources}) == len(recipe.sources)
    # Packages are named, never hosts.
    assert "://" not in SHIPPED.read_text()


def test_a_package_that_is_there_is_checked_and_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_clients(monkeypatch)
    recipe = load_recipe(make_recipe(tmp_path, make_archive(tmp_path / "texts-1.0.tar.gz"), source={"exclude": ["x*"]}))
    [source] = fetch_recipe(recipe, tmp_path)
    assert (source.path / "a.txt").read_text() == "hello\n"
    assert (source.name, source.licence, source.version, source.exclude) == ("letters", "MIT", "texts 1.0", ("x*",))
    (source.path / "a.txt").write_text("kept")
    assert fetch_recipe(recipe, tmp_path) == [source]
    assert (source.path / "a.txt").read_text() == "kept"


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_a_debian_package_is_unpacked(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        "Package: texts\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: texts\n"
    )
    (tree / "usr").mkdir()
    (tree / "usr" / "a.txt").write_text("hello\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(tree), str(tmp_path / "texts.deb")], check=True)
    digest = hashlib.sha256((tmp_path / "texts.deb").read_bytes()).hexdigest()
    path = make_recipe(tmp_path, digest, {"client": "apt", "file": "texts.deb"}, {"path": "usr"})
    [source] = fetch_recipe(load_recipe(path), tmp_path)
    assert (source.path / "a.txt").read_text() == "hello\n"


def test_a_changed_package_is_refused_and_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_clients(monkeypatch)
    make_archive(tmp_path / "texts-1.0.tar.gz")
    with pytest.raises(SpeclaError, match=r"SHA-256 is .* the recipe says 0000"):
        fetch_recipe(load_recipe(make_recipe(tmp_path)), tmp_path)
    assert not (tmp_path / "unpacked").exists()


def test_an_archive_that_writes_outside_is_refused(tmp_path: Path) -> None:
    digest = make_archive(tmp_path / "texts-1.0.tar.gz", "../../../escaped.txt")
    with pytest.raises(SpeclaError, match="does not unpack"):
        fetch_recipe(load_recipe(make_recipe(tmp_path, digest)), tmp_path)
    assert not list(tmp_path.parent.rglob("escaped.txt"))


@pytest.mark.parametrize("client", ["apt", "pip"])
def test_a_version_that_is_gone_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 100, "", "reading\nE: Version '1.0' for 'texts' was not found\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SpeclaError) as caught:
        fetch_recipe(load_recipe(make_recipe(tmp_path, package={"client": client})), tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    assert "texts 1.0" in line and client in line and "was not found" in line and str(tmp_path) in line


def test_a_missing_client_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpeclaError, match=r"apt-get is not installed: put the file into"):
        fetch_recipe(load_recipe(make_recipe(tmp_path, package={"client": "apt"})), tmp_path)


def test_a_client_that_gives_another_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, "", ""))
    with pytest.raises(SpeclaError, match=r"gave no file texts-1\.0\.tar\.gz"):
        fetch_recipe(load_recipe(make_recipe(tmp_path)), tmp_path)


@pytest.mark.parametrize(
    ("package", "source", "said"),
    [
        ({"version": 1.0}, {}, r"packages\[0\]\.version=1\.0: write it as text"),
        ({"client": "conda"}, {}, "client 'conda': use apt or pip"),
        ({"mirror": "x"}, {}, r"packages\[0\] needs the keys"),
        ({}, {"package": "other"}, "package 'other' is not among the packages"),
        ({}, {"category": "poems"}, "category 'poems': use prose, documentation, code"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, package: dict[str, Any], source: dict[str, Any], said: str) -> None:
    with pytest.raises(SpeclaError, match=said):
        load_recipe(make_recipe(tmp_path, package=package, source=source))


@pytest.mark.parametrize("content", ["a: [", "- 1", "packages: []\nsources: []", "packages: 1\nsources: 2", "\x00"])
def test_a_file_that_is_no_recipe_gives_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(SpeclaError) as caught:
        load_recipe(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(SpeclaError, match="cannot read the recipe"):
        load_recipe(tmp_path / "missing.yaml")
