"""Publishes the prices, teams and budgets of the configuration in the store, for clients. Computes
how much of each budget is used, holds new jobs of those who have used up theirs, and releases the
jobs when the period is over or the budget has grown.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime, timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.rpc import Connection
from iris.client.fleet.open_uses import uses_not_stored
from iris.client.fleet.usage_report import read_budgets, report_of
from iris.client.jobs.client import JobsClient
from iris.concurrency import beside
from iris.config import ClusterConfig
from iris.model import names, store_paths
from iris.model.errors import IrisError
from iris.model.job.requests import Request
from iris.model.job.spec import Hold
from iris.model.states import JobState
from iris.storage.object_store import STORE_ERRORS, Store
from iris.usage.accounting import Accounting, accounting_of
from iris.usage.budgets import (
    BudgetUse,
    BudgetUses,
    DayUse,
    budget_uses,
    hold_of_new_job,
    is_released,
    period_of,
)
from iris.usage.records import Use
from iris.usage.report import UsageReport
from iris.usage.sums import Question

logger = logging.getLogger(__name__)

#: The interval between two computations of how much of the budgets is used. A change of the
#: prices, teams or budgets in the configuration causes an earlier computation.
INTERVAL = timedelta(minutes=5)
#: The interval between two checks whether the configuration has changed, and between two tries to
#: reach the store.
CHECK_INTERVAL = timedelta(seconds=15)
_DAY = timedelta(days=1)


class Budgets:
    """Computes how much of each budget of a cluster is used. Says which new jobs are on hold
    because of a budget, and releases the jobs that a budget no longer holds.

    Args:
        client: a client of the cluster's Temporal service.
        store: the address of the cluster's store.
    """

    def __init__(self, client: Client, cluster: str, store: str) -> None:
        address = client.service_client.config.target_host
        record = ClusterRecord(
            name=cluster, address=address, namespace=client.namespace, store=store
        )
        self._connection = Connection(client, record)
        self._jobs = JobsClient(self._connection)
        self._store, self._cluster = Store(store), cluster
        self._uses: tuple[BudgetUse, ...] = ()
        #: True if this process, or an earlier one, may have put jobs on hold because of budgets.
        self._may_hold = True
        #: The cached use of past days: the accounting rules, the begin and the end of the period,
        #: and the use of each day. None before the first computation.
        self._past: tuple[Accounting, datetime, datetime, list[DayUse]] | None = None

    def hold_of(self, request: Request) -> Hold | None:
        """Returns the hold of a job that asks for hosts; None if it may have some."""
        if not self._uses:
            return None
        return hold_of_new_job(self._uses, request.user, request.submitted_at, datetime.now(UTC))

    @contextlib.asynccontextmanager
    async def watching(self, current: Callable[[], ClusterConfig]) -> AsyncIterator[None]:
        """Computes the use of the budgets, and releases jobs, for as long as the block lasts.

        Args:
            current: returns the present configuration.
        """

        async def watch() -> None:
            with contextlib.suppress(IrisError, *STORE_ERRORS):
                self._uses = await read_budgets(self._store, self._cluster)
            known, due = None, 0.0
            while True:
                accounting, now = accounting_of(current()), time.monotonic()
                if accounting != known or now >= due:
                    try:
                        await self.look(accounting)
                        known, due = accounting, now + INTERVAL.total_seconds()
                    except (IrisError, RPCError, *STORE_ERRORS) as error:
                        logger.warning("cannot compute the use of budgets, trying again: %s", error)
                await asyncio.sleep(CHECK_INTERVAL.total_seconds())

        async with beside(watch()):
            yield

    async def look(self, accounting: Accounting) -> None:
        """Computes the use of the budgets once, and releases the jobs that they no longer hold.

        Raises:
            IrisError, RPCError, OSError, BaseError: the service or the store does not answer. The
                last result remains.
        """
        if not accounting.budgets and not self._may_hold:
            return
        now = datetime.now(UTC)
        if accounting.budgets:
            days = await self._days(accounting, now)
            found = budget_uses(
                accounting.budgets, days, accounting.teams, accounting.currency, now, self._uses
            )
            self._uses, self._may_hold = tuple(found), True
            content = BudgetUses(at=now, uses=self._uses).model_dump_json()
            await self._store.put(store_paths.budget_uses(self._cluster), content.encode())
        else:
            self._uses = ()
            await self._store.delete([store_paths.budget_uses(self._cluster)])
        is_holding = await self._release(now)
        self._may_hold = bool(accounting.budgets) or is_holding

    async def _days(self, accounting: Accounting, now: datetime) -> list[DayUse]:
        """Returns the use of each user and day since the first of the periods began. Sums up days
        before yesterday only once: all their records are stored.
        """
        begin = min(period_of(budget.per, now)[0] for budget in accounting.budgets)
        present = await uses_not_stored(self._connection)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        recent = max(begin, midnight - _DAY)
        if self._past is None or self._past[:3] != (accounting, begin, recent):
            past = []
            if begin < recent:
                past = await self._between(begin, recent, present, accounting)
            self._past = accounting, begin, recent, past
        return [*self._past[3], *await self._between(recent, now, present, accounting)]

    async def _between(
        self, since: datetime, until: datetime, present: list[Use], accounting: Accounting
    ) -> list[DayUse]:
        asked = Question(since, until, ("user", "day"))
        return [*_days_in(await report_of(self._store, self._cluster, asked, present, accounting))]

    async def _release(self, now: datetime) -> bool:
        """Releases the jobs that budgets held and hold no longer. Returns whether there may be
        others, or the release of one is not known to have succeeded.

        Raises:
            Unreachable: the service does not answer.
        """
        held = f"{names.SA_STATE} = '{JobState.HELD}' AND ExecutionStatus = 'Running'"
        query = f"{self._connection.list_query(names.KIND_JOB)} AND {held}"
        with self._connection.rpc_errors():
            listed = self._connection.client.list_workflows(query)
            jobs = [names.job_of_workflow(each.id) async for each in listed]
        is_holding = False
        for job in jobs:
            try:
                status = await self._jobs.status(job)
                user = job.partition("/")[0]
                if status.held and is_released(status.reason, user, self._uses, now):
                    is_holding = True
                    await self._jobs.release(job)
            except IrisError as error:  # it has just ended, for instance; it must not delay others
                logger.info("cannot release %s: %s", job, error)
                is_holding = True
        return is_holding


def _days_in(report: UsageReport) -> Iterable[DayUse]:
    for row in report.rows:
        yield DayUse(row.by["user"], datetime.fromisoformat(row.by["day"]).date(), row)


@contextlib.asynccontextmanager
async def publishing_accounting(
    cluster: str, store: str, current: Callable[[], ClusterConfig]
) -> AsyncIterator[None]:
    """Keeps the prices and teams in the store those of the configuration for as long as the block
    lasts. Jobs do not wait for it.

    Args:
        current: returns the present configuration.
    """

    async def keep() -> None:
        published: Accounting | None = None
        while True:
            accounting = accounting_of(current())
            if accounting != published:
                try:
                    await publish(Store(store), cluster, accounting)
                    published = accounting
                except (IrisError, *STORE_ERRORS) as error:
                    logger.warning(
                        "cannot write the prices into the store, trying again: %s", error
                    )
            await asyncio.sleep(CHECK_INTERVAL.total_seconds())

    async with beside(keep()):
        yield


async def publish(store: Store, cluster: str, accounting: Accounting) -> None:
    """Writes the prices and teams of the cluster. Deletes them if there are none.

    Raises:
        OSError, BaseError: the store does not answer.
    """
    path = store_paths.accounting(cluster)
    if accounting.rates or accounting.teams or accounting.budgets:
        await store.put(path, accounting.model_dump_json().encode())
    else:
        await store.delete([path])
