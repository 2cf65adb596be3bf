"""Looking at the fleet: which agents report, by Temporal's own list of workers."""

import time

from temporalio import activity
from temporalio.api.workflowservice.v1 import ListWorkersRequest
from temporalio.client import Client

from iris import names
from iris.liveness import Silent, silent_hosts
from iris.workflows.messages import ClusterRef, FleetReport, Snapshot, SnapshotPage

PAGE = 1_000


class Fleet:
    """Activities that observe; they change nothing.

    A report carries the host's own clock, which may be wrong by any amount. So a report counts as new when it differs from the
    one seen before, and its age is measured here, from the look that first saw it. A restarted control plane starts anew.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: By (host, incarnation): the report last seen, and when it was first seen, on this process's monotonic clock.
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}
        #: Who ought to report and is not in the server's list, by when that was first so. A new agent's first report takes ten
        #: seconds, and after its own restart the server knows nobody for as long; neither may pass for silence.
        self._missed: dict[tuple[str, str], float] = {}

    @activity.defn
    async def observe_fleet(self, ref: ClusterRef) -> FleetReport:
        """The hosts that ought to report and do not. A quiet fleet gives an empty report, whatever its size."""
        expected = await self._expected(ref.cluster)
        if not expected:
            return FleetReport()
        ages = await self._ages(ref.cluster)
        now = time.monotonic()
        absent = {(host.host_id, host.incarnation) for host in expected} - ages.keys()
        self._missed = {agent: self._missed.get(agent, now) for agent in absent}
        ages.update({agent: now - since for agent, since in self._missed.items()})
        return FleetReport(silent=tuple(silent_hosts(expected, ages)))

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
                before = self._seen.get(agent)
                seen[agent] = before if before and before[0] == report else (report, now)
            if not response.next_page_token:
                break
            request.next_page_token = response.next_page_token
        self._seen = seen
        return {agent: now - since for agent, (_, since) in seen.items()}
