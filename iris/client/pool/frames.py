"""Joins byte strings into one, and splits it again. Each pool's jobs have a copy of this file, so
it must run on Python 3.8 and later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

#: The format, as for `struct.pack`, of the 8-byte length before each byte string.
LENGTH = "!Q"
#: The maximum size in bytes of the arguments or of the result of a call. The pool's program and
#: the worker each hold several copies in memory.
LARGEST = 1024 * 1024 * 1024
_SIZE = struct.calcsize(LENGTH)


def join(parts: Iterable[bytes]) -> bytes:
    """Returns the parts as one byte string."""
    return b"".join(each for part in parts for each in (struct.pack(LENGTH, len(part)), part))


def split(joined: bytes) -> list[bytes]:
    """Returns the parts that `join` has joined.

    Raises:
        ValueError: the bytes are not a result of `join`.
    """
    parts, at = [], 0
    while at < len(joined):
        end = at + _SIZE
        if end > len(joined):
            raise ValueError("the joined data ends within the 8-byte length before a byte string")
        (length,) = struct.unpack(LENGTH, joined[at:end])
        at = end + length
        if at > len(joined):
            raise ValueError("the joined data ends within a byte string")
        parts.append(joined[end:at])
    return parts
