"""Limits the rate and the concurrency of a process's calls to Google. Deletes go first, creates
last.

A delete frees quota and ends cost; a create can wait. There are two kinds of pauses:

- After a rate-limit error, the limiter pauses for as long as the service asks, or longer: the pause
  doubles with each such error. It starts again from `FIRST_PAUSE` after `QUIET` seconds without
  such an error. One successful call does not reset it.
- After an unavailable error, the limiter pauses for a shorter time, which doubles until any call is
  answered. A zone that is down therefore does not delay the calls to other zones for long.

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

#: The size of the largest burst, in seconds: as many calls as the rate allows in this time may be
#: made at once.
BURST = 10.0
#: The longest time that a call waits for its turn, in seconds. After this time the call fails with
#: `RateLimited`.
MAX_WAIT_S = 20.0
#: The first pause after a rate-limit error, in seconds. Each further rate-limit error doubles the
#: pause.
FIRST_PAUSE = 1.0
#: The longest pause after a rate-limit error, in seconds.
MAX_PAUSE = 60.0
#: The time without a rate-limit error after a pause, in seconds. After this time, the next pause is
#: `FIRST_PAUSE` again.
QUIET = 10.0
#: The first pause after an error that says that the service is unavailable, in seconds. The pause
#: doubles until the service answers a call.
FIRST_UNAVAILABLE_PAUSE = 0.5
#: The longest pause while the service is unavailable, in seconds.
MAX_UNAVAILABLE_PAUSE = 10.0
#: Each pause is lengthened by a random part of itself, between nothing and this part (0.25 is a
#: quarter), so that processes that were stopped together do not all resume together.
JITTER = 0.25


class Urgency(IntEnum):
    """The priority of a call; the call with the lowest value goes first."""

    DELETE = 0
    READ = 1
    CREATE = 2


class RateLimiter:
    """Limits the rate of all calls of a process. Each call waits for its turn.

    Args:
        slots: the maximum number of calls in flight. The end of each call is reported with
            `release`.
    """

    def __init__(
        self,
        per_minute: int,
        *,
        max_wait: float = MAX_WAIT_S,
        now: Callable[[], float] = time.monotonic,
        burst: float = BURST,
        slots: float = math.inf,
    ) -> None:
        self._per_second = per_minute / 60
        self._most = max(1.0, self._per_second * burst)
        self._max_wait = max_wait
        self._now = now
        #: The number of calls that may be made at once at the time `_at`. During a pause, `_at` is
        #: in the future.
        self._left = self._most
        self._at = now()
        self._slots = slots
        #: The lock for changes of `_slots`, because the end of a call may be reported from any
        #: thread.
        self._counting = threading.Lock()
        #: The time at which the last pause ends or ended; minus infinity before the first pause.
        self._pause_end = -math.inf
        self._rate_limit_errors = 0
        self._unavailable_errors = 0
        self._numbers = count()
        self._waiting: list[tuple[Urgency, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def acquire(self, urgency: Urgency) -> None:
        """Waits until the caller may make its call. The caller must call `release` when the call
        has ended.

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
            async with asyncio.timeout(self._max_wait):
                await mine
        except (TimeoutError, asyncio.CancelledError) as error:
            if mine.done() and not mine.cancelled():  # the turn came at the same moment
                self.release()
            if isinstance(error, TimeoutError):
                raise RateLimited(
                    "too many calls to Google Cloud are queued: it answers slowly, or"
                    " platform.gcp.requests_per_minute is too low"
                ) from None
            raise

    def release(self) -> None:
        """Reports that a call has ended, and lets a waiting call start. May be called from any
        thread.
        """
        with self._counting:
            self._slots += 1
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no call waits in it
                self._loop.call_soon_threadsafe(self._serve)

    def report_rate_limit(self, retry_after: float | None = None) -> None:
        """Reports a rate-limit error and begins a pause.

        Args:
            retry_after: the seconds that the service asks to wait.
        """
        if self._now() >= self._pause_end + QUIET:
            self._rate_limit_errors = 0
        if self._pause(
            min(FIRST_PAUSE * 2 ** min(self._rate_limit_errors, 10), MAX_PAUSE), retry_after
        ):
            self._rate_limit_errors += 1

    def report_unavailable(self, retry_after: float | None = None) -> None:
        """Reports that the service, or a part of it, is not available, and begins a pause.

        Args:
            retry_after: see `report_rate_limit`.
        """
        asked = None if retry_after is None else min(retry_after, MAX_PAUSE)
        if self._pause(
            min(
                FIRST_UNAVAILABLE_PAUSE * 2 ** min(self._unavailable_errors, 10),
                MAX_UNAVAILABLE_PAUSE,
            ),
            asked,
        ):
            self._unavailable_errors += 1

    def report_answer(self) -> None:
        """Reports an answer of the service."""
        self._unavailable_errors = 0

    def _pause(self, pause: float, asked: float | None) -> bool:
        """Begins or extends a pause.

        Returns True if no pause was running. Calls in flight at the start of a pause may report the
        same error again; they do not count as new errors.
        """
        now = self._now()
        is_new = now >= self._pause_end
        if is_new or asked is not None:
            wanted = max(pause, asked or 0.0) if is_new else asked or 0.0
            jitter = random.uniform(0, JITTER)  # noqa: S311
            self._pause_end = max(self._pause_end, now + wanted * (1 + jitter))
            self._left, self._at = 0.0, max(self._at, self._pause_end)
        return is_new

    def _serve(self) -> None:
        """Gives turns to as many waiting calls as the limits allow, and sets a timer for the next
        one.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._now()
        if now > self._at:
            self._left, self._at = (
                min(self._most, self._left + (now - self._at) * self._per_second),
                now,
            )
        while self._waiting and (
            self._waiting[0][2].done() or (self._left >= 1 and now >= self._at and self._slots >= 1)
        ):
            *_, first = heapq.heappop(self._waiting)
            if not first.done():  # else the caller has given up
                self._left -= 1
                with self._counting:
                    self._slots -= 1
                first.set_result(None)
        if self._waiting and self._slots >= 1:  # else `release` calls this method again
            pause = max(0.0, self._at - now) + max(0.0, 1 - self._left) / self._per_second
            self._timer = asyncio.get_running_loop().call_later(pause + 0.001, self._serve)
