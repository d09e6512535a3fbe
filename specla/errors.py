"""The errors that are not bugs, and any error in one line."""


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
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def told(error: BaseException) -> str:
    """An error's type and what it says, in one line."""
    name, line = type(error).__name__, first_line(error)
    return line if line == name else f"{name}: {line}"
