"""Counts the calls of the platform and measures their durations, for the metrics."""

import contextlib
import time
from collections.abc import Iterator

from temporalio import activity

from iris.metrics.declared import PLATFORM_CALL_DURATION, PLATFORM_CALLS, PLATFORM_RETRIES
from iris.platforms.base import RateLimited, Refused, Unavailable


@contextlib.contextmanager
def platform_call(call: str, *, repeats: bool = False) -> Iterator[None]:
    """Counts the block as one call of the platform. A cancelled call has no outcome, so it is not
    counted.

    Args:
        call: create, describe, delete, output or list.
        repeats: whether the activity is repeated also when nothing has failed, so that a second
            attempt is no retry.
    """
    if not repeats and activity.in_activity() and activity.info().attempt > 1:
        PLATFORM_RETRIES.add(call)
    began, outcome = time.monotonic(), ""
    try:
        yield
        outcome = "ok"
    except Exception as error:
        outcome = _outcome(error)
        raise
    finally:
        if outcome:
            PLATFORM_CALLS.add(call, outcome)
            PLATFORM_CALL_DURATION.add(time.monotonic() - began, call)


def _outcome(error: Exception) -> str:
    match error:
        case Refused():
            return error.fault
        case RateLimited():
            return "RATE_LIMITED"
        case Unavailable() | TimeoutError():
            return "UNAVAILABLE"
    return "ERROR"
