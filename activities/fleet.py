"""Looking at the fleet: which agents report, by Temporal's own list of workers; which machines there are, by the platform's."""

import asyncio
import logging
import time

from temporalio import activity
from temporalio.api.workflowservice.v1 import ListWorkersRequest
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError

from iris import names
from iris.liveness import Silent, silent_hosts
from iris.machines import ANYWHERE, FleetListing, SliceObservation
from iris.platforms.base import PlatformError, SliceOps
from iris.scale_plan import Wanted
from iris.workflows.fleet_messages import FleetReport, Look
from iris.workflows.messages import ClusterRef, Snapshot, SnapshotPage

logger = logging.getLogger(__name__)

PAGE = 1_000
#: A platform that lists its machines more slowly, in seconds, is unknown this time: agents are judged all the same.
LIST_PATIENCE = 10


class Fleet:
    """Activities that observe; they change nothing.

    A report carries the host's own clock, which may be wrong by any amount. So a report counts as new when it differs from the
    one seen before, and its age is measured here, from the look that first saw it. A restarted control plane starts anew.
    """

    def __init__(self, client: Client, platform: SliceOps | None = None) -> None:
        self._client = client
        self._platform = platform
        #: What was last reported of each slice's machines, and the number of that report.
        self._reported: dict[str, SliceObservation] = {}
        self._number = 0
        #: By (host, incarnation): the report last seen, and when it was first seen, on this process's monotonic clock.
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}
        #: Who ought to report and is not in the server's list, by when that was first so. A new agent's first report takes ten
        #: seconds, and after its own restart the server knows nobody for as long; neither may pass for silence.
        self._missed: dict[tuple[str, str], float] = {}

    @activity.defn
    async def ask_wanted(self, ref: ClusterRef) -> Wanted:
        """What the scheduler could not place, and which slices have nothing to do."""
        scheduler = self._client.get_workflow_handle(names.scheduler_workflow(ref.cluster))
        wanted: Wanted = await scheduler.query("wanted", result_type=Wanted)
        # By the server's clock, as slices have it; and from a history, what is decided by it is decided again in a replay.
        return wanted.model_copy(update={"as_of": activity.info().scheduled_time})

    @activity.defn
    async def observe_fleet(self, look: Look) -> FleetReport:
        """The hosts that ought to report and do not, and what is new of the machines."""
        if not look.machines or self._platform is None:
            return FleetReport(silent=await self._silent(look.cluster))
        silent, report = await asyncio.gather(self._silent_if_known(look.cluster), self._machines(look, self._platform))
        return report.model_copy(update={"silent": silent})

    async def _machines(self, look: Look, platform: SliceOps) -> FleetReport:
        """What is new since the report that was heard last, and what has machines but no workflow, or the other way round."""
        listing, owned = await asyncio.gather(self._listed(platform), self._owned(look.cluster))
        if look.heard != self._number:
            self._reported = {}
        seen = {each.slice_id: each for each in listing.slices}
        changed = tuple(each for each in listing.slices if self._reported.get(each.slice_id) != each)
        # What is in a zone that could not be listed is as it was.
        self._reported = {**(self._reported if listing.unreachable else {}), **seen}
        self._number += bool(changed) or look.heard != self._number
        return FleetReport(
            at=activity.info().scheduled_time,
            number=self._number,
            changed=changed,
            absent=() if ANYWHERE in listing.unreachable else tuple(sorted(owned - seen.keys())),
            unowned=tuple(each for each in listing.slices if each.slice_id not in owned),
            unreachable=listing.unreachable,
            owned=tuple(sorted(owned)) if look.census else None,
        )

    async def _listed(self, platform: SliceOps) -> FleetListing:
        try:
            return await asyncio.wait_for(platform.list_slices(), LIST_PATIENCE)
        except TimeoutError:
            return FleetListing(unreachable={ANYWHERE: f"the platform did not list its machines within {LIST_PATIENCE} s"})
        except PlatformError as error:
            logger.warning("the machines could not be listed: %s", error)
            return FleetListing(unreachable={ANYWHERE: str(error)})

    async def _owned(self, cluster: str) -> set[str]:
        """The slices that were made and have a workflow."""
        prefix = names.slice_workflow(cluster, "")
        return {
            execution.id.removeprefix(prefix)
            async for execution in self._client.list_workflows(made_slices(cluster), page_size=PAGE)
        }

    async def _silent_if_known(self, cluster: str) -> tuple[Silent, ...]:
        """The same; nobody when the scheduler does not answer: machines are looked at all the same."""
        try:
            return await self._silent(cluster)
        except (RPCError, WorkflowQueryFailedError) as error:
            logger.warning("the scheduler does not say which hosts there are: %s", error)
            return ()

    async def _silent(self, cluster: str) -> tuple[Silent, ...]:
        expected = await self._expected(cluster)
        if not expected:
            return ()
        ages = await self._ages(cluster)
        now = time.monotonic()
        absent = {(host.host_id, host.incarnation) for host in expected} - ages.keys()
        self._missed = {agent: self._missed.get(agent, now) for agent in absent}
        ages.update({agent: now - since for agent, since in self._missed.items()})
        return tuple(silent_hosts(expected, ages))

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
        """Seconds since each agent's report last changed, by (host, incarnation)."""
        now = time.monotonic()
        seen: dict[tuple[str, str], tuple[int, float]] = {}
        request = ListWorkersRequest(namespace=self._client.namespace, page_size=PAGE)
        while True:
            response = await self._client.workflow_service.list_workers(request)
            for info in response.workers_info:
                heartbeat = info.worker_heartbeat
                host = names.host_of_queue(cluster, heartbeat.task_queue)
                if host is None:
                    continue
                agent = (host, names.incarnation_of(heartbeat.worker_identity))
                report = heartbeat.heartbeat_time.ToMilliseconds()
                # An agent that was started again has the identity of the one before, whose last report the server still knows:
                # their sum changes with either, whatever their clocks say.
                report += seen.get(agent, (0, now))[0]
                before = self._seen.get(agent)
                seen[agent] = before if before and before[0] == report else (report, now)
            if not response.next_page_token:
                break
            request.next_page_token = response.next_page_token
        self._seen = seen
        return {agent: now - since for agent, (_, since) in seen.items()}


def made_slices(cluster: str) -> str:
    """The query for the workflows of slices that were made: those that joined by themselves have no scale group."""
    return (
        f"{names.SA_CLUSTER} = '{cluster}' AND {names.SA_KIND} = '{names.KIND_SLICE}' AND {names.SA_GROUP} IS NOT NULL"
        " AND ExecutionStatus = 'Running'"
    )
