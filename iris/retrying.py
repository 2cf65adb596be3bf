"""Repeats calls outside workflows: with a fixed or growing delay, until a timeout or for a number
of tries.

Workflows have Temporal's retry policies and timers instead. The first call imports the library
stamina, because the command line must start quickly.
"""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
#: The types of exceptions after which a call is repeated; or a function that gets the exception and
#: returns whether to repeat the call, or the delay before the next try (a number is in seconds).
Retryable = (
    type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool | float | timedelta]
)


class _NotYet(Exception):
    """Raised inside `poll` while the awaited state is not reached yet."""


def retry(
    on: Retryable,
    *,
    every: float | timedelta,
    up_to: float | timedelta | None = None,
    jitter: float = 0,
    timeout: timedelta | None = None,
    tries: int | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Returns a decorator that repeats a function when it raises one of these exceptions. All other
    exceptions propagate.

    The function must be defined with `def` or `async def`. The decorator does not retry a lambda
    that returns an awaitable.

    Args:
        every: the delay between two tries, in seconds if it is a number.
        up_to: the limit of the delay, which doubles with each try. If it is None, the delay is
            constant.
        jitter: the limit of a random time that is added to each delay, in seconds.
        timeout: a failure after this time propagates. There is always at least one try. None means
            no limit.
        tries: the failure of the last of this many tries propagates. None means no limit.
    """

    def decorate(call: Callable[P, T]) -> Callable[P, T]:
        @functools.cache
        def retrying() -> Callable[P, T]:
            import stamina

            stamina.instrumentation.set_on_retry_hooks([])  # by default, stamina logs each retry
            return stamina.retry(
                on=on,
                attempts=tries,
                timeout=timeout,
                wait_initial=every,
                wait_max=every if up_to is None else up_to,
                wait_jitter=jitter,
                wait_exp_base=1 if up_to is None else 2,
            )(call)

        @functools.wraps(call)
        def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
            return retrying()(*args, **kwargs)

        return repeated

    return decorate


def poll(check: Callable[[], bool], *, every: float | timedelta, timeout: timedelta) -> bool:
    """Calls `check` until it returns True. Returns False if it does not within the timeout.

    Args:
        every: the delay between two calls, in seconds if it is a number.
    """

    @retry(_NotYet, every=every, timeout=timeout)
    def wait() -> None:
        if not check():
            raise _NotYet

    try:
        wait()
    except _NotYet:
        return False
    return True
