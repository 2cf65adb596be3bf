"""Limits what one attempt may store and how much disk it may use, and decides which part of its log
and which output files are stored.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.units import GIB, KIB, TIB, format_bytes

#: The beginning of each line that the host, and not the program, writes into a task's log.
HOSTS_LINE = b"[iris] "
#: The beginning of the last line of a log that has reached its limit.
FULL_LINE = HOSTS_LINE + b"the log has reached its limit"
#: The limit on bytes of the host's own lines that are stored after the log has reached its limit.
#: It is needed because a set-up step can also write lines that begin with `HOSTS_LINE`.
BEYOND_LIMIT = 64 * KIB
#: The limit on output files of an attempt. Each file needs an object and a request to the store,
#: and memory of the agent during the upload.
MOST_FILES = 1_000_000
#: The limit on names in the path of an output file. The agent opens the directories of a path one
#: by one.
MOST_STEPS = 100
#: The limits on bytes of a file's or directory's name in the store, where a special character needs
#: three bytes, and on the whole name of the object. File systems allow 255 bytes in a name, and
#: obstore needs some of them while it writes. Google Cloud Storage and S3 allow 1,024 bytes for the
#: whole name.
MOST_NAME, MOST_OBJECT_NAME = 240, 1024
_CONTROL = re.compile("[\x00-\x1f\x7f]")


class StoreLimits(Frozen):
    """The limits on the bytes that one attempt may store. The defaults protect against mistakes;
    useful jobs stay far below them.
    """

    logs: int = Field(default=16 * GIB, ge=0)
    outputs: int = Field(default=4 * TIB, ge=0)
    #: The limit on bytes of a save of the checkpoint directory. While a new save replaces the last
    #: one, the store contains both.
    checkpoint: int = Field(default=4 * TIB, ge=0)
    #: The limit on bytes that the attempt uses on the host's disks.
    disk: int = Field(default=4 * TIB, ge=0)


class LogAllowance:
    """The bytes that a log may still add to the store.

    Args:
        limit: the limit on bytes of the log. With 0, only the host's own lines are stored.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: The number of bytes of the log that the store contains.
        self.stored = 0
        #: True after the log has reached its limit.
        self.full = False
        self._beyond = 0

    def fits(self, chunk: bytes) -> bytes:
        """Returns the part of a chunk, in whole lines, that may be stored. If that is not the whole
        chunk, the log has reached its limit.
        """
        room = self._limit - self.stored
        if len(chunk) <= room:
            return chunk
        self.full = True
        return chunk[: chunk.rfind(b"\n", 0, max(room, 0)) + 1]

    @property
    def full_line(self) -> bytes:
        """Returns the last line of a log that has reached its limit."""
        limit = format_bytes(self._limit).encode()
        return (
            FULL_LINE
            + b" of "
            + limit
            + b" (bootstrap.max_logs): the program goes on, and its further output is not stored"
        )

    def beyond(self, pieces: Sequence[tuple[bytes, bool]]) -> list[tuple[bytes, bool]]:
        """Returns the pieces of the host's own lines that are stored although the log has reached
        its limit.
        """
        found = []
        for data, goes_on in pieces:
            if data.startswith(HOSTS_LINE) and self._beyond + len(data) <= BEYOND_LIMIT:
                self._beyond += len(data)
                found.append((data, goes_on))
        return found


class OutputFile(NamedTuple):
    """A file in an attempt's output directory."""

    path: PurePath
    #: The size of the file in bytes.
    size: int


class Selection(NamedTuple):
    """The output files that are stored, and the number of files that are left out."""

    stored: list[OutputFile]
    #: The number of output files that are not stored, because they exceed a limit or because object
    #: stores do not accept their names.
    left_out: int
    #: The total size in bytes of the output files that are not stored.
    left_out_bytes: int


def is_possible(name: str) -> bool:
    """Returns whether all kinds of object store accept an object, or a folder, with this name."""
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
    """Chooses the output files to store: in the given order, each file that still fits. The same
    files give the same choice.

    Args:
        limit: the limit on bytes of all files.
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
    """Returns a sentence about the output files that were left out, for the log and the outcome of
    an attempt; empty if none was.

    Args:
        count: the number of files that exceed a limit.
        size: the bytes of these files.
        limit: the limit on bytes of all files.
        unreadable: the number of files that the agent may not read.
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
