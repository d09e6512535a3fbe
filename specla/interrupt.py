"""Ctrl-C that is not lost: a KeyboardInterrupt that Python ignored is raised again before the next piece of work.

Python runs a signal's handler between any two of its instructions, and ignores what is raised in a finaliser, in a
weakref's or a C library's callback. An interrupt that arrives there would leave one line on stderr and a command that
goes on.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class _Memory:
    asked = False
    unbroken = False


# What a handler writes to, and so one for the process. An Event would take a lock, which a handler must not wait for.
_memory = _Memory()


@contextmanager
def remembered() -> Iterator[None]:
    """Inside, an interrupt is remembered besides being raised, every time; the block that had one ends in it.

    That holds whatever else ended the block: an interrupt breaks what it meets, and the error of that is no news. Where
    SIGINT is ignored or somebody else's, and outside the main thread, nothing changes.

    Raises:
        KeyboardInterrupt: at the interrupt, from `check`, and on leaving.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    _memory.asked = False
    signal.signal(signal.SIGINT, _remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asked, _memory.asked = _memory.asked, False
        if asked:
            raise KeyboardInterrupt


def check() -> None:
    """Raise KeyboardInterrupt where one was asked for: for between two pieces of work, never while cleaning up."""
    if _memory.asked:
        raise KeyboardInterrupt


@contextmanager
def unbroken() -> Iterator[None]:
    """Inside, the first interrupt waits for the end, for short work that must not be left half done."""
    before, _memory.unbroken = _memory.asked, True
    try:
        yield
    finally:
        _memory.unbroken = False
    if not before:
        check()


def _remember(_signal: int, _frame: FrameType | None) -> None:
    waits = _memory.unbroken and not _memory.asked
    _memory.asked = True
    if not waits:
        raise KeyboardInterrupt
