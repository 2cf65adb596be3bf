"""Log shipping: from the files a program writes to chunk objects, while it runs.

The program's own files are the buffer: while the store is away no more is read than one chunk, so that costs neither lines nor
memory, until they have grown so large that the disk is in danger; then the oldest goes, and a line in the log says how much.

What has been stored tells by itself how far it reaches into the files. So an agent that takes over, whenever its predecessor
died, goes on behind exactly the last byte that is in the store.
"""

import contextlib
import ctypes
import logging
import re
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from obstore.exceptions import BaseError
from pydantic import BaseModel, Field, ValidationError

from iris import names
from iris.files import write_whole
from iris.logs import LineSplitter, Stream, decode, encode
from iris.store import Store
from iris.units import MIB

logger = logging.getLogger(__name__)

#: A chunk is stored as soon as it has this much, …
CHUNK = 64 * 1024
#: … or this long after the chunk before it: what comes after a pause is there at once.
FLUSH_EVERY = timedelta(seconds=1)
#: Read at once from a file: bounds both memory and how long the event loop is held.
READ = 256 * 1024
#: The most of one file that waits for a store that is away; beyond that the older half is given up.
MAX_BACKLOG = 1024 * MIB
#: What has been stored gives its disk back in pieces of this size.
RELEASE = 8 * MIB
LAST_LINES = 10
LAST_BYTES = 1_000
_GAP = re.compile(rb"\[iris\] gap: (\d+) bytes of std(out|err) are missing here")


class _Position(BaseModel):
    """How far the store has it, as of some time: where a successor begins to look."""

    stored: int = 0
    offsets: dict[Stream, int] = Field(default_factory=dict)


class _Tail:
    """The unread part of one growing file."""

    def __init__(self, path: Path, stream: Stream) -> None:
        self._path = path
        self.stream = stream
        self.offset = 0
        self._released = 0
        self._seen = False
        self.lines = LineSplitter()

    def read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(READ)
        except FileNotFoundError:
            if self._seen:  # whoever deletes it takes the log away from us
                raise
            return b""
        self._seen = True
        self.offset += len(data)
        return data

    def drop(self, most: int) -> int:
        """Leave out what is too much, and all of a line that was begun; how many bytes."""
        waits = self._path.stat().st_size - self.offset if self._path.exists() else 0
        if waits <= most:
            return 0
        dropped = waits - most // 2
        self.offset += dropped
        return dropped

    def release(self, stored: int) -> None:
        """Give the disk back that the file has taken up to there; where the system cannot, the file keeps it until its end."""
        upto = stored // RELEASE * RELEASE
        if upto <= self._released or sys.platform != "linux":
            return
        self._released = upto
        with contextlib.suppress(OSError), self._path.open("r+b") as file:
            # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, linux/falloc.h
            ctypes.CDLL(None).fallocate64(file.fileno(), 3, ctypes.c_int64(0), ctypes.c_int64(upto))


