"""How often Google may be called, and by how many at a time: one allowance for a process, of which deletes take first and creates
last.

What is deleted frees quota and costs nothing any more; what is created can wait. A service that says that it is called too often
is left alone for as long as it says, or for longer each time, until it has not said so for a while: that one call was served
means little. One that is not available is left alone, too, but for a moment only as long as others of its answers show that it is
merely a part of it that is away: nobody else is to wait for a zone that is down. After a pause nobody makes up for lost time.
"""

import asyncio
import contextlib
import heapq
import math
import random
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from itertools import count

from iris.platforms.base import RateLimited

#: At most the calls of so many seconds are made at once.
BURST = 10.0
#: So long a call waits for its turn, in seconds; then it is for the caller to come back.
PATIENCE = 20.0
#: Pauses after the service has complained, in seconds: doubled with each complaint that comes after a pause, up to the most.
FIRST_PAUSE = 1.0
MOST_PAUSE = 60.0
#: So long after a pause without a complaint, in seconds, the next one is the first again.
QUIET = 10.0
#: Pauses after the service was not available: doubled as long as nothing is answered, up to the most.
FIRST_ABSENCE = 0.5
MOST_ABSENCE = 10.0
#: So much longer, at most, each pause is by chance: others were told to come back at the same time.
JITTER = 0.25


class Urgency(IntEnum):
    """Who goes first."""

    DELETE = 0
    LOOK = 1
    CREATE = 2


class Pace:
    """The turns of all calls of a process.

    Args:
        places: so many calls may be under way at a time; each ends with `over`.
    """

    def __init__(
        self,
        per_minute: int,
        *,
        patience: float = PATIENCE,
        now: Callable[[], float] = time.monotonic,
        burst: float = BURST,
        places: float = math.inf,
    ) -> None:
        self._per_second = per_minute / 60
        self._most = max(1.0, self._per_second * burst)
        self._patience = patience
        self._now = now
        #: How many calls may be made as of `_at`, which is later than now while the service is left alone.
        self._left = self._most
        self._at = now()
        self._places = places
        #: Calls end in threads.
        self._counting = threading.Lock()
        #: The end of the last pause.
        self._resumed = -math.inf
        self._complaints = 0
        self._absences = 0
        self._numbers = count()
        self._waiting: list[tuple[Urgency, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def turn(self, urgency: Urgency) -> None:
        """Wait until the next call may be made. Whoever returns from here says `over` when it has ended.

        Raises:
            RateLimited: that would take too long.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # another one, in which nobody of the former waits any more
            self._loop, self._timer, self._waiting = loop, None, []
        mine = loop.create_future()
        heapq.heappush(self._waiting, (urgency, next(self._numbers), mine))
        self._serve()
        try:
            async with asyncio.timeout(self._patience):
                await mine
        except (TimeoutError, asyncio.CancelledError) as error:
            if mine.done() and not mine.cancelled():  # it came at that very moment
                self.over()
            if isinstance(error, TimeoutError):
                raise RateLimited(
                    "too many calls to Google Cloud wait for their turn: it does not keep up, or not so many are allowed by"
                    " platform.gcp.requests_per_minute"
                ) from None
            raise

    def over(self) -> None:
        """A call has ended, in whichever thread; somebody else may have its place."""
        with self._counting:
            self._places += 1
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits in it
                self._loop.call_soon_threadsafe(self._serve)

    def complained(self, retry_after: float | None = None) -> None:
        """The service says that it is called too often.

        Args:
            retry_after: seconds that it wants to be left alone.
        """
        if self._now() >= self._resumed + QUIET:
            self._complaints = 0
        if self._leave_alone(min(FIRST_PAUSE * 2 ** min(self._complaints, 10), MOST_PAUSE), retry_after):
            self._complaints += 1

    def absent(self, retry_after: float | None = None) -> None:
        """The service, or some part of it, is not available.

        Args:
            retry_after: see `complained`.
        """
        asked = None if retry_after is None else min(retry_after, MOST_PAUSE)
        if self._leave_alone(min(FIRST_ABSENCE * 2 ** min(self._absences, 10), MOST_ABSENCE), asked):
            self._absences += 1

    def answered(self) -> None:
        """The service has answered."""
        self._absences = 0

    def _leave_alone(self, pause: float, asked: float | None) -> bool:
        """Make no calls for a while. Whether that is news: calls that were under way when a pause began say the same again."""
        now = self._now()
        news = now >= self._resumed
        if news or asked is not None:
            wanted = max(pause, asked or 0.0) if news else asked or 0.0
            self._resumed = max(self._resumed, now + wanted * (1 + random.uniform(0, JITTER)))
            self._left, self._at = 0.0, max(self._at, self._resumed)
        return news

    def _serve(self) -> None:
        """Give out what there is, and come back when there is more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._now()
        if now > self._at:
            self._left, self._at = min(self._most, self._left + (now - self._at) * self._per_second), now
        while self._waiting and (self._waiting[0][2].done() or (self._left >= 1 and now >= self._at and self._places >= 1)):
            *_, first = heapq.heappop(self._waiting)
            if not first.done():  # else it has given up
                self._left -= 1
                with self._counting:
                    self._places -= 1
                first.set_result(None)
        if self._waiting and self._places >= 1:  # else the end of a call brings us back
            pause = max(0.0, self._at - now) + max(0.0, 1 - self._left) / self._per_second
            self._timer = asyncio.get_running_loop().call_later(pause + 0.001, self._serve)
