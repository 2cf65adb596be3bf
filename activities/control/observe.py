"""Observes the fleet: agents through Temporal's own list of workers, machines through the
platform's list.

A service without such a list of workers lists the polls of task queues. But polls are a coarse
measure: only the begin of a poll is known, an idle poll lasts a minute, and the poll of a dead
agent is listed for minutes.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import NamedTuple

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, ListWorkersRequest
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.ledger_check import missing_hosts
from iris.activities.control.platform_calls import platform_call
from iris.activities.control.repetition import try_again
from iris.activities.host.machine import ping
from iris.autoscaling.liveness import (
    OBSERVE_INTERVAL,
    POLL_LIMIT,
    RECONNECT,
    SILENCE,
    WITNESSES,
    Silent,
    age_of_new_report,
    must_be_pinged,
    need_witnesses,
    silent_hosts,
)
from iris.autoscaling.missing_hosts import MissingHost
from iris.concurrency import for_each
from iris.messages.autoscaler import FleetReport, ObserveFleet, digest_of
from iris.messages.scheduler import Snapshot, SnapshotPage
from iris.messages.wire import ClusterName
from iris.model import names
from iris.model.slice.provisioning import ANYWHERE, FleetListing, SliceObservation
from iris.model.slice.scaling import Wanted
from iris.platforms.base import PlatformError, SliceOps

logger = logging.getLogger(__name__)

PAGE = 1_000
#: How many seconds the platform may take to list its machines. If it takes longer, the observation
#: of the fleet contains the silent hosts, but not the state of the machines.
LIST_PATIENCE = 10
#: How many seconds the comparison of the slices with the scheduler's ledger may take.
LEDGER_PATIENCE = 5
#: The maximum number of task queues that one observation describes, to find when each host last
#: polled. Later observations describe the others.
MOST_POLLS_READ = 1_000
#: The maximum number of task queues that the observer describes at the same time, to find when each
#: host last polled. Temporal allows 2,400 requests a second in a namespace by default.
POLLS_AT_ONCE = 50


class FleetObserver:
    """Activities that observe the machines and hosts of a cluster. They change nothing.

    The time in an agent's report is that of the host's clock, which may be wrong by any amount. So
    a report counts as new if it differs from the last one, and its age is measured by the clock of
    this process. The host's clock is used only to find when the report arrived between two
    observations (`liveness.age_of_new_report`). A restarted control plane has no earlier reports.
    """

    def __init__(self, client: Client, platform: SliceOps | None = None) -> None:
        self._client = client
        self._platform = platform
        #: The last known observation of each slice's machines, by slice id. The next fleet report
        #: contains only the observations that differ from these.
        self._reported: dict[str, SliceObservation] = {}
        #: The number of the last `FleetReport` that `observe_fleet` returned.
        self._number = 0
        #: The last report (Temporal's worker heartbeat) of each process of an agent or of the
        #: control plane, by the process's `worker_instance_key`.
        self._seen: dict[str, _Report] = {}
        #: When the agents' reports were last read, on the monotonic clock of this process; None if
        #: never.
        self._observed_at: float | None = None
        #: True if a recent report (worker heartbeat) of the control plane's own worker has arrived.
        #: The service then delivers the reports of agents, too, so that an agent without a report
        #: counts as silent.
        self._reports_arrive = False
        #: False if the Temporal service could not deliver the last pings to hosts. The observer
        #: then reads when each silent host last polled instead.
        self._can_ping = True
        #: When each host last answered a ping or began a poll, on this process's monotonic clock,
        #: by (host, incarnation).
        self._answered: dict[tuple[str, str], float] = {}
        #: The number of silent hosts that do not count as lost, because the witnesses (other hosts
        #: that were pinged) did not answer either.
        self._held = 0
        #: The last time at which some hosts were silent and the witnesses (other hosts that were
        #: pinged) did not answer either. For `RECONNECT` from then on, no host counts as lost. None
        #: if there was no such case, or it is over.
        self._held_at: float | None = None
        #: When an agent that should report was first missing in the server's list of workers, by
        #: (host, incarnation). A new agent is missing there for ten seconds, and so is every agent
        #: after a restart of the server. So an agent counts as silent only when it has been missing
        #: for longer than `SILENCE`.
        self._missed: dict[tuple[str, str], float] = {}
        #: The agents that reported within `SILENCE` when the reports were last read, as (host,
        #: incarnation).
        self._reporting: set[tuple[str, str]] = set()

    @activity.defn
    async def query_wanted(self, ref: ClusterName) -> Wanted:
        """Returns the demand that the scheduler could not place, and the idle and broken slices."""
        scheduler = self._client.get_workflow_handle(names.scheduler_workflow(ref.cluster))
        wanted: Wanted = await scheduler.query("wanted", result_type=Wanted)
        # This is the server's clock, which slices also use. The time is in the history, so a replay
        # decides the same.
        return wanted.model_copy(update={"as_of": activity.info().scheduled_time})

    @activity.defn
    async def observe_fleet(self, request: ObserveFleet) -> FleetReport:
        """Returns the silent hosts, and the changes of the machines.

        With `patience`, an observation without news fails, and the service tries again after the
        pause. That adds nothing to the history of the autoscaler.

        Raises:
            ApplicationError: there is no news yet.
        """
        if request.patience is None:
            return await self._observe(request)
        patience = request.patience
        number = patience.before + activity.info().attempt
        report = await self._observe(request.model_copy(update=patience.extras(number)))
        if not patience.is_news(report):
            try_again(patience, f"observation {number}: nothing has changed")
        return report.model_copy(update={"observations": number})

    async def _observe(self, request: ObserveFleet) -> FleetReport:
        if not request.machines or self._platform is None:
            silent, report = await self._silent_hosts(request.cluster), FleetReport()
        else:
            silent, report = await asyncio.gather(
                self._silent_hosts_if_known(request.cluster),
                self._machines(request, self._platform),
            )
        missing = await self._missing_hosts(request.cluster) if request.ledger else None
        return report.model_copy(update={"silent": silent, "held": self._held, "missing": missing})

    async def _missing_hosts(self, cluster: str) -> tuple[MissingHost, ...] | None:
        """Returns the hosts of READY slices that the ledger does not have; None if the two cannot
        be compared in time.
        """
        try:
            async with asyncio.timeout(LEDGER_PATIENCE):
                expected = await self._expected(cluster)
                agents, slices = (
                    {host.agent for host in expected},
                    {host.slice_id for host in expected},
                )
                return await missing_hosts(self._client, cluster, agents, slices, self._reporting)
        except (RPCError, WorkflowQueryFailedError, TimeoutError) as error:
            logger.warning("the slices cannot be compared with the scheduler's ledger: %s", error)
            return None

    async def _machines(self, request: ObserveFleet, platform: SliceOps) -> FleetReport:
        """Returns the changes since the last report that was received, machines without a workflow,
        and slices without machines.
        """
        listing, owned = await asyncio.gather(
            self._list_machines(platform), self._owned(request.cluster)
        )
        expected = request.patience is not None and request.patience.owned == digest_of(owned)
        if request.last_report != self._number:
            self._reported = {}
        seen = {each.slice_id: each for each in listing.slices}
        changed = tuple(
            each for each in listing.slices if self._reported.get(each.slice_id) != each
        )
        # Keep the last observations of slices in zones that could not be listed.
        self._reported = {**(self._reported if listing.unreachable else {}), **seen}
        self._number += bool(changed) or request.last_report != self._number
        return FleetReport(
            at=activity.info().current_attempt_scheduled_time,
            number=self._number,
            changed=changed,
            absent=tuple(sorted(self._absent(owned - seen.keys(), listing))),
            unowned=tuple(each for each in listing.slices if each.slice_id not in owned),
            unreachable=listing.unreachable,
            owned=tuple(sorted(owned)) if request.census and not expected else None,
        )

    def _absent(self, missing: set[str], listing: FleetListing) -> Iterable[str]:
        """Returns the slices that the listing would have if they existed, as far as their zones are
        known here.
        """
        if ANYWHERE not in listing.unreachable:
            return missing
        last = ((each, self._reported.get(each)) for each in missing)
        return (each for each, seen in last if seen is not None and listing.knows(seen.zone))

    async def _list_machines(self, platform: SliceOps) -> FleetListing:
        try:
            with platform_call("list", repeats=True):
                return await asyncio.wait_for(platform.list_slices(), LIST_PATIENCE)
        except TimeoutError:
            return FleetListing(
                unreachable={
                    ANYWHERE: f"the platform did not list its machines within {LIST_PATIENCE} s"
                }
            )
        except PlatformError as error:
            logger.warning("the machines could not be listed: %s", error)
            return FleetListing(unreachable={ANYWHERE: str(error)})

    async def _owned(self, cluster: str) -> set[str]:
        """Returns the slices that were created and have a workflow."""
        prefix = names.slice_workflow(cluster, "")
        return {
            execution.id.removeprefix(prefix)
            async for execution in self._client.list_workflows(made_slices(cluster), page_size=PAGE)
        }

    async def _silent_hosts_if_known(self, cluster: str) -> tuple[Silent, ...]:
        """Returns the silent hosts; none if the scheduler does not answer. The observation of the
        machines must not fail because of that.
        """
        try:
            return await self._silent_hosts(cluster)
        except (RPCError, WorkflowQueryFailedError) as error:
            logger.warning("the hosts' reports are not available: %s", error)
            return ()

    async def _silent_hosts(self, cluster: str) -> tuple[Silent, ...]:
        expected = await self._expected(cluster)
        # Always read the reports: the next observation needs their times.
        ages = await self._ages(cluster)
        now = time.monotonic()
        absent = {host.agent for host in expected} - ages.keys()
        self._missed = {agent: self._missed.get(agent, now) for agent in absent}
        ages.update({agent: now - since for agent, since in self._missed.items()})
        self._answered = {agent: at for agent, at in self._answered.items() if agent in ages}
        ages.update({agent: min(ages[agent], now - at) for agent, at in self._answered.items()})
        silent = silent_hosts(expected, ages)
        by_polls = not (self._reports_arrive and self._can_ping)
        if by_polls:
            silent = await self._without_poll(cluster, filter(must_be_pinged, silent))
        answers = await ping.ask(self._client, cluster, filter(must_be_pinged, silent))
        self._can_ping = None not in answers.values() if answers else self._can_ping
        now = time.monotonic()
        self._answered.update({agent: now for agent, answer in answers.items() if answer})

        def is_unanswered(host: Silent) -> bool:
            # The answer is None if the service cannot ping. Then the host's polls decide, in the
            # next observation if not in this one.
            return host.agent in answers and (answers[host.agent] is False or by_polls)

        silent = [
            host.model_copy(update={"unanswered": is_unanswered(host)})
            for host in silent
            if not answers.get(host.agent)
        ]
        gone = any(host.unanswered for host in silent)
        if gone and need_witnesses(silent, expected, by_polls=by_polls):
            if not await self._witnesses_answer(cluster, expected, silent):
                self._held_at = time.monotonic()
                logger.warning(
                    "%d of %d hosts are silent, and too few others reach the service: none is given"
                    " up",
                    len(silent),
                    len(expected),
                )
            if (
                self._held_at is not None
                and time.monotonic() - self._held_at < RECONNECT.total_seconds()
            ):
                self._held = len(silent)
                # They are not even suspects: later, two observations have to agree again.
                return ()
        self._held, self._held_at = 0, None
        return tuple(silent)

    async def _without_poll(self, cluster: str, hosts: Iterable[Silent]) -> list[Silent]:
        """Returns the hosts without a report, an answer or a poll for `POLL_LIMIT`. One observation
        reads the polls of a limited number of hosts.
        """
        ages = await poll_ages(self._client, cluster, hosts := list(hosts))
        now = time.monotonic()
        self._answered.update({agent: now - age for agent, age in ages.items() if age is not None})
        without = []
        for host in hosts:
            poll, other = ages.get(host.agent, 0.0), host.age
            age = min((each for each in (poll, other) if each is not None), default=None)
            if age is None or age > POLL_LIMIT.total_seconds():
                without.append(host.model_copy(update={"age": age}))
        return without

    async def _witnesses_answer(
        self, cluster: str, expected: Iterable[Silent], silent: Iterable[Silent]
    ) -> bool:
        """Returns whether other hosts reach the service now: most of a sample answer a ping, or one
        has just begun a poll.
        """
        suspects = {host.agent for host in silent}
        others = [host for host in expected if host.agent not in suspects]
        if self._can_ping:
            answers = await ping.ask(self._client, cluster, others[:WITNESSES])
            return 2 * sum(map(bool, answers.values())) > len(answers)
        ages = (await poll_ages(self._client, cluster, others)).values()
        return any(age is not None and age <= OBSERVE_INTERVAL.total_seconds() for age in ages)

    async def _expected(self, cluster: str) -> list[Silent]:
        scheduler = self._client.get_workflow_handle(names.scheduler_workflow(cluster))
        hosts: list[Silent] = []
        while True:
            page = await scheduler.query(
                "snapshot", SnapshotPage(offset=len(hosts), limit=PAGE), result_type=Snapshot
            )
            hosts.extend(
                Silent(
                    host_id=view.host.id,
                    slice_id=view.host.slice_id,
                    incarnation=view.host.incarnation,
                )
                for view in page.hosts
            )
            if not page.hosts or len(hosts) >= page.total_hosts:
                return hosts

    async def _ages(self, cluster: str) -> dict[tuple[str, str], float]:
        """Returns the seconds since each agent's last report, by (host, incarnation).

        The server still has the last report of an agent's earlier process, which has the same
        identity. The later of the two counts. The control plane sends the same kind of reports,
        which show whether reports arrive at all.
        """
        now, clock = time.monotonic(), time.time()
        since_last_observation = now - self._observed_at if self._observed_at is not None else None
        seen: dict[str, _Report] = {}
        ages: dict[tuple[str, str], float] = {}
        reports_arrive = False
        async for heartbeat in self._heartbeats():
            host = names.host_of_queue(cluster, heartbeat.task_queue)
            own = heartbeat.task_queue == names.control_queue(cluster)
            if host is None and not own:
                continue
            sent, process = (
                heartbeat.heartbeat_time.ToMilliseconds() / 1000,
                heartbeat.worker_instance_key,
            )
            report = self._seen.get(process)
            if report is None or report.sent != sent:
                report = _Report(
                    sent, now - age_of_new_report(clock - sent, since_last_observation)
                )
            seen[process] = report
            if host is None:
                reports_arrive |= now - report.received <= SILENCE.total_seconds()
                continue
            agent = (host, names.incarnation_of(heartbeat.worker_identity))
            ages[agent] = min(now - report.received, ages.get(agent, now - report.received))
        self._seen, self._observed_at, self._reports_arrive = seen, now, reports_arrive
        self._reporting = {agent for agent, age in ages.items() if age <= SILENCE.total_seconds()}
        return ages

    async def _heartbeats(self) -> AsyncIterator[WorkerHeartbeat]:
        """Yields the last report of every worker in the namespace, if the service has reports."""
        request = ListWorkersRequest(namespace=self._client.namespace, page_size=PAGE)
        while True:
            try:
                response = await self._client.workflow_service.list_workers(request)
            except RPCError as error:
                if error.status is RPCStatusCode.UNIMPLEMENTED:
                    return
                raise
            for info in response.workers_info:
                yield info.worker_heartbeat
            if not response.next_page_token:
                return
            request.next_page_token = response.next_page_token


class _Report(NamedTuple):
    """The times at which an agent's report was sent and received."""

    #: When the agent sent the report, by the clock of the agent's host.
    sent: float
    #: When the report arrived, by this process's monotonic clock.
    received: float