class LogShipper:
    """Ships some files as one log.

    A store that refuses is tried again at the next `ship`, which raises an OSError only when the files cannot be read.

    Args:
        prefix: where in the store the chunks go.
        files: one for each stream; they need not exist yet.
        state: where it puts down how far it is; None: nobody will ever go on in its place.
        taken_over: another agent has begun.
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
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._files = dict(files)
        self._tails = {stream: _Tail(path, stream) for stream, path in files.items()}
        self._state = state
        self._max_backlog = max_backlog
        self._lost_place = taken_over
        #: How many chunks have been stored.
        self.stored = 0
        self._buffer = bytearray()
        #: What is to be stored next, fixed since the first try, and how far the files are read with it.
        self._chunk = b""
        self._chunk_upto: dict[Stream, int] = {}
        self._stored_at = float("-inf")
        self._last: list[bytes] = []
        #: There is more to read right now; when the store is away, there is no hurry.
        self.behind = False

    def say(self, text: str) -> None:
        """A line of the host's own about what is logged here."""
        with contextlib.suppress(OSError), self._files[Stream.BUILD].open("ab") as file:  # a full disk
            file.write(f"[iris] {text}\n".encode())

    async def ship(self, *, ended: bool = False) -> bool:
        """Read some of what there is and store what is due. True: everything is stored.

        Args:
            ended: nothing more is written, so everything is due.
        """
        if self._lost_place and not await self._find_place():
            return False
        more = self._read()
        due = time.monotonic() - self._stored_at >= FLUSH_EVERY.total_seconds()
        if not more and (ended or due):
            for tail in self._tails.values():
                self._add(tail.stream, tail.lines.flush(ended=ended))
        if not self._chunk and self._buffer and (ended or due or len(self._buffer) >= CHUNK):
            self._chunk = bytes(self._buffer)
            self._chunk_upto = {stream: tail.offset - tail.lines.kept for stream, tail in self._tails.items()}
            self._buffer.clear()
        if self._chunk and not await self._put():
            return False
        self.behind = more
        return not more and not self._buffer

    @property
    def last_lines(self) -> str:
        """The end of the output, for the outcome."""
        return b"\n".join(self._last).decode(errors="replace")[-LAST_BYTES:]

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Some of what there is; whether there is more."""
        more = False
        for tail in self._tails.values():
            if len(self._buffer) >= READ:
                more = True
                self._drop(tail)
                continue
            data = tail.read()
            more = more or len(data) == READ
            self._add(tail.stream, tail.lines.feed(data))
        return more

    def _drop(self, tail: _Tail) -> None:
        if tail.stream is Stream.BUILD or not (dropped := tail.drop(self._max_backlog)):
            return
        self._add(tail.stream, tail.lines.flush(ended=False))  # the line goes on behind the gap: no end of it was read
        name = {Stream.STDOUT: "stdout", Stream.STDERR: "stderr"}[tail.stream]
        text = f"[iris] gap: {dropped} bytes of {name} are missing here, for which the log store was away for too long"
        self._add(Stream.BUILD, [(text.encode(), False)])

    async def _put(self) -> bool:
        try:
            # Again exactly these bytes after a failure: it may have been stored all the same, and been read.
            await self._store.put(names.log_chunk(self._prefix, self.stored), self._chunk)
        except (OSError, BaseError) as error:
            logger.warning("logs of %s could not be stored, trying again: %s", self._prefix, error)
            self.behind = False
            return False
        self.stored += 1
        self._stored_at = time.monotonic()
        self._chunk = b""
        for stream, tail in self._tails.items():
            tail.release(self._chunk_upto[stream])
        if self._state is not None:
            position = _Position(stored=self.stored, offsets=self._chunk_upto)
            with contextlib.suppress(OSError):  # the store knows it, too
                write_whole(self._state, position.model_dump_json())
        return True

    async def _find_place(self) -> bool:
        """Go on where the store ends; False: it does not say now."""
        known = _Position()
        if self._state is not None:
            with contextlib.suppress(OSError, ValidationError):
                known = _Position.model_validate_json(self._state.read_bytes())
        try:
            # From the last one that is known, for its last lines.
            sequence = max(0, known.stored - 1)
            while (chunk := await self._store.get(names.log_chunk(self._prefix, sequence))) is not None:
                sequence += 1
                self._remember([line.data for line in decode(chunk)])
                if sequence > known.stored:
                    _go_on(known.offsets, chunk)
        except (OSError, BaseError) as error:
            logger.warning("logs of %s wait for the store: %s", self._prefix, error)
            return False
        self.stored = max(sequence, known.stored)
        for stream, tail in self._tails.items():
            tail.offset = known.offsets.get(stream, 0)
        self._lost_place = False
        return True

    def _add(self, stream: Stream, pieces: list[tuple[bytes, bool]]) -> None:
        if not pieces:
            return
        self._buffer += encode(time.time_ns() // 1_000_000, stream, pieces)
        self._remember([data for data, _ in pieces[-LAST_LINES:]])

    def _remember(self, lines: list[bytes]) -> None:
        self._last = [*self._last, *(data[-LAST_BYTES:] for data in lines[-LAST_LINES:])][-LAST_LINES:]


def _go_on(offsets: dict[Stream, int], chunk: bytes) -> None:
    """Move the offsets behind what the chunk has of each file: its lines with their ends, and what it says is missing."""
    for line in decode(chunk):
        if line.stream is Stream.BUILD and (gap := _GAP.match(line.data)):
            missing = Stream.STDOUT if gap[2] == b"out" else Stream.STDERR
            offsets[missing] = offsets.get(missing, 0) + int(gap[1])
        else:
            offsets[line.stream] = offsets.get(line.stream, 0) + len(line.data) + (not line.goes_on)
