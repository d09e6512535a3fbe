"""The errors that are not bugs, and any error in one line."""


class SpeclaError(Exception):
    """Bad input: one clear line that names what, where and what to do. Exit code 2."""


class MeasurementError(Exception):
    """A measurement that could not be finished on this machine (memory, disk, device): one clear line. Exit code 4."""


def first_line(error: BaseException) -> str:
    """What an error says, its first line; the name of its type where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def told(error: BaseException) -> str:
    """An error's type and what it says, in one line."""
    name, line = type(error).__name__, first_line(error)
    return line if line == name else f"{name}: {line}"