def made_slices(cluster: str) -> str:
    """Returns the query for the running workflows of created slices. Slices that joined have no
    scale group.
    """
    return (
        f"{names.own_workflows(cluster, names.KIND_SLICE)} AND {names.SA_GROUP} IS NOT NULL AND"
        " ExecutionStatus = 'Running'"
    )


async def poll_ages(
    client: Client, cluster: str, hosts: Iterable[Silent]
) -> dict[tuple[str, str], float | None]:
    """Returns, by (host, incarnation), how many seconds ago each agent began its last poll; None if
    the service lists no poll of it.

    The age is wrong by the difference between this machine's clock and the service's, which
    `POLL_LIMIT` allows for.

    Raises:
        RPCError: the service does not answer.
    """
    some = list(hosts)[:MOST_POLLS_READ]
    ages = await for_each(some, partial(_poll_age, client, cluster), at_once=POLLS_AT_ONCE)
    return {host.agent: age for host, age in zip(some, ages, strict=True)}


async def _poll_age(client: Client, cluster: str, host: Silent) -> float | None:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=names.host_queue(cluster, host.host_id)),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    try:
        described = await client.workflow_service.describe_task_queue(request)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    identity = names.worker_identity(host.host_id, host.incarnation)
    began = [
        poll.last_access_time.ToMilliseconds() / 1000
        for poll in described.pollers
        if poll.identity == identity
    ]
    return max(0.0, time.time() - max(began)) if began else None
