"""Reads what hosts tell the scheduler about themselves."""

from collections.abc import Sequence
from datetime import UTC

from temporalio import workflow
from temporalio.common import RawValue

from iris.messages.scheduler import Vacate
from iris.model import names


def vacated_by_sender(signal: str, arguments: Sequence[RawValue]) -> Vacate | None:
    """Returns the message of a host that a placement on it is free; None if the signal is another
    one, or about another host than its name says.
    """
    host_id = names.host_of_signal(signal)
    if host_id is None:
        return None
    try:
        told = workflow.payload_converter().from_payload(arguments[0].payload, Vacate)
        # A use that ended in the year 9999 could not be stored, and would keep others from it.
        told = told.model_copy(update={"at": min(told.at, workflow.now()).astimezone(UTC)})
    except Exception:  # a stolen host may send anything, and an error would stop the scheduler
        workflow.logger.warning("a signal of host %s cannot be read", host_id)
        return None
    return told if told.host_id == host_id else None
