"""Observes the fleet: agents through Temporal's own list of workers, machines through the platform's list."""

import asyncio
import logging
import time
from typing import NamedTuple

from temporalio import activity
from temporalio.api.workflowservice.v1 import ListWorkersRequest
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError

from iris.activities.host import ping
from iris.autoscaling.liveness import Silent, age_of_new_report, must_be_pinged, silent_hosts
from iris.messages.autoscaler import FleetReport, ObserveFleet
from iris.messages.scheduler import Snapshot, SnapshotPage
from iris.messages.wire import ClusterName
from iris.model import names
from iris.model.provisioning import ANYWHERE, FleetListing, SliceObservation
from iris.model.scaling import Wanted
from iris.platforms.base import PlatformError, SliceOps

logger = logging.getLogger(__name__)

PAGE = 1_000
#: How many seconds the platform may take to list its machines. After that their state is unknown in this observation; agents are
#: judged regardless.
LIST_PATIENCE = 10


class FleetObserver:
    """Activities that observe; they change nothing.

    A report carries the host's own clock, which may be wrong by any amount. So a report counts as new if it differs from the last
    one seen, and its age is measured here. The host's clock only tells when between two observations the report arrived
    (`liveness.age_of_new_report`). A restarted control plane starts without any earlier reports.
    """

    def __init__(self, client: Client, platform: SliceOps | None = None) -> None:
        self._client = client
        self._platform = platform
        #: The last reported observation of each slice's machines, and the number of that report.
        self._reported: dict[str, SliceObservation] = {}
        self._number = 0
        #: The last report of each agent's process, by the process's key.
        self._seen: dict[str, _Report] = {}
        #: When the reports were last read; None: never. All times are on this process's monotonic clock.
        self._observed_at: float | None = None
        #: When each host that was pinged last answered, by (host, incarnation).
        self._answered: dict[tuple[str, str], float] = {}
        #: When an agent that should report was first absent from the server's list. A new agent's first report takes ten
        #: seconds, and a restarted server knows no agent for as long; neither may count as silence.
        self._missed: dict[tuple[str, str], float] = {}

    @activity.defn(name="ask_wanted")
    async def query_wanted(self, ref: ClusterName) -> Wanted:
        """Returns what the scheduler could not place, and which slices are idle or broken."""
        scheduler = self._client.get_workflow_handle(names.scheduler_workflow(ref.cluster))
        wanted: Wanted = await scheduler.query("wanted", result_type=Wanted)
        # The server's clock, as slices use it. It comes from the history, so that a replay decides the same.
        return wanted.model_copy(update={"as_of": activity.info().scheduled_time})

    @activity.defn
    async def observe_fleet(self, request: ObserveFleet) -> FleetReport:
        """Returns the hosts that should report and do not, and the changes of the machines."""
        if not request.machines or self._platform is None:
            return FleetReport(silent=await self._silent_hosts(request.cluster))
        silent, report = await asyncio.gather(
            self._silent_hosts_if_known(request.cluster), self._machines(request, self._platform)
        )
        return report.model_copy(update={"silent": silent})

    async def _machines(self, request: ObserveFleet, platform: SliceOps) -> FleetReport:
        """Returns the changes since the last report that was received, machines without a workflow, and slices without
        machines."""
        listing, owned = await asyncio.gather(self._list_machines(platform), self._owned(request.cluster))
        if request.heard != self._number:
            self._reported = {}
        seen = {each.slice_id: each for each in listing.slices}
        changed = tuple(each for each in listing.slices if self._reported.get(each.slice_id) != each)
        # Slices in a zone that could not be listed keep their last observation.
        self._reported = {**(self._reported if listing.unreachable else {}), **seen}
        self._number += bool(changed) or request.heard != self._number
        return FleetReport(
            at=activity.info().scheduled_time,
            number=self._number,
            changed=changed,
            absent=() if ANYWHERE in listing.unreachable else tuple(sorted(owned - seen.keys())),
            unowned=tuple(each for each in listing.slices if each.slice_id not in owned),
            unreachable=listing.unreachable,
            owned=tuple(sorted(owned)) if request.census else None,
        )

    async def _list_machines(self, platform: SliceOps) -> FleetListing:
        try:
            return await asyncio.wait_for(platform.list_slices(), LIST_PATIENCE)
        except TimeoutError:
            return FleetListing(unreachable={ANYWHERE: f"the platform did not list its machines within {LIST_PATIENCE} s"})
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
        """Returns the silent hosts, or none if the scheduler does not answer: machines are observed regardless."""
        try:
            return await self._silent_hosts(cluster)
        except (RPCError, WorkflowQueryFailedError) as error:
            logger.warning("the hosts' reports are not available: %s", error)
            return ()

    async def _silent_hosts(self, cluster: str) -> tuple[Silent, ...]:
        expected = await self._expected(cluster)
        ages = await self._ages(cluster)  # always: the next observation needs these to tell when a report came
        now = time.monotonic()
        absent = {host.agent for host in expected} - ages.keys()
        self._missed = {agent: self._missed.get(agent, now) for agent in absent}
        ages.update({agent: now - since for agent, since in self._missed.items()})
        self._answered = {agent: at for agent, at in self._answered.items() if agent in ages}
        ages.update({agent: min(ages[agent], now - at) for agent, at in self._answered.items()})
        silent = silent_hosts(expected, ages)
        answers = await ping.ask(self._client, cluster, filter(must_be_pinged, silent))
        now = time.monotonic()
        self._answered.update({agent: now for agent, answer in answers.items() if answer})
        return tuple(
            host.model_copy(update={"unanswered": host.agent in answers}) for host in silent if not answers.get(host.agent)
        )

    async def _expected(self, cluster: str) -> list[Silent]:
        scheduler = self._client.get_workflow_handle(names.scheduler_workflow(cluster))
        hosts: list[Silent] = []
        while True:
            page = await scheduler.query("snapshot", SnapshotPage(offset=len(hosts), limit=PAGE), result_type=Snapshot)
            hosts.extend(
                Silent(host_id=view.host.id, slice_id=view.host.slice_id, incarnation=view.host.incarnation)
                for view in page.hosts
            )
            if not page.hosts or len(hosts) >= page.total_hosts:
                return hosts

    async def _ages(self, cluster: str) -> dict[tuple[str, str], float]:
        """Returns the seconds since each agent's last report, by (host, incarnation).

        A restarted agent has the identity of the one before, whose last report the server still has: the younger of the two
        counts.
        """
        now, clock = time.monotonic(), time.time()
        since_last_observation = now - self._observed_at if self._observed_at is not None else None
        seen: dict[str, _Report] = {}
        ages: dict[tuple[str, str], float] = {}
        request = ListWorkersRequest(namespace=self._client.namespace, page_size=PAGE)
        while True:
            response = await self._client.workflow_service.list_workers(request)
            for info in response.workers_info:
                heartbeat = info.worker_heartbeat
                host = names.host_of_queue(cluster, heartbeat.task_queue)
                if host is None:
                    continue
                sent, process = heartbeat.heartbeat_time.ToMilliseconds() / 1000, heartbeat.worker_instance_key
                report = self._seen.get(process)
                if report is None or report.sent != sent:
                    report = _Report(sent, now - age_of_new_report(clock - sent, since_last_observation))
                seen[process] = report
                agent = (host, names.incarnation_of(heartbeat.worker_identity))
                ages[agent] = min(now - report.received, ages.get(agent, now - report.received))
            if not response.next_page_token:
                break
            request.next_page_token = response.next_page_token
        self._seen, self._observed_at = seen, now
        return ages


class _Report(NamedTuple):
    """The times of an agent's report: sent, by the host's clock, and received, by this process's clock."""

    sent: float
    received: float


def made_slices(cluster: str) -> str:
    """Returns the query for the workflows of slices that were created; slices that joined have no scale group."""
    return (
        f"{names.SA_CLUSTER} = '{cluster}' AND {names.SA_KIND} = '{names.KIND_SLICE}' AND {names.SA_GROUP} IS NOT NULL"
        " AND ExecutionStatus = 'Running'"
    )
