"""Two sides that talk through the object store: each writes numbered chunks, and looks for the next one of the other's.

Neither has to reach the other, and nothing that is said goes into a history. Each side tells what it has dealt with, so that one
that is slow, or deaf, holds the other up and does not fill the store.
"""

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Literal

from iris.execs import Frame, Kind, chunk_path, chunks_prefix, decode, encode
from iris.store import STORE_ERRORS, Store
from iris.units import KIB

Direction = Literal["in", "out"]

#: Between two looks for the next chunk while something is said, and at most when all is quiet.
LOOK_EVERY = timedelta(milliseconds=50)
MOST_LOOK_EVERY = timedelta(milliseconds=500)
#: For so long after something was said the looks stay quick.
QUIET_AFTER = timedelta(seconds=5)
#: So much waits to be said, in bytes, before whoever says it has to wait.
MOST_WAITING = 512 * KIB
#: So many chunks may not have been dealt with by the other side; it says how far it is after each so many.
WINDOW, TELL_EVERY = 32, 8
#: How long a store may stay away.
PATIENCE = timedelta(seconds=60)
RETRY_EVERY = timedelta(seconds=1)


class Talk:
    """One side. `speak` has to run beside whoever uses it.

    Args:
        says: the direction of what this side says; it hears the other one.
        alive_every: after so long a silence an empty chunk is said; None: silence says nothing.
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
        #: How many chunks the other side has said in all, once that is known.
        self._last: int | None = None
        self._lively_until = time.monotonic() + QUIET_AFTER.total_seconds()
        #: When the last chunk was heard, on this machine's monotonic clock.
        self.heard_at = time.monotonic()

    def say(self, frame: Frame) -> None:
        """Say something small, soon."""
        if not self._deaf:
            self._waiting.append(frame)
            self._size += len(frame.data)
            self._look_for_room()
            self._news.set()

    async def say_in_turn(self, frame: Frame) -> None:
        """Say something once the other side has heard enough of what was said before."""
        await self._room.wait()
        self._lively()
        self.say(frame)

    async def speak(self) -> None:
        """Bring to the store what is said, until all is said.

        Raises:
            OSError, obstore.exceptions.BaseError: the store has stayed away.
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
        """Nothing more will be said: `speak` ends."""
        self._finished = True
        self._news.set()

    def give_up(self) -> None:
        """Nobody listens any more: what is said from now on is dropped, and nobody has to wait for room."""
        self._deaf = True
        self._room.set()

    @property
    def said(self) -> int:
        """How many chunks have been said."""
        return self._said

    async def hear(self) -> list[Frame] | None:
        """What the other side says next; None: it has said all. Whoever has dealt with it tells so by `took`.

        Raises:
            OSError, obstore.exceptions.BaseError: the store has stayed away, or has lost something.
            ValueError: that was nothing that one side says to the other.
        """
        pause, missing_since = LOOK_EVERY, time.monotonic()
        while self._last is None or self._heard < self._last:
            chunk = await self._get()
            if chunk is not None:
                return self._take(chunk)
            now = time.monotonic()
            if self._last is not None and now - missing_since > PATIENCE.total_seconds():
                raise OSError(f"{chunk_path(self._session, self._hears, self._heard)} is not in the store")
            pause = LOOK_EVERY if now < self._lively_until or self._last is not None else min(pause * 1.5, MOST_LOOK_EVERY)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause.total_seconds()):
                    await self._hurry.wait()
                    self._hurry.clear()
        return None

    @property
    def heard(self) -> int:
        """How many chunks have been heard."""
        return self._heard

    def took(self, chunks: int) -> None:
        """So many of those that were heard have been dealt with; the other side may say as many more."""
        if chunks - self._told >= TELL_EVERY and not self._finished:
            self._told = chunks
            self.say(Frame(Kind.HEARD, b"%d" % chunks))

    def expect(self, chunks: int) -> None:
        """The other side has said so many chunks, and will say no more."""
        self._last = chunks
        self._hurry.set()

    async def remove(self) -> None:
        """Remove all that both sides have said, as far as the store can be reached."""
        with contextlib.suppress(*STORE_ERRORS):
            paths = [path for side in ("in", "out") for path in await self._store.objects(chunks_prefix(self._session, side))]
            await self._store.delete(paths)

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _take(self, chunk: bytes) -> list[Frame]:
        self._heard += 1
        self.heard_at = time.monotonic()
        frames = decode(chunk)
        if any(frame.kind is not Kind.HEARD for frame in frames):
            self._lively()
        for frame in frames:
            if frame.kind is Kind.HEARD:
                self._other_heard = max(self._other_heard, int(frame.data))
                self._look_for_room()
        return [frame for frame in frames if frame.kind is not Kind.HEARD]

    def _look_for_room(self) -> None:
        if self._deaf or (self._size < MOST_WAITING and self._said - self._other_heard < WINDOW):
            self._room.set()
        else:
            self._room.clear()

    def _lively(self) -> None:
        self._lively_until = time.monotonic() + QUIET_AFTER.total_seconds()

    async def _put(self, chunk: bytes) -> None:
        give_up = time.monotonic() + PATIENCE.total_seconds()
        while True:
            try:
                await self._store.put(chunk_path(self._session, self._says, self._said), chunk)
                return
            except STORE_ERRORS:
                if time.monotonic() > give_up:
                    raise
            await asyncio.sleep(RETRY_EVERY.total_seconds())

    async def _get(self) -> bytes | None:
        give_up = time.monotonic() + PATIENCE.total_seconds()
        while True:
            try:
                return await self._store.get(chunk_path(self._session, self._hears, self._heard))
            except STORE_ERRORS:
                if time.monotonic() > give_up:
                    raise
            await asyncio.sleep(RETRY_EVERY.total_seconds())
