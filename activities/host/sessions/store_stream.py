"""Exchanges data between two sides through the object store: each side writes numbered chunks and
polls for the next chunk of the other side.

Neither side needs a connection to the other, and no data goes into a workflow history. Each side
acknowledges the chunks that it has processed. So if one side is slow or does not read, the other
side waits and does not fill the store.
"""

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Literal

from iris.messages.exec import Frame, FrameKind, chunk_path, chunks_prefix, decode, encode
from iris.model.units import KIB, MIB
from iris.retrying import retry
from iris.storage.object_store import STORE_ERRORS, Store

Direction = Literal["in", "out"]

#: The shortest delay between two polls for the next chunk. The delay is the time since the last
#: data divided by `POLLS_PER_WAIT`, but not shorter than this.
POLL_INTERVAL_MIN = timedelta(milliseconds=10)
#: The longest delay between two polls for the next chunk.
POLL_INTERVAL_MAX = timedelta(milliseconds=500)
POLLS_PER_WAIT = 50
#: The maximum number of bytes that may wait to be written to the store. Above this limit, the
#: sender must wait.
MOST_WAITING = 512 * KIB
#: The size limit of a chunk that is read, in bytes. Neither side writes larger chunks.
MOST_CHUNK = 16 * MIB
#: The maximum number of chunks that a side may have sent without an acknowledgement.
WINDOW = 32
#: A side sends an acknowledgement after it has read this many chunks.
ACKNOWLEDGE_EVERY = 8
#: How long the store may be unreachable before the exchange fails.
STORE_TIMEOUT = timedelta(seconds=60)
RETRY_EVERY = timedelta(seconds=1)


