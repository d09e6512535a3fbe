"""The errors that are not bugs, and any error in one line."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SMALLER = "use a smaller batch, tree or model"
"""What helps where memory is short."""
SMALLER_ROW = "use shorter prompts (workload.prompt_tokens), a smaller tree or model"
"""The same where the batch is one row."""
NO_THREADS = "no more threads can be started (ulimit -u, ulimit -v)"


class SpeclaError(Exception):
    """Bad input: one clear line that names what, where and what to do. Exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


LONGEST = 800
"""Characters of a message. What users hand in can be quoted back at any length; beyond this its middle is left out."""


def one_line(text: str) -> str:
    """A text as one line of at most LONGEST characters, all of which any terminal can print."""
    if len(text) > LONGEST:
        half = LONGEST // 2 - 10
        text = f"{text[:half]} [...] {text[-half:]}"
    if text.isprintable():
        return text
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return shown if len(shown) <= LONGEST else one_line(shown)


class MeasurementError(Exception):
    """A measurement that could not be finished on this machine (memory, disk, device): one clear line. Exit code 4."""


def first_line(error: BaseException) -> str:
    """What an error says, its first line; the name of its type where it says nothing."""
    text = str(error).strip() or ("out of memory" if isinstance(error, MemoryError) else "")
    return text.splitlines()[0] if text else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory for something: Python's own error, NumPy's, or one of torch, on a CPU or a GPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # On a CPU torch has no type for it, and a library that finds no room for its code is one that cannot be imported.
    return isinstance(error, RuntimeError | ImportError) and any(words in str(error) for words in _NO_MEMORY)


def is_out_of_threads(error: BaseException) -> bool:
    """Whether this process may start no thread, by Python's own error for it."""
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


_NO_MEMORY = (
    *("can't allocate memory", "Cannot allocate memory", "not enough memory", "std::bad_alloc", "out of memory"),
    "failed to map segment",
)


def told(error: BaseException) -> str:
    """An error's type and what it says, in one line."""
    if is_out_of_memory(error):
        asked = re.search(r"allocate (\d+) bytes", str(error))
        size = f" ({int(asked[1]) / 2**30:.1f} GiB more were asked for)" if asked else ""
        return f"out of memory{size}: {SMALLER}"
    if is_out_of_threads(error):
        return f"{NO_THREADS}: raise the limit, or give threads=1"
    name, line = type(error).__name__, first_line(error)
    return line if line == name else f"{name}: {line}"


AGAIN = "free space and run the same command again"
"""What helps where a disk is full."""


def is_full(error: OSError) -> bool:
    """Whether a disk, or what a user may take of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Disk errors from writing an open file name no file: this adds it, for the one line that a user reads.

    Libraries that write by themselves have errors of their own for a disk, or none of the system's numbers: those
    become an OSError, too.
    """
    try:
        yield
    except Exception as error:
        code = _disk_code(error)
        if code is None:
            raise
        if not isinstance(error, OSError) or error.errno is None:
            raise OSError(code, os.strerror(code), str(path)) from None
        error.filename = error.filename or str(path)
        raise


def _disk_code(error: Exception) -> int | None:
    """The system's number of a disk error; None where it is none."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    # Rust's libraries put the number last. NumPy counts what was written, and stops short at the end of the disk.
    # Torch trips over the file's own error, and raises another while it closes its archive.
    if isinstance(error.__context__, OSError):
        return error.__context__.errno
    numbered = re.search(r"\(os error (\d+)\)", str(error))
    if numbered:
        return int(numbered[1])
    return errno.ENOSPC if re.search(r"\d+ requested and \d+ written", str(error)) else None
