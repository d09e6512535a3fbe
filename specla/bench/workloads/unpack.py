"""The bytes of a prompt file: opened with care, unpacked by its ending, and never more than there is room for."""

import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specla.bench.validate import escaped, located
from specla.bench.workloads.shown import reason
from specla.errors import SpeclaError

MOST_BYTES = 1 << 30
"""Of a file, packed or not: the largest published prompt files are two thirds of it, and it fits a laptop's memory."""
_CHUNK = 1 << 20


def _zstd(data: bytes) -> Any:
    # Loaded for such a file alone.
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd")


_STREAMS: dict[str, Callable[[bytes], Any]] = {
    ".gz": lambda data: gzip.open(io.BytesIO(data)),  # noqa: SIM115 - of memory: there is nothing to close
    # Padding may follow, which the library does not read.
    ".xz": lambda data: lzma.open(io.BytesIO(data.rstrip(b"\0"))),  # noqa: SIM115
    ".zst": _zstd,
}
PACKED = tuple(_STREAMS)
"""The endings of packed files."""


def file_bytes(name: str) -> bytes:
    """The bytes of a file.

    Raises:
        SpeclaError: there is no such file, it is no ordinary one, it cannot be read, or it is larger than MOST_BYTES.
    """
    where = f"workload.path={escaped(name)}"
    try:
        path = Path(located(name))
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise SpeclaError(f"{where}: is a folder; name a file in it")
        if not stat.S_ISREG(found.st_mode):
            # A pipe would be waited for, and a device never ends.
            raise SpeclaError(f"{where}: is no ordinary file; copy what it gives into one")
        if found.st_size > MOST_BYTES:
            raise SpeclaError(f"{where}: is {found.st_size:,} bytes, over {MOST_BYTES:,}; give a part of it")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise SpeclaError(f"{where}: no such file") from None
    except (OSError, ValueError) as problem:
        known = isinstance(problem, OSError) and problem.errno
        raise SpeclaError(f"{where}: cannot be read ({os.strerror(known) if known else reason(problem)})") from None
    if len(data) > MOST_BYTES:
        raise SpeclaError(f"{where}: is over {MOST_BYTES:,} bytes; give a part of it")
    return data


def unpacked(data: bytes, ending: str, where: str, most: int) -> bytes:
    """What a packed file holds.

    Args:
        data: of the file.
        ending: one of PACKED.
        where: the file, for messages.
        most: bytes that it may hold.

    Raises:
        SpeclaError: it is damaged, or holds more.
    """
    chunks, size = list[bytes](), 0
    try:
        stream = _STREAMS[ending](data)
        while chunk := stream.read(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                raise SpeclaError(f"{where}: unpacks to over {most:,} bytes; give a part of it")
    except (OSError, EOFError, ValueError, MemoryError, zlib.error, lzma.LZMAError) as damage:
        raise SpeclaError(f"{where}: cannot be unpacked as {ending[1:]} ({reason(damage)})") from None
    return b"".join(chunks)
