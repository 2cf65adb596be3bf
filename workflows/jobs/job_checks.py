"""Requests the checks of the jobs that the scheduler knows. The service repeats each check until it
finds something (decision 87).
"""

import asyncio
import contextlib
from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import ActivityError

from iris.activities.control.child_jobs import ChildJobs
from iris.activities.control.notifier import Notifier
from iris.messages.wire import Keys, RepeatedCheck, Repetition
from iris.model import names
from iris.workflows import policies


class JobChecks:
    """Finds requests and placements whose owners have ended, and cancels running children of jobs
    that have ended without success.

    The two checks run at the same time, because the second one takes long if the Temporal service
    is slow, and would delay the first one.

    Args:
        forget: removes the requests and placements with these keys from the ledger.
    """

    def __init__(self, cluster: str, forget: Callable[[Keys], None]) -> None:
        self._cluster = cluster
        self._forget = forget
        self._owners: asyncio.Task[None] | None = None
        self._orphans: asyncio.Task[None] | None = None

    @property
    def run(self) -> bool:
        """Returns whether the service repeats both checks now."""
        return all(
            check is not None and not check.done() for check in (self._owners, self._orphans)
        )

    def start(self) -> None:
        """Starts each check that the service does not repeat now."""
        if self._owners is None or self._owners.done():
            self._owners = asyncio.create_task(self._check_owners())
        if self._orphans is None or self._orphans.done():
            self._orphans = asyncio.create_task(self._cancel_orphans())

    def stop(self) -> None:
        for check in (self._owners, self._orphans):
            if check is not None:
                check.cancel()
        self._owners = self._orphans = None

    async def _check_owners(self) -> None:
        with contextlib.suppress(ActivityError):  # it was stopped
            gone = await workflow.execute_activity_method(
                Notifier.check_jobs,
                self._repeated(),
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.CHECK_JOBS,
                heartbeat_timeout=policies.CHECK_JOBS,
                retry_policy=policies.UNTIL_NEWS,
            )
            self._forget(gone)

    async def _cancel_orphans(self) -> None:
        with contextlib.suppress(ActivityError):  # it was stopped
            await workflow.execute_activity_method(
                ChildJobs.cancel_orphans,
                self._repeated(),
                task_queue=names.patient_queue(self._cluster),
                start_to_close_timeout=policies.CHECK_ORPHANS,
                heartbeat_timeout=policies.HEARTBEAT,
                retry_policy=policies.UNTIL_NEWS,
            )

    def _repeated(self) -> RepeatedCheck:
        repetition = Repetition(every=policies.CHECK_JOBS_EVERY, longest=policies.LONGEST_WATCH)
        return RepeatedCheck(cluster=self._cluster, repetition=repetition)
