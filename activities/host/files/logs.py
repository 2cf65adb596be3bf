"""Ships logs from the files that a program writes to chunk objects in the store, while the program
runs.

The program's own files are the buffer. While the store is unreachable, no more than one chunk is
read, so no lines are lost and the memory does not grow. When the files become so large that they
may fill the disk, the oldest part is dropped, and a line in the log gives the number of missing
bytes.

A log has a size limit. When it is reached, the last line of the log says so. Later output is read
only for the last lines in the attempt's outcome.

The stored chunks show up to which byte of the files they go. So an agent that takes over continues
exactly behind the last byte in the store, whenever its predecessor died.
"""

import contextlib
import ctypes
import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from obstore.exceptions import BaseError
from pydantic import BaseModel, Field, ValidationError

from iris.activities.host.runtimes.cleanup import links
from iris.metrics.declared import LOG_FAILURES
from iris.model import store_paths
from iris.model.host.store_limits import FULL_LINE, LogAllowance
from iris.model.units import MIB
from iris.storage.log_format import LineSplitter, Stream, decode, encode
from iris.storage.object_store import Store

logger = logging.getLogger(__name__)

#: A chunk of a log is stored as soon as it has this many bytes.
CHUNK = 64 * 1024
#: A chunk that has fewer bytes than `CHUNK` is stored when this time has passed since the previous
#: chunk. So the first output after a pause is stored at once.
FLUSH_EVERY = timedelta(seconds=1)
#: The largest stored chunk that is read again, in bytes. A job may be able to write to the store,
#: so a chunk may be larger than the chunk that Iris stored.
MOST_CHUNK = 64 * 1024 * 1024
#: The maximum number of bytes that are read from a file at once. The limit keeps the memory small,
#: and the time for which the event loop is blocked.
READ = 256 * 1024
#: The maximum number of unread bytes of one file while the store is unreachable. Above this limit,
#: the oldest bytes are dropped until half of the limit is left.
MAX_BACKLOG = 1024 * MIB
#: When output is stored, its disk space is freed in pieces of this size, in bytes.
RELEASE = 8 * MIB
#: The maximum number of lines from the end of the output that the outcome contains.
LAST_LINES = 10
#: The maximum number of bytes from the end of the output that the outcome contains.
LAST_BYTES = 1_000
_GAP = re.compile(rb"\[iris\] gap: (\d+) bytes of std(out|err) are missing here")


class _Position(BaseModel):
    """The place in the log from which another agent starts to search for the last stored chunk."""

    #: The number of stored chunks.
    stored: int = 0
    #: The number of bytes of each file that are in the stored chunks.
    offsets: dict[Stream, int] = Field(default_factory=dict)
    #: The total size of the stored chunks, in bytes.
    size: int = 0
    #: True if the log has reached its size limit.
    full: bool = False


class _Tail:
    """Reads the new part of one growing file."""

    def __init__(self, path: Path, stream: Stream) -> None:
        self._path = path
        self.stream = stream
        self.offset = 0
        self._released = 0
        self._seen = False
        self.lines = LineSplitter()

    def read(self) -> bytes:
        try:
            data = links.read_from(self._path, self.offset, READ)
        except FileNotFoundError:
            if self._seen:  # the file was deleted, so the rest of the log is lost
                raise
            return b""
        self._seen = True
        self.offset += len(data)
        return data

    def unread(self) -> int:
        """Returns the number of bytes that were not read yet."""
        return self._path.lstat().st_size - self.offset if os.path.lexists(self._path) else 0

    def drop(self, most: int) -> int:
        """Skips the oldest unread bytes if more than `most` bytes are unread. Returns the number of
        skipped bytes.
        """
        waits = self.unread()
        if waits <= most:
            return 0
        dropped = waits - most // 2
        self.offset += dropped
        return dropped

    def release(self, stored: int) -> None:
        """Frees the disk space of the file up to this offset, if the system supports that."""
        upto = stored // RELEASE * RELEASE
        if upto <= self._released or sys.platform != "linux":
            return
        self._released = upto
        with (
            contextlib.suppress(OSError),
            os.fdopen(links.open_file(self._path, os.O_RDWR), "r+b") as file,
        ):
            # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, linux/falloc.h
            ctypes.CDLL(None).fallocate64(file.fileno(), 3, ctypes.c_int64(0), ctypes.c_int64(upto))


