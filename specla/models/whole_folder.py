"""Folders that are whole or not there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specla.errors import naming


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the wanted one to write into, which takes its name on leaving and replaces one of that name.

    An error leaves what was there before. One of the disk (OSError) names the wanted folder.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with naming(folder):
            partial.mkdir(parents=True)
            yield partial
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(partial, folder)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(folder), None
        raise
