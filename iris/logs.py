"""What a stored line of a task's output looks like, and how bytes become such lines. No files, no clock.

A chunk is a sequence of records, each on a line of its own: milliseconds since 1970, the stream's letter, whether the line goes
on in the next record (`+`) or not (`.`), and the bytes as the program wrote them:

    1763700000123 o. epoch 1 loss 0.42
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

#: A line longer than this is stored in pieces, so that no program can make an agent hold an unbounded line.
MAX_PIECE = 64 * 1024


class Stream(StrEnum):
    STDOUT = "o"
    STDERR = "e"
    BUILD = "b"  # what the host says about preparing the attempt


class LogLine(NamedTuple):
    """One record: a line of output, or a piece of one that `goes_on` in the next record of the same stream.

    A named tuple, not a model: a log has millions of them.
    """

    at_ms: int
    stream: Stream
    data: bytes
    goes_on: bool = False

    @property
    def text(self) -> str:
        """The line as text; bytes that are not UTF-8 are replaced, never dropped."""
        return self.data.decode(errors="replace")


class LineSplitter:
    """Cuts the bytes of one stream into lines, however they arrive."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def kept(self) -> int:
        """How many bytes have been fed and not been given back yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """(bytes, goes on) of every line that is complete now, and of pieces that have grown too long to keep."""
        *whole, rest = (self._rest + data).split(b"\n")
        found = [piece for line in whole for piece in _pieces(line)]
        while len(rest) > MAX_PIECE:
            found.append((rest[:MAX_PIECE], True))
            rest = rest[MAX_PIECE:]
        self._rest = rest
        return found

    def flush(self, *, ended: bool) -> list[tuple[bytes, bool]]:
        """What is left without its newline: a prompt or a progress bar while the program runs, its last words afterwards."""
        rest, self._rest = self._rest, b""
        return [(rest, not ended)] if rest else []


def encode(at_ms: int, stream: Stream, pieces: list[tuple[bytes, bool]]) -> bytes:
    """The records of some pieces of one stream."""
    last, more = b"%d %s. " % (at_ms, stream.encode()), b"%d %s+ " % (at_ms, stream.encode())
    return b"".join((more if goes_on else last) + data + b"\n" for data, goes_on in pieces)


def decode(chunk: bytes) -> Iterator[LogLine]:
    """The records of a chunk."""
    for record in chunk.split(b"\n")[:-1]:
        head, mark, data = record.split(b" ", 2)
        yield LogLine(int(head), _STREAMS[mark[:1]], data, mark[1:] == b"+")


_STREAMS = {stream.encode(): stream for stream in Stream}


def _pieces(line: bytes) -> Iterator[tuple[bytes, bool]]:
    while len(line) > MAX_PIECE:
        yield line[:MAX_PIECE], True
        line = line[MAX_PIECE:]
    yield line, False
