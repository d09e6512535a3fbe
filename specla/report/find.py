"""Which run folders a path stands for: a run's own, or those that a report keeps in its `records`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from specla.bench.lines import IS_FOLDER
from specla.bench.store import CONFIG, ENV, RECORDS
from specla.errors import SpeclaError

REPORT = "report.md"
_NAMED = 4


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Run folders, each once, by name: the folders given, and for a report's folder those kept in its `records`.

    Raises SpeclaError for a path that is neither, cannot be read, or holds a run that lost its records.
    """
    found: dict[Path, None] = {}
    for path in paths:
        try:
            found.update(dict.fromkeys(folder.resolve() for folder in _runs_of(path)))
        except OSError as error:
            raise SpeclaError(f"{path}: cannot be read ({error.strerror}); give a run's folder") from None
    return sorted(found, key=lambda folder: (folder.name, str(folder)))


def folder_name(path: Path) -> str:
    """The name of the folder that a path leads to. Raises SpeclaError where it leads nowhere."""
    try:
        return path.resolve().name
    except (OSError, RuntimeError):
        # Until Python 3.13 a loop of links is a RuntimeError.
        raise SpeclaError(f"{path}: cannot be followed to a folder; give a run's folder") from None


def _runs_of(path: Path) -> list[Path]:
    if (path / RECORDS).is_file():
        return [path]
    if (path / RECORDS).is_dir():
        raise SpeclaError(f"{path / RECORDS}: {IS_FOLDER}")
    records = path / "records"
    kept = sorted(folder for folder in records.iterdir() if folder.is_dir()) if records.is_dir() else []
    for folder in [path, *kept]:
        if not (folder / RECORDS).is_file() and (folder in kept or _was_run(folder)):
            raise SpeclaError(f"{folder}: damaged run, {RECORDS} is missing; restore it, or delete the folder")
    if kept:
        return kept
    raise SpeclaError(f"{path}: neither a run nor a report ({_why(path)}")


def _was_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (CONFIG, ENV))


def _why(path: Path) -> str:
    """Why a path is neither, and in its place what to give."""
    advice = "give a run's folder, such as one of those in runs/"
    if path.is_file():
        return (
            f"a file); give the folder that it lies in: {path.parent}" if path.name == RECORDS else f"a file); {advice}"
        )
    if not path.is_dir():
        return f"no such folder); {advice}"
    if (path / REPORT).is_file():
        return f"its records/ is missing); {advice}"
    held = sorted(file.parent for file in path.glob(f"*/{RECORDS}"))
    return f"{RECORDS} is missing); {f'give one of its runs: {_listed(held)}' if held else advice}"


def _listed(folders: Sequence[Path]) -> str:
    more = f" and {len(folders) - _NAMED} more" if len(folders) > _NAMED else ""
    return ", ".join(map(str, folders[:_NAMED])) + more
