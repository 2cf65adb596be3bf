"""The format of stored log lines, and the conversion of a task's output to it.

A chunk is a sequence of records, one on each line. A record has the time in milliseconds since
1970, the letter of the stream, and a mark that says how the line ends: `.` with a newline, `+` in a
later record, `!` with the output but without a newline. Then follow the bytes that the program
wrote:

    1763700000123 o. epoch 1 loss 0.42
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

#: The maximum length in bytes of a stored piece of a line. Longer lines are stored in pieces, so
#: that a program cannot fill an agent's memory with one line.
MAX_PIECE = 64 * 1024


class Stream(StrEnum):
    STDOUT = "o"
    STDERR = "e"
    BUILD = "b"  # the host's messages while it prepares the attempt


class LogLine(NamedTuple):
    """One record: a line of output, or a piece of a line. A piece that `goes_on` continues in the
    next record of the same stream.

    It is a named tuple instead of a model, because a log has millions of records.
    """

    at_ms: int
    stream: Stream
    data: bytes
    goes_on: bool = False
    #: Whether the output ended within the line, without a newline.
    cut: bool = False

    @property
    def written(self) -> bytes:
        """The bytes that the program wrote, with the newline if it wrote one."""
        return self.data if self.goes_on or self.cut else self.data + b"\n"

    @property
    def text(self) -> str:
        """The line as text. Bytes that are not UTF-8 become replacement characters."""
        return self.data.decode(errors="replace")


class LineSplitter:
    """Splits the bytes of one stream into lines. The bytes may arrive in portions of any size."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def kept(self) -> int:
        """The number of bytes that were fed but not returned yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Returns (bytes, goes on) for each line that is complete now, and for pieces of lines that
        are too long to keep.
        """
        *whole, rest = (self._rest + data).split(b"\n")
        found = [piece for line in whole for piece in _pieces(line)]
        while len(rest) > MAX_PIECE:
            found.append((rest[:MAX_PIECE], True))
            rest = rest[MAX_PIECE:]
        self._rest = rest
        return found

    def flush(self, *, ended: bool) -> list[tuple[bytes, bool]]:
        """Returns the rest, which has no newline: a prompt or progress bar if the program still
        runs, or its last output if it has ended.
        """
        rest, self._rest = self._rest, b""
        return [(rest, not ended)] if rest else []


def encode(
    at_ms: int, stream: Stream, pieces: list[tuple[bytes, bool]], *, cut: bool = False
) -> bytes:
    """Encodes pieces of one stream as records.

    Args:
        cut: whether the output ended within these lines, without a newline.
    """
    last = b"%d %s%s " % (at_ms, stream.encode(), b"!" if cut else b".")
    more = b"%d %s+ " % (at_ms, stream.encode())
    return b"".join((more if goes_on else last) + data + b"\n" for data, goes_on in pieces)


def decode(chunk: bytes) -> Iterator[LogLine]:
    """Decodes the records of a chunk."""
    for record in chunk.split(b"\n")[:-1]:
        head, mark, data = record.split(b" ", 2)
        yield LogLine(int(head), _STREAMS[mark[:1]], data, mark[1:] == b"+", mark[1:] == b"!")


_STREAMS = {stream.encode(): stream for stream in Stream}


def _pieces(line: bytes) -> Iterator[tuple[bytes, bool]]:
    while len(line) > MAX_PIECE:
        yield line[:MAX_PIECE], True
        line = line[MAX_PIECE:]
    yield line, False
