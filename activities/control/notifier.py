"""Signals placements, evictions and reasons to jobs and tasks, and finds owners that have ended.

An owner that cannot be signalled must not delay the others. So it does not fail the activity: the
service would repeat the activity, and signal all owners again.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.repetition import try_again
from iris.activities.control.service import AT_ONCE, AWAY, first_run
from iris.concurrency import for_each
from iris.messages.scheduler import (
    EvictionNotices,
    Notices,
    Owner,
    Owners,
    Reasons,
    Signalled,
    SnapshotPage,
)
from iris.messages.wire import Keys, RepeatedCheck
from iris.metrics.declared import EVICTIONS, PLACEMENTS
from iris.model import names
from iris.model.job.demand_limits import fitting
from iris.model.job.requests import Placement
from iris.model.job.spec import Hold
from iris.model.rules import Rules

logger = logging.getLogger(__name__)

PAGE = 2_000
#: The time limit of one signal to the workflow that owns a placement or a request. A signal usually
#: takes milliseconds. A workflow that does not accept it in time is signalled again later.
PATIENCE = timedelta(seconds=5)
#: The time limit for one batch of signals to the workflows that own placements or requests.
#: Workflows that were not signalled by then, for instance because the service is slow, are
#: signalled again later.
BATCH_PATIENCE = timedelta(seconds=15)
#: One check returns the keys of at most this many requests and placements whose owners have ended.
#: The next check returns the others.
MOST_GONE = 5_000
#: How long the scheduler keeps the placements of a terminated job, so that each host can report
#: that no program of the job runs any more. After this time, the lease of a host that has not
#: reported has run out. If the cluster's lease is longer than the default lease, this time is
#: longer by the difference.
LEFT_TO_HOSTS = timedelta(seconds=60)

#: In the first attempts of an activity, up to this number, an error that may be an outage of the
#: service fails the activity, so that Temporal tries it again. In later attempts, the same error
#: counts as a fault of the one workflow that was called.
PATIENT_ATTEMPTS = 3


#: The workflow id of the owner of a request or a placement, the key of that request or placement,
#: and the payload of the signal to the owner.
Item = tuple[str, str, Any]


class Notifier:
    """Activities that carry messages between the scheduler and the owners of placements and
    requests.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def signal_placed(self, notices: Notices) -> Signalled:
        """Signals placements to their owners."""
        return await self._signal_owners(
            "placed", [(each.owner, each.key, each) for each in notices.placements]
        )

    @activity.defn
    async def signal_evicted(self, notices: EvictionNotices) -> Signalled:
        """Signals the owners of gangs whose hosts are taken away."""
        return await self._signal_owners(
            "evicted", [(each.owner, each.key, each) for each in notices.evictions]
        )

    @activity.defn
    async def signal_reasons(self, reasons: Reasons) -> None:
        """Sends waiting gangs the reason why they wait. Owners that are gone are ignored."""
        await self._signal_owners(
            "waits", [(each.owner, each.key, each) for each in reasons.reasons]
        )

    async def pass_on(self, placements: Sequence[Placement]) -> tuple[str, ...]:
        """Signals placements to their owners, outside an activity. Returns the keys of those that
        have to be signalled again.
        """
        items = [(each.owner, each.key, each) for each in placements]
        return _unsent("placed", items, await self._signal_each("placed", items))

    async def hold(self, cluster: str, task: str, hold: Hold) -> None:
        """Holds the job of a task, outside an activity. A job that has ended is ignored.

        Args:
            task: the id of a task, or of a job.

        Raises:
            RPCError: the service does not answer.
        """
        workflow = names.job_workflow(cluster, task.partition(":")[0])
        try:
            await self._client.get_workflow_handle(workflow).signal("hold", hold)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def _signal_owners(self, signal: str, items: Sequence[Item]) -> Signalled:
        """Signals each owner. Fails if none could be signalled because the server is away.

        An owner that has ended is ignored: only `check_jobs` decides when its hosts are free.
        """
        errors = await self._signal_each(signal, items)
        failures = [error for error in errors if error is not None]
        if failures and len(failures) == len(items) and all(_is_away(error) for error in failures):
            raise failures[0]
        return Signalled(unsent=_unsent(signal, items, errors))

    async def _signal_each(self, signal: str, items: Sequence[Item]) -> list[Exception | None]:
        """Signals each owner, several at a time. Returns the error of each signal, or None."""
        loop = asyncio.get_running_loop()
        until = loop.time() + BATCH_PATIENCE.total_seconds()

        async def send(item: Item) -> Exception | None:
            owner, _, what = item
            try:
                async with asyncio.timeout_at(min(until, loop.time() + PATIENCE.total_seconds())):
                    await self._client.get_workflow_handle(owner).signal(signal, what)
            except Exception as error:
                return error
            return None

        errors = await for_each(items, send, at_once=AT_ONCE)
        _count_delivered(signal, errors.count(None))
        return errors

    @activity.defn
    async def check_jobs(self, check: RepeatedCheck) -> Keys:
        """Returns the keys whose owners have ended without releasing them, for instance because
        they were terminated in the Web UI.

        The list of running workflows has a delay, so an owner that is not listed is described
        directly. An owner that has just ended is ignored: its programs may still run.

        Raises:
            ApplicationError: no owner has ended, so the service has to repeat the check.
        """
        scheduler = self._client.get_workflow_handle(names.scheduler_workflow(check.cluster))
        owners: list[Owner] = []
        while True:
            page = await scheduler.query(
                "owners", SnapshotPage(offset=len(owners), limit=PAGE), result_type=Owners
            )
            owners.extend(page.owners)
            if not page.owners or len(owners) >= page.total:
                break
        left = LEFT_TO_HOSTS + page.lease - Rules().lease
        # The server's clock, as for the close times.
        now = activity.info().current_attempt_scheduled_time
        over = now - left
        ours = names.own_workflows(check.cluster, names.KIND_JOB, names.KIND_TASK)
        live = self._client.list_workflows(f"{ours} AND ExecutionStatus = 'Running'")
        running = {(execution.id, names.short_run(execution.run_id)) async for execution in live}
        gone = []
        for owner in owners:
            activity.heartbeat()
            if (owner.owner, owner.key.rpartition("/")[2]) not in running and await self._has_ended(
                owner, over
            ):
                gone.append(owner.key)
        if not gone:
            try_again(check.repetition, "no job has ended without releasing what it holds")
        # The next check returns the others.
        few = fitting(((key, len(key.encode())) for key in gone), MOST_GONE)
        return Keys(keys=tuple(few), at=now)

    async def _has_ended(self, owner: Owner, over: datetime) -> bool:
        """Returns whether the owner had ended by the time `over`."""
        try:
            described = await self._client.get_workflow_handle(owner.owner).describe()
        except RPCError as error:
            if _is_away(error):
                raise
            if error.status is not RPCStatusCode.NOT_FOUND:
                logger.error(
                    "cannot find out whether workflow %s has ended: %s", owner.owner, error
                )
            return error.status is RPCStatusCode.NOT_FOUND
        # A later job may have the name now. The key contains the first run of its owner.
        if not owner.key.endswith(f"/{names.short_run(first_run(described))}"):
            return described.start_time <= over
        return (
            described.status is not WorkflowExecutionStatus.RUNNING
            and (described.close_time or over) <= over
        )


def _unsent(
    signal: str, items: Sequence[Item], errors: Sequence[Exception | None]
) -> tuple[str, ...]:
    """Returns and logs the keys of the owners that could not be signalled and may still exist."""
    unsent = []
    for (owner, key, _), error in zip(items, errors, strict=True):
        if error is None or _is_not_found(error):
            continue
        logger.error(
            "cannot signal %s to workflow %s, trying again later: %s",
            signal,
            owner,
            str(error) or "it does not answer",
        )
        unsent.append(key)
    return tuple(unsent)


def _count_delivered(signal: str, owners: int) -> None:
    if signal == "placed":
        PLACEMENTS.add("signal", amount=owners)
    elif signal == "evicted":
        EVICTIONS.add(amount=owners)


def _is_not_found(error: Exception) -> bool:
    return isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND


def _is_away(error: Exception) -> bool:
    """Returns whether an error is about the server as a whole, and may pass."""
    return (
        isinstance(error, RPCError)
        and error.status in AWAY
        and activity.info().attempt <= PATIENT_ATTEMPTS
    )
