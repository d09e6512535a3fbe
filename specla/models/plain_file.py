"""Files of a checkpoint, looked at before anything opens one: a pipe would wait for ever, a pointer is not the file."""

import errno
import os
import stat
from pathlib import Path

from specla.errors import SpeclaError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_POINTER, _POINTER_BYTES = b"version https://git-lfs.github.com/spec/", 1024
"""How the text begins that git-lfs leaves in a file's place, and more bytes than it has."""


def size_of(file: Path) -> int | None:
    """The bytes of a plain file, or None where nothing has its name; links are followed.

    Raises:
        SpeclaError: something else has its name (a folder, a pipe, a link to nowhere or to itself), it cannot be looked
            at, or it is what git-lfs leaves in a file's place.
    """
    try:
        found = file.stat()
    except FileNotFoundError:
        if not file.is_symlink():
            return None
        raise SpeclaError(f"{file}: is a link to {os.readlink(file)}, where nothing is; get the file again") from None
    except NotADirectoryError:
        return None
    except ValueError:
        raise SpeclaError(f"{file}: no file can be called that") from None
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise SpeclaError(f"{file}: is a link that leads back to itself; get the file again") from None
        raise SpeclaError(f"{file}: cannot be read ({problem.strerror or problem})") from None
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise SpeclaError(f"{file}: is {kind}, not a plain file; put the checkpoint's file in its place")
    if 0 < found.st_size <= _POINTER_BYTES:
        _refuse_pointer(file)
    return found.st_size


def _refuse_pointer(file: Path) -> None:
    try:
        with file.open("rb") as content:
            start = content.read(len(_POINTER))
    except OSError as problem:
        raise SpeclaError(f"{file}: cannot be read ({problem.strerror or problem})") from None
    if start == _POINTER:
        raise SpeclaError(f"{file}: is a git-lfs pointer, not the file; run `git lfs pull` in its folder")
