"""Exchanges data between two sides through the object store: each writes numbered chunks and polls for the other's next chunk.

Neither side needs a connection to the other, and no data goes into a workflow history. Each side acknowledges what it has
processed. So if one side is slow or does not read, the other one waits and does not fill the store.
"""

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Literal

from iris.messages.exec import Frame, FrameKind, chunk_path, chunks_prefix, decode, encode
from iris.model.units import KIB
from iris.retrying import retry
from iris.storage.object_store import STORE_ERRORS, Store

Direction = Literal["in", "out"]

#: Delay between two polls for the next chunk: while data is exchanged, and the longest one when there is none.
POLL_INTERVAL_MIN = timedelta(milliseconds=50)
POLL_INTERVAL_MAX = timedelta(milliseconds=500)
#: How long after the last data the polls stay fast.
QUIET_AFTER = timedelta(seconds=5)
#: How many bytes can wait to be written before the sender must wait.
MOST_WAITING = 512 * KIB
#: How many chunks may be unacknowledged, and after how many chunks the other side acknowledges them.
WINDOW, TELL_EVERY = 32, 8
#: How long the store may be unreachable.
STORE_TIMEOUT = timedelta(seconds=60)
RETRY_EVERY = timedelta(seconds=1)


class StoreStream:
    """One side of the exchange. `speak` must run concurrently with the code that uses this object.

    Args:
        says: the direction in which this side writes; it reads the other one.
        alive_every: after this long without data, an empty chunk is written; None: never.
    """

    def __init__(self, store: Store, session: str, says: Direction, alive_every: timedelta | None = None) -> None:
        self._store = store
        self._session = session
        self._says = says
        self._hears: Direction = "in" if says == "out" else "out"
        self._alive_every = alive_every.total_seconds() if alive_every is not None else None
        self._waiting: list[Frame] = []
        self._size = 0
        self._said = self._other_heard = self._heard = self._told = 0
        self._finished = self._deaf = False
        self._news, self._room, self._hurry = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._room.set()
        #: How many chunks the other side has written in total, once that is known.
        self._last: int | None = None
        self._lively_until = time.monotonic() + QUIET_AFTER.total_seconds()
        #: When the last chunk was read, on this machine's monotonic clock.
        self.heard_at = time.monotonic()

    def say(self, frame: Frame) -> None:
        """Queues a small frame, which is written soon."""
        if not self._deaf:
            self._waiting.append(frame)
            self._size += len(frame.data)
            self._look_for_room()
            self._news.set()

    async def say_in_turn(self, frame: Frame) -> None:
        """Queues a frame after the other side has acknowledged enough of the earlier ones."""
        await self._room.wait()
        self._lively()
        self.say(frame)

    async def speak(self) -> None:
        """Writes queued frames to the store, until `finish` is called and all frames are written.

        Raises:
            OSError, obstore.exceptions.BaseError: the store was unreachable for too long.
        """
        while not (self._finished and not self._waiting):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._alive_every):
                    await self._news.wait()
            if self._finished and not self._waiting:
                return
            self._news.clear()
            frames, self._waiting, self._size = self._waiting, [], 0
            self._look_for_room()
            await self._put(encode(frames))
            self._said += 1
            self._look_for_room()

    def finish(self) -> None:
        """Declares that no more frames follow: `speak` returns after the queued ones."""
        self._finished = True
        self._news.set()

    def give_up(self) -> None:
        """Drops all frames from now on, because the other side does not read any more. Senders no longer wait."""
        self._deaf = True
        self._room.set()

    @property
    def said(self) -> int:
        """The number of chunks that this side has written."""
        return self._said

    async def hear(self) -> list[Frame] | None:
        """Returns the next frames of the other side, or None after its last chunk.

        The caller acknowledges the chunk with `took` after it has processed it.

        Raises:
            OSError, obstore.exceptions.BaseError: the store was unreachable for too long, or has lost a chunk.
            ValueError: the chunk is malformed.
        """
        pause, missing_since = POLL_INTERVAL_MIN, time.monotonic()
        while self._last is None or self._heard < self._last:
            chunk = await self._get()
            if chunk is not None:
                return self._take(chunk)
            now = time.monotonic()
            if self._last is not None and now - missing_since > STORE_TIMEOUT.total_seconds():
                raise OSError(f"{chunk_path(self._session, self._hears, self._heard)} is not in the store")
            pause = (
                POLL_INTERVAL_MIN if now < self._lively_until or self._last is not None else min(pause * 1.5, POLL_INTERVAL_MAX)
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause.total_seconds()):
                    await self._hurry.wait()
                    self._hurry.clear()
        return None

    @property
    def heard(self) -> int:
        """The number of chunks that this side has read."""
        return self._heard

    def took(self, chunks: int) -> None:
        """Acknowledges that the first `chunks` chunks are processed; the other side may then write as many more."""
        if chunks - self._told >= TELL_EVERY and not self._finished:
            self._told = chunks
            self.say(Frame(FrameKind.HEARD, b"%d" % chunks))

    def expect(self, chunks: int) -> None:
        """Sets the total number of chunks of the other side, which writes no more."""
        self._last = chunks
        self._hurry.set()

    async def remove(self) -> None:
        """Removes all chunks of both sides, if the store can be reached."""
        with contextlib.suppress(*STORE_ERRORS):
            paths = [path for side in ("in", "out") for path in await self._store.objects(chunks_prefix(self._session, side))]
            await self._store.delete(paths)

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _take(self, chunk: bytes) -> list[Frame]:
        self._heard += 1
        self.heard_at = time.monotonic()
        frames = decode(chunk)
        if any(frame.kind is not FrameKind.HEARD for frame in frames):
            self._lively()
        for frame in frames:
            if frame.kind is FrameKind.HEARD:
                self._other_heard = max(self._other_heard, int(frame.data))
                self._look_for_room()
        return [frame for frame in frames if frame.kind is not FrameKind.HEARD]

    def _look_for_room(self) -> None:
        if self._deaf or (self._size < MOST_WAITING and self._said - self._other_heard < WINDOW):
            self._room.set()
        else:
            self._room.clear()

    def _lively(self) -> None:
        self._lively_until = time.monotonic() + QUIET_AFTER.total_seconds()

    @retry(STORE_ERRORS, every=RETRY_EVERY, timeout=STORE_TIMEOUT)
    async def _put(self, chunk: bytes) -> None:
        await self._store.put(chunk_path(self._session, self._says, self._said), chunk)

    @retry(STORE_ERRORS, every=RETRY_EVERY, timeout=STORE_TIMEOUT)
    async def _get(self) -> bytes | None:
        return await self._store.get(chunk_path(self._session, self._hears, self._heard))
