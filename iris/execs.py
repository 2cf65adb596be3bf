"""Commands that are run beside a task, and looks into its processes: what is asked, what is said meanwhile, what came of it.

What is said travels in *chunks*, numbered objects of a session's two directions. A chunk is a sequence of frames: a letter, the
length of the data in four bytes, the highest first, and the data. An empty chunk is a sign of life.
"""

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from iris import names

#: The activities that every host serves on its own queue.
EXEC_TASK, PROFILE_TASK = "exec_task", "profile_task"
#: The type of the error with which a host answers that the task does not run there.
NOT_RUNNING = "NotRunning"
#: The type of the error with which a host refuses what it cannot do.
CANNOT = "Cannot"
#: The exit code of a command that was ended because its time was over, as that of the shell's `timeout`.
TIMED_OUT = 124


class ExecRequest(BaseModel):
    """A command to be run where a task runs, with its environment, directory and limits."""

    model_config = ConfigDict(frozen=True)

    #: Unique for ever: what is said lies below it in the store.
    session: str
    job: str
    index: int
    argv: tuple[str, ...] = Field(min_length=1)
    #: Whether it will be given input; else it finds an empty one.
    stdin: bool = False
    #: Whether it gets a terminal, of this kind and size; else its two streams are kept apart.
    tty: bool = False
    term: str = "xterm"
    rows: int = Field(default=24, ge=1, le=9999)
    columns: int = Field(default=80, ge=1, le=9999)
    #: After this time it is ended; None: it may run as long as the attempt.
    timeout: timedelta | None = None


class ExecEnd(BaseModel):
    """How such a command ended."""

    model_config = ConfigDict(frozen=True)

    #: Its own, 128 and the number of the signal that killed it, or `TIMED_OUT`.
    exit_code: int
    #: Why it could not be started or was ended; empty: it ended by itself.
    reason: str = ""
    #: So many chunks were said to the client.
    chunks: int = 0


class ProfileFormat(StrEnum):
    DUMP = "dump"  # what every thread does at this moment
    FLAMEGRAPH = "flamegraph"
    SPEEDSCOPE = "speedscope"
    RAW = "raw"


class ProfileRequest(BaseModel):
    """A look into the Python processes of a task."""

    model_config = ConfigDict(frozen=True)

    session: str
    job: str
    index: int
    format: ProfileFormat = ProfileFormat.DUMP
    #: How long to look, and how many times a second; of a dump there is only one moment.
    duration: timedelta = timedelta(seconds=10)
    rate: int = Field(default=100, ge=1, le=10_000)


class Profile(BaseModel):
    """Where the result lies in the store, and which processes it is about."""

    model_config = ConfigDict(frozen=True)

    path: str
    pids: tuple[int, ...]


class Kind(StrEnum):
    """What a frame is."""

    INPUT = "i"
    END_OF_INPUT = "z"
    SIZE = "w"  # of the terminal: rows and columns in decimals
    SIGNAL = "s"  # to be sent to the command: its number in decimals
    HANG_UP = "h"  # nobody wants the command any more
    OUT = "o"
    ERR = "e"
    HEARD = "a"  # so many chunks have been dealt with, in decimals


class Frame(NamedTuple):
    kind: Kind
    data: bytes = b""


def encode(frames: Iterable[Frame]) -> bytes:
    """The chunk of these frames."""
    return b"".join(kind.encode() + len(data).to_bytes(4, "big") + data for kind, data in frames)


def decode(chunk: bytes) -> list[Frame]:
    """The frames of a chunk.

    Raises:
        ValueError: it is none.
    """
    found, at = [], 0
    while at < len(chunk):
        start = at + 5
        length = int.from_bytes(chunk[at + 1 : start], "big")
        if start + length > len(chunk):
            raise ValueError(f"a frame of {length} bytes is cut off")
        found.append(Frame(Kind(chunk[at : at + 1].decode("latin-1")), chunk[start : start + length]))
        at = start + length
    return found


def size_frame(rows: int, columns: int) -> Frame:
    return Frame(Kind.SIZE, b"%d %d" % (rows, columns))


def chunk_path(session: str, direction: str, sequence: int) -> str:
    """Where a chunk lies; the directions are `in` and `out`, as the command sees them."""
    return f"{chunks_prefix(session, direction)}/{sequence:010d}"


def chunks_prefix(session: str, direction: str) -> str:
    return f"{names.exec_files(session)}/{direction}"


def profile_path(session: str) -> str:
    return f"{names.exec_files(session)}/profile"
