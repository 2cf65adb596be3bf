"""Log shipping: from the files a program writes to chunk objects, while it runs.

The program's own files are the buffer: while the store is away no more is read than one chunk, so that costs neither lines nor
memory.
"""

import logging
import time
from datetime import timedelta
from pathlib import Path

from obstore.exceptions import BaseError

from iris import names
from iris.logs import LineSplitter, Stream, encode
from iris.store import Store

logger = logging.getLogger(__name__)

#: A chunk is stored as soon as it has this much, …
CHUNK = 64 * 1024
#: … or this long after its first line.
FLUSH_EVERY = timedelta(seconds=1)
#: Read at once from a file: bounds both memory and how long the event loop is held.
READ = 256 * 1024
LAST_LINES = 10
LAST_BYTES = 1_000


class _Tail:
    """The unread part of one growing file."""

    def __init__(self, path: Path, stream: Stream) -> None:
        self._path = path
        self.stream = stream
        self._offset = 0
        self.lines = LineSplitter()

    def read(self) -> bytes:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(READ)
        self._offset += len(data)
        return data


class LogShipper:
    """Ships the output of one attempt.

    Raises nothing while shipping: a store that refuses is tried again at the next `ship`.
    """

    def __init__(self, store: Store, prefix: str, stdout: Path, stderr: Path) -> None:
        self._store = store
        self._prefix = prefix
        self._tails = (_Tail(stdout, Stream.STDOUT), _Tail(stderr, Stream.STDERR))
        #: How many chunks have been stored.
        self.stored = 0
        self._buffer = bytearray()
        #: What is to be stored next, fixed since the first try.
        self._chunk = b""
        self._buffered_at = 0.0
        self._last: list[bytes] = []
        #: There is more to read right now; when the store is away, there is no hurry.
        self.behind = False

    def say(self, text: str) -> None:
        """A line of the host's own about this attempt."""
        self._add(Stream.BUILD, [(text.encode(), False)])

    async def ship(self, *, ended: bool = False) -> bool:
        """Read some of what there is and store what is due. True: everything is stored.

        Args:
            ended: the program writes no more, so everything is due.
        """
        more = False
        for tail in self._tails:
            if len(self._buffer) < READ:
                data = tail.read()
                more = more or len(data) == READ
                self._add(tail.stream, tail.lines.feed(data))
            else:
                more = True
        due = time.monotonic() - self._buffered_at >= FLUSH_EVERY.total_seconds()
        if not more and (ended or due):
            for tail in self._tails:
                self._add(tail.stream, tail.lines.flush(ended=ended))
        if not self._chunk and self._buffer and (ended or due or len(self._buffer) >= CHUNK):
            self._chunk = bytes(self._buffer)
            self._buffer.clear()
        if self._chunk:
            try:
                # Again exactly these bytes after a failure: it may have been stored all the same, and been read.
                await self._store.put(names.log_chunk(self._prefix, self.stored), self._chunk)
            except (OSError, BaseError) as error:
                logger.warning("logs of %s could not be stored, trying again: %s", self._prefix, error)
                self.behind = False
                return False
            self.stored += 1
            self._chunk = b""
        self.behind = more
        return not more and not self._buffer

    @property
    def last_lines(self) -> str:
        """The end of the output, for the outcome."""
        return b"\n".join(self._last).decode(errors="replace")[-LAST_BYTES:]

    def _add(self, stream: Stream, pieces: list[tuple[bytes, bool]]) -> None:
        if not pieces:
            return
        if not self._buffer:
            self._buffered_at = time.monotonic()
        self._buffer += encode(time.time_ns() // 1_000_000, stream, pieces)
        self._last = [*self._last, *(data[-LAST_BYTES:] for data, _ in pieces[-LAST_LINES:])][-LAST_LINES:]