class StoreStream:
    """One side of an exchange of data through the object store. `write` must run at the same time
    as the code that uses this object.

    Args:
        folder: the folder in the store for the chunks of both directions.
        writes: the direction in which this side writes. It reads the other direction.
        alive_every: the time without data after which an empty chunk is written; None to write no
            empty chunks.
    """

    def __init__(
        self, store: Store, folder: str, writes: Direction, alive_every: timedelta | None = None
    ) -> None:
        self._store = store
        self._folder = folder
        self._writes = writes
        self._reads: Direction = "in" if writes == "out" else "out"
        self._alive_every = alive_every.total_seconds() if alive_every is not None else None
        self._waiting: list[Frame] = []
        self._size = 0
        self._sent = self._acknowledged_by_other = self._received = self._acknowledged = 0
        self._finished = self._discards = False
        self._queued, self._may_send, self._hurry = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
        )
        self._may_send.set()
        #: The number of all chunks that the other side sends; None while it is not known.
        self._last: int | None = None
        self._active_at = time.monotonic()
        self._deleted = 0
        self._deleting: set[asyncio.Task[None]] = set()
        #: The time at which the last chunk was read, on this machine's monotonic clock.
        self.received_at = time.monotonic()

    def send(self, frame: Frame) -> None:
        """Queues a small frame, which is written soon."""
        if not self._discards:
            self._waiting.append(frame)
            self._size += len(frame.data)
            self._update_may_send()
            self._queued.set()

    async def send_in_turn(self, frame: Frame) -> None:
        """Queues a frame after the other side has acknowledged enough of the earlier ones."""
        await self._may_send.wait()
        self._active_at = time.monotonic()
        self.send(frame)

    async def write(self) -> None:
        """Writes queued frames to the store, until `finish` is called and all frames are written.

        Raises:
            OSError, obstore.exceptions.BaseError: the store was unreachable for too long.
        """
        while not (self._finished and not self._waiting):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._alive_every):
                    await self._queued.wait()
            if self._finished and not self._waiting:
                return
            self._queued.clear()
            frames, self._waiting, self._size = self._waiting, [], 0
            self._update_may_send()
            await self._put(encode(frames))
            self._sent += 1
            self._update_may_send()

    def finish(self) -> None:
        """Declares that no more frames follow: `write` returns after the queued ones."""
        self._finished = True
        self._queued.set()

    def give_up(self) -> None:
        """Drops all frames from now on, because the other side does not read any more. Senders no
        longer wait.
        """
        self._discards = True
        self._may_send.set()

    @property
    def sent(self) -> int:
        """The number of chunks that this side has written."""
        return self._sent

    async def receive(self) -> list[Frame] | None:
        """Returns the next frames of the other side, or None after its last chunk.

        The caller acknowledges the chunk with `acknowledge` after it has processed it.

        Raises:
            OSError, obstore.exceptions.BaseError: the store was unreachable for too long, or has
                lost a chunk.
            ValueError: the chunk is malformed.
        """
        missing_since = time.monotonic()
        while self._last is None or self._received < self._last:
            chunk = await self._get()
            if chunk is not None:
                return self._take(chunk)
            now = time.monotonic()
            if self._last is not None and now - missing_since > STORE_TIMEOUT.total_seconds():
                raise OSError(
                    f"{chunk_path(self._folder, self._reads, self._received)} is not in the store"
                )
            pause = self._poll_interval(now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()
                    self._hurry.clear()
        return None

    @property
    def received(self) -> int:
        """The number of chunks that this side has read."""
        return self._received

    def acknowledge(self, chunks: int) -> None:
        """Acknowledges the first `chunks` chunks, so that the other side may write more."""
        if chunks - self._acknowledged >= ACKNOWLEDGE_EVERY and not self._finished:
            self._acknowledged = chunks
            self.send(Frame(FrameKind.ACKNOWLEDGED, b"%d" % chunks))

    def expect(self, chunks: int) -> None:
        """Sets the total number of chunks of the other side, which writes no more."""
        self._last = chunks
        self._hurry.set()

    async def remove(self) -> None:
        """Removes all chunks of both sides, if the store can be reached."""
        await asyncio.gather(*self._deleting)
        with contextlib.suppress(*STORE_ERRORS):
            paths = [
                path
                for side in ("in", "out")
                for path in await self._store.objects(chunks_prefix(self._folder, side))
            ]
            await self._store.delete(paths)

    # -- inside ------------------------------------------------------------------------------------

    def _take(self, chunk: bytes) -> list[Frame]:
        self._received += 1
        self.received_at = time.monotonic()
        frames = decode(chunk)
        if any(frame.kind is not FrameKind.ACKNOWLEDGED for frame in frames):
            self._active_at = self.received_at
        for frame in frames:
            if frame.kind is FrameKind.ACKNOWLEDGED:
                self._acknowledged_by_other = min(
                    self._sent, max(self._acknowledged_by_other, int(frame.data))
                )
                self._update_may_send()
        if self._deleted < self._acknowledged_by_other:
            deleting = asyncio.create_task(self._delete_acknowledged())
            self._deleting.add(deleting)
            deleting.add_done_callback(self._deleting.discard)
        return [frame for frame in frames if frame.kind is not FrameKind.ACKNOWLEDGED]

    def _update_may_send(self) -> None:
        if self._discards or (
            self._size < MOST_WAITING and self._sent - self._acknowledged_by_other < WINDOW
        ):
            self._may_send.set()
        else:
            self._may_send.clear()

    def _poll_interval(self, now: float) -> float:
        if self._last is not None:
            return POLL_INTERVAL_MIN.total_seconds()
        share = (now - self._active_at) / POLLS_PER_WAIT
        return min(POLL_INTERVAL_MAX.total_seconds(), max(POLL_INTERVAL_MIN.total_seconds(), share))

    async def _delete_acknowledged(self) -> None:
        """Deletes this side's chunks that the other side has processed, so that a long session does
        not fill the store.
        """
        chunks = range(self._deleted, self._acknowledged_by_other)
        self._deleted = chunks.stop
        with contextlib.suppress(*STORE_ERRORS):  # `remove` deletes what is left at the end
            await self._store.delete(
                [chunk_path(self._folder, self._writes, chunk) for chunk in chunks]
            )

    @retry(STORE_ERRORS, every=RETRY_EVERY, timeout=STORE_TIMEOUT)
    async def _put(self, chunk: bytes) -> None:
        await self._store.put(chunk_path(self._folder, self._writes, self._sent), chunk)

    @retry(STORE_ERRORS, every=RETRY_EVERY, timeout=STORE_TIMEOUT)
    async def _get(self) -> bytes | None:
        return await self._store.get(
            chunk_path(self._folder, self._reads, self._received), MOST_CHUNK
        )
