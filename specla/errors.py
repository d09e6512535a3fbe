"""The errors that are not bugs, and any error in one line."""

import re

SMALLER = "use a smaller batch, tree or model"
"""What helps where memory is short."""


class SpeclaError(Exception):
    """Bad input: one clear line that names what, where and what to do. Exit code 2."""


class MeasurementError(Exception):
    """A measurement that could not be finished on this machine (memory, disk, device): one clear line. Exit code 4."""


def first_line(error: BaseException) -> str:
    """What an error says, its first line; the name of its type where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory for something: Python's own error, NumPy's, or one of torch, on a CPU or a GPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # On a CPU torch has no type for it.
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


_NO_MEMORY = ("can't allocate memory", "not enough memory", "std::bad_alloc", "out of memory")


def told(error: BaseException) -> str:
    """An error's type and what it says, in one line."""
    if is_out_of_memory(error):
        asked = re.search(r"allocate (\d+) bytes", str(error))
        size = f" ({int(asked[1]) / 2**30:.1f} GiB more were asked for)" if asked else ""
        return f"out of memory{size}: {SMALLER}"
    name, line = type(error).__name__, first_line(error)
    return line if line == name else f"{name}: {line}"
