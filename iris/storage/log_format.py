"""The format of stored log lines, and the conversion of a task's output to it. Pure: no files, no
clock.

A chunk is a sequence of records, each on a line of its own. A record has the milliseconds since
1970, the stream's letter, how the line ends (with a newline: `.`, in a later record: `+`, or with
the output, without a newline: `!`), and the bytes as the program wrote them:

    1763700000123 o. epoch 1 loss 0.42
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

#: A longer line is stored in pieces, so that a program cannot make an agent hold an unbounded line
#: in memory.
MAX_PIECE = 64 * 1024


class Stream(StrEnum):
    STDOUT = "o"
    STDERR = "e"
    BUILD = "b"  # the host's messages about preparing the attempt


class LogLine(NamedTuple):
    """One record: a line of output, or a piece of one that `goes_on` in the next record of the same
    stream.

    It is a named tuple and not a model because a log has millions of records.
    """

    at_ms: int
    stream: Stream
    data: bytes
    goes_on: bool = False
    #: Whether the output ended within the line, so that its program wrote no newline.
    cut: bool = False

    @property
    def written(self) -> bytes:
        """The bytes that the program wrote, with the newline if it wrote one."""
        return self.data if self.goes_on or self.cut else self.data + b"\n"

    @property
    def text(self) -> str:
        """The line as text. Bytes that are not UTF-8 are replaced, never dropped."""
        return self.data.decode(errors="replace")


class LineSplitter:
    """Splits the bytes of one stream into lines, in whatever portions they arrive."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def kept(self) -> int:
        """The number of bytes that were fed and not returned yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Returns (bytes, goes on) of each line that is now complete, and of pieces that are too
        long to keep.
        """
        *whole, rest = (self._rest + data).split(b"\n")
        found = [piece for line in whole for piece in _pieces(line)]
        while len(rest) > MAX_PIECE:
            found.append((rest[:MAX_PIECE], True))
            rest = rest[MAX_PIECE:]
        self._rest = rest
        return found

    def flush(self, *, ended: bool) -> list[tuple[bytes, bool]]:
        """Returns the rest without a newline: a prompt or progress bar while the program runs, the
        last output after it ended.
        """
        rest, self._rest = self._rest, b""
        return [(rest, not ended)] if rest else []


def encode(
    at_ms: int, stream: Stream, pieces: list[tuple[bytes, bool]], *, cut: bool = False
) -> bytes:
    """Encodes pieces of one stream as records.

    Args:
        cut: these are what a splitter held back when the output ended: the lines have no newline.
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
