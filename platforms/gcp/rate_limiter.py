"""Limits the rate and the concurrency of a process's calls to Google. Deletes go first, creates last.

A delete frees quota and ends cost; a create can wait. There are two kinds of pauses:

- After a rate-limit error, the limiter pauses for as long as the service asks, or longer: the pause doubles with each such error.
  It starts again from `FIRST_PAUSE` after `QUIET` seconds without such an error. One successful call does not reset it.
- After an unavailable error, the limiter pauses for a shorter time, which doubles until any call is answered. A zone that is down
  therefore does not delay the calls to other zones for long.

After a pause the limiter does not make up for the calls that it did not make.
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

#: The largest burst: the calls that the rate allows in this many seconds.
BURST = 10.0
#: The longest time that a call waits for its turn, in seconds. After it the caller gets `RateLimited`.
MAX_WAIT_S = 20.0
#: The first and the longest pause after a rate-limit error, in seconds. Each such error after a pause doubles the next pause.
FIRST_PAUSE = 1.0
MOST_PAUSE = 60.0
#: After a pause and this many seconds without a rate-limit error, the next pause is `FIRST_PAUSE` again.
QUIET = 10.0
#: The first and the longest pause after an unavailable error, in seconds. The pause doubles until a call is answered.
FIRST_ABSENCE = 0.5
MOST_ABSENCE = 10.0
#: Each pause is longer by a random share of itself, up to this share, because other processes may resume at the same time.
JITTER = 0.25


class Urgency(IntEnum):
    """The priority of a call; the lowest value goes first."""

    DELETE = 0
    LOOK = 1
    CREATE = 2


class RateLimiter:
    """Gives out turns to all calls of a process.

    Args:
        places: the maximum number of calls in flight. The end of each call is reported with `over`.
    """

    def __init__(
        self,
        per_minute: int,
        *,
        patience: float = MAX_WAIT_S,
        now: Callable[[], float] = time.monotonic,
        burst: float = BURST,
        places: float = math.inf,
    ) -> None:
        self._per_second = per_minute / 60
        self._most = max(1.0, self._per_second * burst)
        self._patience = patience
        self._now = now
        #: The number of calls that may be made at the time `_at`. During a pause `_at` is in the future.
        self._left = self._most
        self._at = now()
        self._places = places
        #: Guards `_places`, because calls end in threads.
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
        """Waits until the caller may make its call. The caller must call `over` when the call has ended.

        Raises:
            RateLimited: the wait was longer than the patience.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a new event loop: the waiting calls of the old one are gone
            self._loop, self._timer, self._waiting = loop, None, []
        mine = loop.create_future()
        heapq.heappush(self._waiting, (urgency, next(self._numbers), mine))
        self._serve()
        try:
            async with asyncio.timeout(self._patience):
                await mine
        except (TimeoutError, asyncio.CancelledError) as error:
            if mine.done() and not mine.cancelled():  # the turn came at the same moment
                self.over()
            if isinstance(error, TimeoutError):
                raise RateLimited(
                    "too many calls to Google Cloud are queued: it answers slowly, or platform.gcp.requests_per_minute is too low"
                ) from None
            raise

    def over(self) -> None:
        """Reports that a call has ended, and lets a waiting call start. May be called from any thread."""
        with self._counting:
            self._places += 1
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no call waits in it
                self._loop.call_soon_threadsafe(self._serve)

    def complained(self, retry_after: float | None = None) -> None:
        """Reports a rate-limit error and begins a pause.

        Args:
            retry_after: the seconds that the service asks to wait.
        """
        if self._now() >= self._resumed + QUIET:
            self._complaints = 0
        if self._leave_alone(min(FIRST_PAUSE * 2 ** min(self._complaints, 10), MOST_PAUSE), retry_after):
            self._complaints += 1

    def absent(self, retry_after: float | None = None) -> None:
        """Reports that the service, or a part of it, is not available, and begins a pause.

        Args:
            retry_after: see `complained`.
        """
        asked = None if retry_after is None else min(retry_after, MOST_PAUSE)
        if self._leave_alone(min(FIRST_ABSENCE * 2 ** min(self._absences, 10), MOST_ABSENCE), asked):
            self._absences += 1

    def answered(self) -> None:
        """Reports an answer of the service."""
        self._absences = 0

    def _leave_alone(self, pause: float, asked: float | None) -> bool:
        """Begins or extends a pause.

        Returns True if no pause was running. Calls in flight at the start of a pause may report the same error again; they do not
        count as new errors.
        """
        now = self._now()
        news = now >= self._resumed
        if news or asked is not None:
            wanted = max(pause, asked or 0.0) if news else asked or 0.0
            self._resumed = max(self._resumed, now + wanted * (1 + random.uniform(0, JITTER)))
            self._left, self._at = 0.0, max(self._at, self._resumed)
        return news

    def _serve(self) -> None:
        """Gives turns to as many waiting calls as the limits allow, and sets a timer for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._now()
        if now > self._at:
            self._left, self._at = min(self._most, self._left + (now - self._at) * self._per_second), now
        while self._waiting and (self._waiting[0][2].done() or (self._left >= 1 and now >= self._at and self._places >= 1)):
            *_, first = heapq.heappop(self._waiting)
            if not first.done():  # else the caller has given up
                self._left -= 1
                with self._counting:
                    self._places -= 1
                first.set_result(None)
        if self._waiting and self._places >= 1:  # else `over` calls this method again
            pause = max(0.0, self._at - now) + max(0.0, 1 - self._left) / self._per_second
            self._timer = asyncio.get_running_loop().call_later(pause + 0.001, self._serve)
