"""Lets the service repeat an activity until it has news: an attempt without news fails, and failed
attempts add nothing to the history.
"""

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from iris.messages.wire import Repetition


def try_again(repetition: Repetition, without: str) -> None:
    """Ends an attempt without news, unless it is the last one.

    Args:
        without: the result of the attempt, which Temporal's Web UI shows beside the activity.

    Raises:
        ApplicationError: the service has to try again after the pause.
    """
    now = activity.info()
    if now.current_attempt_scheduled_time - now.scheduled_time < repetition.longest:
        raise ApplicationError(
            f"{without}; tried again every {repetition.every.total_seconds():g} s",
            next_retry_delay=repetition.every,
            category=ApplicationErrorCategory.BENIGN,
        )
