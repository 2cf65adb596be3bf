"""What the notifier does with an owner that it cannot signal, and with a server that is away."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from iris.activities.control import notifier
from iris.activities.control.notifier import PATIENT_ATTEMPTS, Notifier
from iris.messages.scheduler import EvictionNotices, Owner, Owners, Signalled, SnapshotPage
from iris.messages.wire import RepeatedCheck, Repetition
from iris.model import names
from iris.scheduling.placement.preemption import Eviction

ENDED = RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
FULL = RPCError(
    "exceeded workflow execution limit for signal events", RPCStatusCode.INVALID_ARGUMENT, b""
)
#: An owner with this error does not answer.
HANGS = Exception()
BUSY = RPCError("namespace rate limit exceeded", RPCStatusCode.RESOURCE_EXHAUSTED, b"")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
#: A check that the service does not repeat.
ONCE = Repetition(every=timedelta(0), longest=timedelta(0))
RUN = "01890000-0000-7000-8000-000000000000"


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
        if self._error is HANGS:
            await asyncio.Future()
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
    assert await evict({"a": FULL}) == Signalled(unsent=("A",))
    assert await evict({"a": BUSY, "c": ValueError("cannot be encoded")}) == Signalled(
        unsent=("A", "C")
    )
    assert await evict({"a": FULL}, owners="a") == Signalled(unsent=("A",))


async def test_an_owner_that_has_ended_is_not_signalled_again_and_not_forgotten_either() -> None:
    """Its program may still run. Only the check of the owners decides when its hosts are free."""
    assert await evict({"b": ENDED}) == Signalled()


async def test_an_owner_that_does_not_answer_delays_the_others_for_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler signals nobody else meanwhile."""
    monkeypatch.setattr(notifier, "PATIENCE", timedelta(milliseconds=50))

    assert await evict({"a": HANGS}) == Signalled(unsent=("A",))
    assert await evict({"a": HANGS}, owners="a") == Signalled(unsent=("A",))


async def test_the_activity_fails_while_the_server_takes_no_signal_at_all() -> None:
    """Then Temporal repeats it; but not for ever, because a single owner may answer so, too."""
    with pytest.raises(RPCError):
        await evict(dict.fromkeys("abc", BUSY), attempt=PATIENT_ATTEMPTS)

    assert await evict(dict.fromkeys("abc", BUSY), attempt=PATIENT_ATTEMPTS + 1) == Signalled(
        unsent=("A", "B", "C")
    )


class Terminated:
    """A server with one owner, which was terminated and still has a placement.

    Args:
        ago: how long ago the owner was terminated.
        lease: the lease of the cluster's hosts.
    """

    def __init__(self, ago: timedelta, lease: timedelta) -> None:
        self._closed, self._lease = NOW - ago, lease

    def get_workflow_handle(self, workflow_id: str) -> "Terminated":
        return self

    async def query(self, name: str, page: SnapshotPage, result_type: type[Owners]) -> Owners:
        owner = Owner(key=f"ada/train/{names.short_run(RUN)}", owner="a")
        return Owners(owners=(owner,), total=1, lease=self._lease)

    async def list_workflows(self, query: str) -> AsyncIterator[SimpleNamespace]:
        return
        yield

    async def describe(self) -> SimpleNamespace:
        return SimpleNamespace(
            status=WorkflowExecutionStatus.TERMINATED,
            run_id=RUN,
            start_time=NOW - timedelta(hours=1),
            close_time=self._closed,
            raw_description=SimpleNamespace(
                workflow_execution_info=SimpleNamespace(first_run_id=RUN)
            ),
        )


@pytest.mark.parametrize(
    ("lease", "minutes", "is_free"),
    [(50, 0.9, False), (50, 1.1, True), (300, 4, False), (300, 5, False), (300, 5.5, True)],
)
async def test_the_hosts_of_a_terminated_job_are_free_only_after_their_lease(
    lease: int, minutes: float, is_free: bool
) -> None:
    """Until then, its programs may still run on hosts that have no contact."""
    server = Terminated(timedelta(minutes=minutes), timedelta(seconds=lease))
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, current_attempt_scheduled_time=NOW)
    check = Notifier(cast(Client, server)).check_jobs
    gone = await environment.run(check, RepeatedCheck(cluster="lab", repetition=ONCE))

    assert bool(gone.keys) is is_free
