"""Shares answers between all who ask the same within a moment: answers of the cluster, and pages
that are rendered from them.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

#: The longest time for which an error is cached, in seconds.
ERROR_SHARED_FOR = 1.5
#: The limit on cached results. The oldest result is dropped first.
MOST_KEPT = 500
T = TypeVar("T")


class Answers:
    """Caches the results of queries, each under a key (the question). Viewers who ask the same
    question at the same time wait for one result.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: By question: the time until which the result is cached, and the result, which may still
        #: be awaited.
        self._answers: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def shared(self, question: Hashable, ask: Callable[[], Awaitable[T]], fresh: float) -> T:
        """Returns the answer to the question. Asks only if nobody has lately, or if the last answer
        is still awaited.

        Args:
            fresh: how long the answer is shared, in seconds.
        """
        now = self._clock()
        until, answer = self._answers.get(question, (0.0, None))
        if answer is None or (now > until and answer.done()):
            for old in [
                each for each, (end, asked) in self._answers.items() if now > end and asked.done()
            ]:
                del self._answers[old]
            while len(self._answers) >= MOST_KEPT:
                del self._answers[next(iter(self._answers))]
            answer = asyncio.ensure_future(ask())
            answer.add_done_callback(functools.partial(self._answered, question, fresh))
            self._answers[question] = (now + fresh, answer)
        # The viewer that asked first may go away while others wait.
        result: T = await asyncio.shield(answer)
        return result

    def _answered(self, question: Hashable, fresh: float, answer: asyncio.Future[Any]) -> None:
        """Shares an answer from now on, and an error only for a moment."""
        # The viewers who wait get an error. If none waits any more, asyncio must not log it.
        failed = answer.cancelled() or answer.exception() is not None
        if self._answers.get(question, (0.0, None))[1] is answer:
            until = self._clock() + (min(fresh, ERROR_SHARED_FOR) if failed else fresh)
            self._answers[question] = (until, answer)

    def forget(self) -> None:
        """Forgets all answers, because something has changed."""
        self._answers.clear()
