"""Folders that are whole or not there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the wanted one to write into, which takes its name on leaving and replaces one of that name."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(partial, folder)
