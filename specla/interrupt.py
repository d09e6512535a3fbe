"""Signals that end a command and are not lost: a KeyboardInterrupt that Python ignored is raised again before the next
piece of work.

Python runs a signal's handler between any two of its instructions, and ignores what is raised in a finaliser, in a
weakref's or a C library's callback. An interrupt that arrives there would leave one line on stderr and a command that
goes on.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# A system without terminals to lose has no SIGHUP.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What asks a command to end: Ctrl-C, whoever stops processes, a terminal that is closed."""
_UNTOUCHED = (signal.SIG_DFL, signal.default_int_handler)


class Interrupt(KeyboardInterrupt):
    """One of SIGNALS arrived.

    Attributes:
        signal: which.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)


class _Memory:
    asked = 0
    """The first signal that arrived; 0 while none has."""
    unbroken = False
    waiting = False
    """Whether one waits for the end of what is unbroken."""


# What a handler writes to, and so one for the process. An Event would take a lock, which a handler must not wait for.
_memory = _Memory()


@contextmanager
def remembered() -> Iterator[None]:
    """Inside, each of SIGNALS is remembered besides being raised, every time; the block that had one ends in it.

    That holds whatever else ended the block: an interrupt breaks what it meets, and the error of that is no news. A
    signal that is ignored, as under nohup, or somebody else's stays so, and outside the main thread nothing changes.

    Raises:
        Interrupt: at the signal, from `check`, and on leaving.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = {number: handler for number, handler in before.items() if handler in _UNTOUCHED}
    _memory.asked = 0
    for number in ours:
        signal.signal(number, _remember)
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        asked, _memory.asked = _memory.asked, 0
        if asked:
            raise Interrupt(asked)


def check() -> None:
    """Raise Interrupt where one was asked for: for between two pieces of work, never while cleaning up."""
    if _memory.asked:
        raise Interrupt(_memory.asked)


@contextmanager
def unbroken() -> Iterator[None]:
    """Inside, the first signal waits for the end, for short work that must not be left half done.

    Cleaning up after a signal may be such work: one that came before is not raised again on leaving.
    """
    outer, _memory.unbroken = _memory.unbroken, True
    waited = False
    try:
        yield
    finally:
        _memory.unbroken = outer
        if not outer:
            waited, _memory.waiting = _memory.waiting, False
    if waited:
        check()


def _remember(number: int, _frame: FrameType | None) -> None:
    waits = _memory.unbroken and not _memory.waiting
    _memory.asked = _memory.asked or number
    if waits:
        _memory.waiting = True
    else:
        raise Interrupt(_memory.asked)
