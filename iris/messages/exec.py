"""Messages for commands that run beside a task (`iris exec`) and for profiles of its processes.

Both sides exchange data in *chunks*: numbered objects in the store, for each of a session's two
directions. A chunk is a sequence of frames. A frame is a letter, the length of the data in four
bytes (big-endian), and the data. An empty chunk is a heartbeat.
"""

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from iris.model import store_paths
from iris.model.frozen import Frozen

#: The names of the activities that run a command beside a task and that profile a task. Every host
#: serves them on its own task queue.
EXEC_TASK, PROFILE_TASK = "exec_task", "profile_task"
#: The type of the error that a host returns if the task does not run on this host.
NOT_RUNNING = "NotRunning"
#: The type of the error that a host returns for a request that it cannot carry out.
CANNOT = "Cannot"
#: The exit code of a command that exceeded its timeout, as with the shell's `timeout`.
TIMED_OUT = 124


class SessionRequest(Frozen):
    """Starts a session beside a task: a command, a profile or connections to ports."""

    #: The unique id of the session. The path of the session's objects in the store contains this
    #: id.
    session: str = Field(pattern="^[0-9A-Za-z]+$")
    job: str
    index: int

    @property
    def folder(self) -> str:
        """The folder in the store with the session's objects."""
        return store_paths.exec_files(self.job, self.session)


class ExecRequest(SessionRequest):
    """A command to run beside a task, with the task's environment, directory and limits."""

    argv: tuple[str, ...] = Field(min_length=1)
    #: Whether the client sends input; otherwise the command's input is empty.
    stdin: bool = False
    #: Whether the command gets a terminal. Without a terminal, stdout and stderr stay separate.
    tty: bool = False
    #: The kind of the terminal, for the variable `TERM`.
    term: str = "xterm"
    #: The number of rows of the terminal.
    rows: int = Field(default=24, ge=1, le=9999)
    #: The number of columns of the terminal.
    columns: int = Field(default=80, ge=1, le=9999)
    #: The time after which the command is ended; None if it may run as long as the attempt.
    timeout: timedelta | None = None


class ExecEnd(Frozen):
    """The result of a command that `iris exec` ran on the host of a task."""

    #: The command's own exit code, 128 plus the number of the signal that killed it, or
    #: `TIMED_OUT`.
    exit_code: int
    #: The reason why the command could not be started or was stopped; empty if it ended by itself.
    reason: str = ""
    #: The number of chunks (numbered objects in the store) that the host wrote for the client.
    chunks: int = 0


class ProfileFormat(StrEnum):
    """The file format in which a profile is stored."""

    DUMP = "dump"  # the current stack of every thread
    FLAMEGRAPH = "flamegraph"
    SPEEDSCOPE = "speedscope"
    RAW = "raw"


class ProfileRequest(SessionRequest):
    """A request to profile the Python processes of a task."""

    format: ProfileFormat = ProfileFormat.DUMP
    #: How long samples are taken. The format `dump` takes only one sample, so it ignores the
    #: duration.
    duration: timedelta = timedelta(seconds=10)
    #: The number of samples in a second.
    rate: int = Field(default=100, ge=1, le=10_000)


class Profile(Frozen):
    """The result of a `ProfileRequest`: the profile's path in the store, and the ids of the
    profiled processes.
    """

    path: str
    pids: tuple[int, ...]


class FrameKind(StrEnum):
    """The kind of a frame. Frames carry data between a client and a host through the store."""

    INPUT = "i"
    END_OF_INPUT = "z"
    SIZE = "w"  # the size of the terminal: rows and columns as decimals
    SIGNAL = "s"  # a signal for the command: its number as a decimal
    HANG_UP = "h"  # the client does not need the command any more
    OUT = "o"
    ERR = "e"
    ACKNOWLEDGED = "a"  # the number of chunks processed so far, as a decimal
    # The kinds below are for connections to ports (`iris.messages.port_forward`).
    READY = "y"  # a `ForwardReady`
    CONNECT = "c"  # open a connection to this port, a decimal
    DATA = "d"
    END = "f"  # no more data follows in this direction
    RESET = "x"  # the connection is broken, for this reason; it ends in both directions
    CONSUMED = "n"  # how many bytes have been passed on, as a decimal


class Frame(NamedTuple):
    kind: FrameKind
    data: bytes = b""


def encode(frames: Iterable[Frame]) -> bytes:
    """Encodes frames as a chunk."""
    return b"".join(kind.encode() + len(data).to_bytes(4, "big") + data for kind, data in frames)


def decode(chunk: bytes) -> list[Frame]:
    """Decodes the frames of a chunk.

    Raises:
        ValueError: the bytes are not a valid chunk.
    """
    found, at = [], 0
    while at < len(chunk):
        start = at + 5
        length = int.from_bytes(chunk[at + 1 : start], "big")
        if start + length > len(chunk):
            raise ValueError(f"a frame of {length} bytes is cut off")
        found.append(
            Frame(FrameKind(chunk[at : at + 1].decode("latin-1")), chunk[start : start + length])
        )
        at = start + length
    return found


def size_frame(rows: int, columns: int) -> Frame:
    return Frame(FrameKind.SIZE, b"%d %d" % (rows, columns))


def chunk_path(folder: str, direction: str, sequence: int) -> str:
    """Returns the path of a chunk.

    Args:
        folder: `SessionRequest.folder`.
        direction: `in` or `out`, as the command sees it.
    """
    return f"{chunks_prefix(folder, direction)}/{sequence:010d}"


def chunks_prefix(folder: str, direction: str) -> str:
    return f"{folder}/{direction}"


def profile_path(folder: str) -> str:
    return f"{folder}/profile"
