"""How often Google may be called: one allowance for a process, of which deletes take first and creates last.

What is deleted frees quota and costs nothing any more; what is created can wait. A service that says that it is called too often
is left alone for as long as it says, or for longer each time, and after that nobody makes up for lost time.
"""

import asyncio
import heapq
import random
import time
from collections.abc import Callable
from enum import IntEnum
from itertools import count

from iris.platforms.base import RateLimited

#: At most the calls of so many seconds are made at once.
BURST = 10.0
#: So long a call waits for its turn, in seconds; then it is for the caller to come back.
PATIENCE = 20.0
#: Pauses after the service has complained, in seconds: doubled with each complaint in a row, up to the most.
FIRST_PAUSE = 1.0
MOST_PAUSE = 60.0
#: So much longer, at most, each pause is by chance: others were told to come back at the same time.
JITTER = 0.25


class Urgency(IntEnum):
    """Who goes first."""

    DELETE = 0
    LOOK = 1
    CREATE = 2


class Pace:
    """The turns of all calls of a process."""

    def __init__(
        self, per_minute: int, *, patience: float = PATIENCE, now: Callable[[], float] = time.monotonic, burst: float = BURST
    ) -> None:
        self._per_second = per_minute / 60
        self._most = max(1.0, self._per_second * burst)
        self._patience = patience
        self._now = now
        #: How many calls may be made as of `_at`, which is later than now while the service is left alone.
        self._left = self._most
        self._at = now()
        self._complaints = 0
        self._numbers = count()
        self._waiting: list[tuple[Urgency, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def turn(self, urgency: Urgency) -> None:
        """Wait until the next call may be made.

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
            await asyncio.wait_for(mine, self._patience)
        except TimeoutError:
            raise RateLimited(
                "more calls to Google Cloud wait for their turn than platform.gcp.requests_per_minute allows"
            ) from None

    def complained(self, retry_after: float | None = None) -> None:
        """The service says that it is called too often.

        Args:
            retry_after: seconds that it wants to be left alone.
        """
        pause = min(FIRST_PAUSE * 2 ** min(self._complaints, 10), MOST_PAUSE)
        self._complaints += 1
        pause = max(pause, retry_after or 0.0) * (1 + random.uniform(0, JITTER))
        self._left, self._at = 0.0, max(self._at, self._now() + pause)

    def answered(self) -> None:
        """The service has served a call."""
        self._complaints = 0

    def _serve(self) -> None:
        """Give out what there is, and come back when there is more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._now()
        if now > self._at:
            self._left, self._at = min(self._most, self._left + (now - self._at) * self._per_second), now
        while self._waiting and (self._waiting[0][2].done() or (self._left >= 1 and now >= self._at)):
            *_, first = heapq.heappop(self._waiting)
            if not first.done():  # else it has given up
                self._left -= 1
                first.set_result(None)
        if self._waiting:
            pause = max(0.0, self._at - now) + max(0.0, 1 - self._left) / self._per_second
            self._timer = asyncio.get_running_loop().call_later(pause + 0.001, self._serve)
