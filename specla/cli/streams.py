"""Standard streams that cannot end a command: a reader may leave, a stream may be closed, a disk may be full.

What a command has to say is lost then, never what it has measured.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Raw(io.FileIO):
    """A file descriptor that, once it cannot be written, leads nowhere."""

    problem: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.problem = error
        # Not this object alone: what C libraries print, and what Python flushes when it ends, go the same way.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self.fileno())
        return len(memoryview(data))


class Stream(io.TextIOWrapper):
    """Text to a file descriptor that another stream owns, encoded as that one does; writing it never fails."""

    def __init__(self, owner: TextIO) -> None:
        self._raw = _Raw(owner.fileno(), "wb", closefd=False)
        # A terminal sees each line, as it would of its owner; what is streamed is flushed by who writes it.
        lines = bool(getattr(owner, "line_buffering", False))
        super().__init__(io.BufferedWriter(self._raw), owner.encoding, owner.errors, line_buffering=lines)

    @property
    def left(self) -> bool:
        """Whether nobody reads it any more."""
        return isinstance(self._raw.problem, BrokenPipeError)

    @property
    def problem(self) -> OSError | None:
        """Why it could not be written; a reader who has seen enough is no problem."""
        return None if self.left else self._raw.problem


def reader_left() -> bool:
    """Whether nobody reads stdout any more, so that what is made for it alone may end."""
    return isinstance(sys.stdout, Stream) and sys.stdout.left


def unwritten() -> OSError | None:
    """Why not all that was said on stdout could be written; None where it was, or where nobody wants it."""
    sys.stdout.flush()
    return sys.stdout.problem if isinstance(sys.stdout, Stream) else None


@contextmanager
def steady_streams() -> Iterator[None]:
    """Inside, stdout and stderr are there and can be written, whatever the caller made of them."""
    _fill_closed()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _steady(sys.stdout), _steady(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _fill_closed() -> None:
    """Give streams that the caller closed a place to write: else a file opened later would take their number."""
    if sys.stdout is not None and sys.stderr is not None:
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    # Of the process, and so never closed.
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere


def _steady(stream: TextIO) -> TextIO:
    """The stream, if it is no file but a test's own; else one in its place that never fails."""
    try:
        stream.fileno()
    except (OSError, ValueError):
        return stream
    stream.flush()
    return Stream(stream)
