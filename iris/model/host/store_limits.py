"""Limits what one attempt may store and use of a disk, and decides which part of its log and which
output files are kept.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.units import GIB, KIB, TIB, format_bytes

#: How every line of the host in a log begins.
HOSTS_LINE = b"[iris] "
#: The line that ends a log whose limit is reached begins with this.
FULL_LINE = HOSTS_LINE + b"the log has reached its limit"
#: The bytes of the host's own lines that are stored after the limit is reached. A set-up step can
#: write such lines, too.
BEYOND_LIMIT = 64 * KIB
#: The most output files of an attempt. Each is an object and a request, and takes memory of the
#: agent during the upload.
MOST_FILES = 1_000_000
#: The most steps of an output file's path. The agent opens the directories of a path one by one.
MOST_STEPS = 100
#: The most bytes of the name of a file or directory in the store, where odd characters take three,
#: and of the name of the whole object. File systems allow 255, and obstore needs some of them while
#: it writes. Google Cloud Storage and S3 allow 1,024.
MOST_NAME, MOST_OBJECT_NAME = 240, 1024
_CONTROL = re.compile("[\x00-\x1f\x7f]")


class StoreLimits(Frozen):
    """The most bytes that one attempt may store. The default limits are for mistakes: useful jobs
    stay far below them.
    """

    logs: int = Field(default=16 * GIB, ge=0)
    outputs: int = Field(default=4 * TIB, ge=0)
    #: In a save of the checkpoint directory. While a save replaces another, the store has both.
    checkpoint: int = Field(default=4 * TIB, ge=0)
    #: On the disks of its host, while it is there.
    disk: int = Field(default=4 * TIB, ge=0)


class LogAllowance:
    """The bytes that a log may still take in the store.

    Args:
        limit: the most bytes of the log; 0: only the host's lines are stored.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: The bytes in the store.
        self.stored = 0
        #: True if the limit is reached. It stays reached.
        self.full = False
        self._beyond = 0

    def fits(self, chunk: bytes) -> bytes:
        """Returns the part of a chunk, in whole lines, that may be stored. If it is not all of it,
        the limit is reached.
        """
        room = self._limit - self.stored
        if len(chunk) <= room:
            return chunk
        self.full = True
        return chunk[: chunk.rfind(b"\n", 0, max(room, 0)) + 1]

    @property
    def full_line(self) -> bytes:
        """The line that ends the log."""
        limit = format_bytes(self._limit).encode()
        return (
            FULL_LINE
            + b" of "
            + limit
            + b" (bootstrap.max_logs): the program goes on, and its further output is not stored"
        )

    def beyond(self, pieces: Sequence[tuple[bytes, bool]]) -> list[tuple[bytes, bool]]:
        """Returns the pieces of the host's stream that are stored although the limit is reached."""
        found = []
        for data, goes_on in pieces:
            if data.startswith(HOSTS_LINE) and self._beyond + len(data) <= BEYOND_LIMIT:
                self._beyond += len(data)
                found.append((data, goes_on))
        return found


class OutputFile(NamedTuple):
    """A file in an attempt's output directory."""

    path: PurePath
    #: In bytes.
    size: int


class Selection(NamedTuple):
    """The output files that are stored, and what is left out."""

    stored: list[OutputFile]
    #: The number of files that are left out, and their total size in bytes.
    left_out: int
    left_out_bytes: int


def is_possible(name: str) -> bool:
    """Returns whether all stores take an object, or a folder, with this name."""
    steps = name.split("/")
    if not {"", ".", ".."}.isdisjoint(steps) or _CONTROL.search(name):
        return False
    return (
        max(len(step.encode()) for step in steps) <= MOST_NAME
        and len(name.encode()) <= MOST_OBJECT_NAME
    )


def select(
    files: Iterable[OutputFile], limit: int, name_of: Callable[[PurePath], str] = str
) -> Selection:
    """Chooses the output files to store: in their order, each that still fits. The same files give
    the same choice.

    Args:
        limit: the most bytes of all files.
        name_of: returns the name of a file's object.
    """
    stored: list[OutputFile] = []
    left_out, left_out_bytes, free = 0, 0, limit
    for file in files:
        steps = len(file.path.parts)
        if (
            file.size <= free
            and len(stored) < MOST_FILES
            and steps <= MOST_STEPS
            and is_possible(name_of(file.path))
        ):
            free -= file.size
            stored.append(file)
        else:
            left_out += 1
            left_out_bytes += file.size
    return Selection(stored, left_out, left_out_bytes)


def left_out_reason(count: int, size: int, limit: int, unreadable: int = 0) -> str:
    """Returns the sentence for the log and for the outcome of an attempt; empty: no output file was
    left out.

    Args:
        count: the files that exceed a limit.
        size: the bytes of these.
        limit: the most bytes of all files.
        unreadable: the files that the agent may not read.
    """
    most = (
        f"an attempt may store {format_bytes(limit)} (bootstrap.max_outputs) in {MOST_FILES:,}"
        " files with paths of up to "
    )
    beyond = (
        f"{_files(count, f' of {format_bytes(size)}')} not stored: {most}{MOST_STEPS} names and"
        f" {MOST_OBJECT_NAME:,} bytes"
    )
    closed = (
        f"{_files(unreadable)} not stored: not readable for the agent; let its user read what is in"
        " $IRIS_OUTPUT_DIR"
    )
    return "; ".join([*([beyond] if count else []), *([closed] if unreadable else [])])


def _files(count: int, size: str = "") -> str:
    return f"1 output file{size} is" if count == 1 else f"{count:,} output files{size} are"
