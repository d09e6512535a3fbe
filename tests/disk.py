"""A disk that ends early."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Inside, a write beyond so many bytes of a file fails for good, whatever library writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def full(*_: object, **__: object) -> None:
    """What a write on a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
