"""What the notifier does with an owner that it cannot signal, and with a server that is away."""

from dataclasses import replace
from typing import cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from iris.activities.control.notifier import PATIENT_ATTEMPTS, Notifier
from iris.messages.scheduler import EvictionNotices, Signalled
from iris.scheduling.placement.preemption import Eviction

ENDED = RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
FULL = RPCError(
    "exceeded workflow execution limit for signal events", RPCStatusCode.INVALID_ARGUMENT, b""
)
BUSY = RPCError("namespace rate limit exceeded", RPCStatusCode.RESOURCE_EXHAUSTED, b"")


class Server:
    """Takes signals, except those to owners that have an error."""

    def __init__(self, errors: dict[str, Exception]) -> None:
        self._errors = errors

    def get_workflow_handle(self, workflow_id: str) -> "Handle":
        return Handle(self._errors.get(workflow_id))


class Handle:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def signal(self, name: str, value: object) -> None:
        if self._error is not None:
            raise self._error


async def evict(errors: dict[str, Exception], owners: str = "abc", attempt: int = 1) -> Signalled:
    """Signals an eviction to each owner; the key of an owner is its name in capitals."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    notices = EvictionNotices(
        evictions=tuple(Eviction(key=owner.upper(), owner=owner, reason="") for owner in owners)
    )
    return await environment.run(Notifier(cast(Client, Server(errors))).signal_evicted, notices)


async def test_an_owner_that_cannot_be_signalled_is_reported_and_does_not_fail_the_others() -> None:
    """A failed activity would signal all others again, for ever; and the scheduler would send
    nothing else meanwhile.
    """
    assert await evict({"b": ENDED}) == Signalled(keys=("B",))
    assert await evict({"a": FULL, "b": ENDED}) == Signalled(keys=("B",), unsent=("A",))
    assert await evict({"a": BUSY, "c": ValueError("cannot be encoded")}) == Signalled(
        unsent=("A", "C")
    )
    assert await evict({"a": FULL}, owners="a") == Signalled(unsent=("A",))


async def test_the_activity_fails_while_the_server_takes_no_signal_at_all() -> None:
    """Then Temporal repeats it; but not for ever, because a single owner may answer so, too."""
    with pytest.raises(RPCError):
        await evict(dict.fromkeys("abc", BUSY), attempt=PATIENT_ATTEMPTS)

    assert await evict(dict.fromkeys("abc", BUSY), attempt=PATIENT_ATTEMPTS + 1) == Signalled(
        unsent=("A", "B", "C")
    )