class LogShipper:
    """Stores the content of several growing files as one log.

    If the store fails, the next `ship` tries again. `ship` raises an OSError only if the files
    cannot be read.

    Args:
        prefix: the folder of the chunks in the store.
        files: the file of each stream, which need not exist yet.
        state: the file for the record of the stored position; None if no other shipper ever
            continues this log.
        taken_over: True if another agent began to ship this log.
        limit: the most bytes of the log in the store.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        files: Mapping[Stream, Path],
        state: Path | None = None,
        *,
        taken_over: bool = False,
        max_backlog: int = MAX_BACKLOG,
        limit: int = sys.maxsize,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._files = dict(files)
        self._tails = {stream: _Tail(path, stream) for stream, path in files.items()}
        self._state = state
        self._max_backlog = max_backlog
        self._lost_place = taken_over
        self._allowance = LogAllowance(limit)
        #: The number of stored chunks.
        self.stored = 0
        self._buffer = bytearray()
        #: The next chunk to store. It does not change after the first try to store it.
        self._chunk = b""
        #: For each file, the offset up to which the file's bytes are in `_chunk` or in earlier
        #: chunks.
        self._chunk_upto: dict[Stream, int] = {}
        self._stored_at = float("-inf")
        #: The time of the latest log record, in milliseconds since 1970.
        self._at_ms = 0
        self._last: list[bytes] = []
        #: True if the last call of `ship` left output unread, so that the next call should follow
        #: at once; False while the store is unreachable.
        self.behind = False
        #: True if the host itself has written a line into the log (with `say`) since the files were
        #: last read.
        self.said = False

    def say(self, text: str) -> None:
        """Writes a line of the host itself into the log, unless the disk is full."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with (
            contextlib.suppress(OSError),
            os.fdopen(links.open_file(self._files[Stream.BUILD], flags), "ab") as file,
        ):
            file.write(f"[iris] {text}\n".encode())
        self.said = True

    async def ship(self, *, ended: bool = False) -> bool:
        """Reads some output and stores the chunk that is due. Returns True if everything is stored.

        Args:
            ended: True if nothing more is written, so that everything is due.
        """
        if self._lost_place and not await self._find_place():
            return False
        more = self._read()
        due = time.monotonic() - self._stored_at >= FLUSH_EVERY.total_seconds()
        if not more and (ended or due):
            for tail in self._tails.values():
                self._add(tail.stream, tail.lines.flush(ended=ended), cut=ended)
        if not self._chunk and self._buffer and (ended or due or len(self._buffer) >= CHUNK):
            self._chunk = self._admitted(bytes(self._buffer))
            self._chunk_upto = {
                stream: tail.offset - tail.lines.kept for stream, tail in self._tails.items()
            }
            self._buffer.clear()
        if self._chunk and not await self._put():
            return False
        self.behind = more
        return not more and not self._buffer

    @property
    def last_lines(self) -> str:
        """The end of the output, for the outcome."""
        return b"\n".join(self._last).decode(errors="replace")[-LAST_BYTES:]

    @property
    def backlog(self) -> int:
        """The bytes of output that are not in the store yet. Without I/O on the store."""
        return len(self._chunk) + len(self._buffer) + sum(map(_Tail.unread, self._tails.values()))

    # -- inside ------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Reads some output into the buffer; returns True if there is more."""
        more = self.said = False
        for tail in self._tails.values():
            # Output is skipped only after the line that ends the log is stored, because a successor
            # continues from there.
            if self._allowance.full and not self._chunk:
                self._skip(tail)
            elif len(self._buffer) >= READ:
                more = True
                self._drop(tail)
                continue
            data = tail.read()
            more = more or len(data) == READ
            self._add(tail.stream, tail.lines.feed(data))
        return more

    def _skip(self, tail: _Tail) -> None:
        """Skips output that is not stored any more, except for its last part, and frees its disk
        space.
        """
        if tail.drop(2 * READ):
            self._add(tail.stream, tail.lines.flush(ended=False))
        tail.release(tail.offset)

    def _admitted(self, chunk: bytes) -> bytes:
        """Returns the chunk, or if it does not fit, its first lines and the line that ends the
        log.
        """
        if self._allowance.full:
            return chunk
        found = self._allowance.fits(chunk)
        if self._allowance.full:
            found += encode(self._now(), Stream.BUILD, [(self._allowance.full_line, False)])
        return found

    def _drop(self, tail: _Tail) -> None:
        if tail.stream is Stream.BUILD or not (dropped := tail.drop(self._max_backlog)):
            return
        # The last line before the gap has no newline, because its end was not read.
        self._add(tail.stream, tail.lines.flush(ended=False))
        name = {Stream.STDOUT: "stdout", Stream.STDERR: "stderr"}[tail.stream]
        text = (
            f"[iris] gap: {dropped} bytes of {name} are missing here, because the log store was"
            " unreachable for too long"
        )
        self._add(Stream.BUILD, [(text.encode(), False)])

    async def _put(self) -> bool:
        try:
            # A retry stores exactly the same bytes: the failed try may have stored them, and a
            # client may have read them.
            await self._store.put(store_paths.log_chunk(self._prefix, self.stored), self._chunk)
        except (OSError, BaseError) as error:
            logger.warning("logs of %s could not be stored, trying again: %s", self._prefix, error)
            LOG_FAILURES.add()
            self.behind = False
            return False
        self.stored += 1
        self._allowance.stored += len(self._chunk)
        self._stored_at = time.monotonic()
        self._chunk = b""
        for stream, tail in self._tails.items():
            tail.release(self._chunk_upto[stream])
        if self._state is not None:
            allowance = self._allowance
            position = _Position(
                stored=self.stored,
                offsets=self._chunk_upto,
                size=allowance.stored,
                full=allowance.full,
            )
            with contextlib.suppress(OSError):  # the store shows the position too
                links.write(self._state, position.model_dump_json())
        return True

    async def _find_place(self) -> bool:
        """Finds the position behind the last stored chunk; returns False if the store does not
        answer now.
        """
        known = _Position()
        if self._state is not None:
            with contextlib.suppress(OSError, ValidationError):
                known = _Position.model_validate_json(links.read(self._state))
        try:
            # Starts at the last chunk that is known, to restore the last lines of output.
            sequence = max(0, known.stored - 1)
            while (
                chunk := await self._store.get(
                    store_paths.log_chunk(self._prefix, sequence), MOST_CHUNK
                )
            ) is not None:
                sequence += 1
                lines = list(decode(chunk))
                self._remember([line.data for line in lines])
                self._at_ms = max([self._at_ms, *(line.at_ms for line in lines[-1:])])
                if sequence > known.stored:
                    _go_on(known.offsets, chunk)
                    known.size += len(chunk)
                    known.full = known.full or _ends_log(chunk)
        except (OSError, BaseError) as error:
            logger.warning("logs of %s wait for the store: %s", self._prefix, error)
            return False
        self.stored = max(sequence, known.stored)
        self._allowance.stored, self._allowance.full = known.size, known.full
        for stream, tail in self._tails.items():
            tail.offset = known.offsets.get(stream, 0)
        self._lost_place = False
        return True

    def _add(self, stream: Stream, pieces: list[tuple[bytes, bool]], *, cut: bool = False) -> None:
        if not pieces:
            return
        self._remember([data for data, _ in pieces[-LAST_LINES:]])
        if self._allowance.full:
            pieces = self._allowance.beyond(pieces) if stream is Stream.BUILD else []
        self._buffer += encode(self._now(), stream, pieces, cut=cut)

    def _now(self) -> int:
        """Returns the time for the next record, in milliseconds. The time never goes back, because
        the lines of a log are in the order of their times.
        """
        self._at_ms = max(self._at_ms, time.time_ns() // 1_000_000)
        return self._at_ms

    def _remember(self, lines: list[bytes]) -> None:
        self._last = [*self._last, *(data[-LAST_BYTES:] for data in lines[-LAST_LINES:])][
            -LAST_LINES:
        ]


def _go_on(offsets: dict[Stream, int], chunk: bytes) -> None:
    """Advances the offset of each file by the bytes of the file in the chunk: lines with their
    newlines, and gaps.
    """
    for line in decode(chunk):
        if line.stream is Stream.BUILD and (gap := _GAP.match(line.data)):
            missing = Stream.STDOUT if gap[2] == b"out" else Stream.STDERR
            offsets[missing] = offsets.get(missing, 0) + int(gap[1])
        else:
            offsets[line.stream] = offsets.get(line.stream, 0) + len(line.written)


def _ends_log(chunk: bytes) -> bool:
    return any(
        line.stream is Stream.BUILD and line.data.startswith(FULL_LINE) for line in decode(chunk)
    )
