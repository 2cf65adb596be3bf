"""Checks the parts of a cluster and reads their logs, to find faults."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, ListWorkersRequest

from iris.autoscaling.liveness import SILENCE
from iris.client.client import IrisClient
from iris.client.connect.clusters import ClusterRecord, cluster_dir
from iris.client.connect.rpc import ASK_TIMEOUT, reaching
from iris.client.operate.scaling import FleetClient
from iris.messages.scheduler import HostView, Snapshot, SnapshotPage
from iris.model import names
from iris.model.errors import IrisError, NotFound, Rejected, first_line
from iris.model.units import format_duration
from iris.storage.object_store import STORE_ERRORS, Store

PAGE = 1_000
#: The most hosts that one check names.
NAMED = 5
#: The parts of a local cluster that have a log of their own.
PARTS = ("controller", "supervisor", "temporal")


class Check(BaseModel):
    """The result of one health check."""

    model_config = ConfigDict(frozen=True)

    name: str
    ok: bool
    #: In seconds.
    took: float
    #: What was found, or what is wrong.
    said: str


class WorkerState(StrEnum):
    """The state of an agent or a host."""

    TAKES_WORK = "TAKES_WORK"
    CLOSED = "CLOSED"  # the scheduler places nothing new on it
    SILENT = "SILENT"  # the scheduler relies on it, but it does not report
    UNKNOWN = "UNKNOWN"  # it reports, but the scheduler does not know it yet, or no longer


class WorkerRow(BaseModel):
    """An agent or a host: the service's last report of it, and the scheduler's state of it."""

    model_config = ConfigDict(frozen=True)

    host: str
    #: Empty: the scheduler does not know the host.
    slice: str = ""
    state: WorkerState
    reason: str = ""
    #: The time of the agent's last report, by the agent's own clock; None: the service has no report.
    reported_at: datetime | None = None
    started_at: datetime | None = None
    running: tuple[str, ...] = ()


class _Said(NamedTuple):
    """An agent's last report."""

    reported_at: datetime
    started_at: datetime


def _agent(view: HostView) -> tuple[str, str]:
    return view.host.id, view.host.incarnation


class DebugClient(IrisClient):
    """A connection to one cluster, for finding faults."""

    async def workers(self) -> list[WorkerRow]:
        """Lists every host and every agent, by host id.

        Raises:
            Unreachable: the service or the scheduler does not answer.
        """
        heard = await self._heard()
        now = datetime.now(UTC)
        rows = {view.host.id: await self._row(view, heard.pop(_agent(view), None), now) for view in await self.hosts()}
        for (host, _), said in heard.items():
            if host not in rows and now - said.reported_at <= SILENCE:
                reason = "it reports, but its slice does not take work yet, or no more"
                rows[host] = WorkerRow(host=host, state=WorkerState.UNKNOWN, reason=reason, **said._asdict())
        return [row for _, row in sorted(rows.items())]

    async def health(self) -> list[Check]:
        """Runs all health checks of a cluster whose service answers. Each check is independent of the others."""
        return [
            await checked("control plane", self._polled),
            await checked("scheduler", self._scheduler),
            await checked("autoscaler", self._autoscaler),
            await checked("hosts", self._hosts),
            await checked("store", self._store),
        ]

    # -- private -------------------------------------------------------------------------------------------------------------

    async def _row(self, view: HostView, said: _Said | None, now: datetime) -> WorkerRow:
        """Builds the row of a host that the scheduler knows.

        An agent's first report takes ten seconds. Until then the host is alive if it polls its task queue.
        """
        state, reason = (WorkerState.CLOSED, view.closed) if view.closed else (WorkerState.TAKES_WORK, "")
        if said is None and not await self.polls(view.host):
            state, reason = WorkerState.SILENT, "it has never reported, and asks for no work"
        if said is not None and now - said.reported_at > SILENCE:
            state, reason = WorkerState.SILENT, f"last reported {format_duration(now - said.reported_at)} ago, by its own clock"
        times = said._asdict() if said is not None else {}
        host = view.host
        return WorkerRow(host=host.id, slice=host.slice_id, state=state, reason=reason, running=view.running, **times)

    async def _heard(self) -> dict[tuple[str, str], _Said]:
        """Returns the last report of each agent, by (host, incarnation)."""
        found: dict[tuple[str, str], _Said] = {}
        request = ListWorkersRequest(namespace=self._client.namespace, page_size=PAGE)
        async with reaching(self.cluster):
            while True:
                response = await self._client.workflow_service.list_workers(request, timeout=ASK_TIMEOUT)
                for info in response.workers_info:
                    heartbeat = info.worker_heartbeat
                    host = names.host_of_queue(self.cluster.name, heartbeat.task_queue)
                    if host is None:
                        continue
                    agent = (host, names.incarnation_of(heartbeat.worker_identity))
                    said = _Said(heartbeat.heartbeat_time.ToDatetime(UTC), heartbeat.start_time.ToDatetime(UTC))
                    found[agent] = max(said, found.get(agent, said))
                if not response.next_page_token:
                    return found
                request.next_page_token = response.next_page_token

    async def _polled(self) -> str:
        """Checks that a process polls each of the control plane's two task queues."""
        counts = []
        for queue in (names.control_queue(self.cluster.name), names.planner_queue(self.cluster.name)):
            request = DescribeTaskQueueRequest(
                namespace=self._client.namespace,
                task_queue=TaskQueue(name=queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            )
            async with reaching(self.cluster):
                described = await self._client.workflow_service.describe_task_queue(request, timeout=ASK_TIMEOUT)
            if not described.pollers:
                raise NotFound(f"nobody works for task queue {queue}; see: iris debug logs")
            counts.append(len({poller.identity for poller in described.pollers}))
        return f"{max(counts)} process(es) work for its task queues"

    async def _scheduler(self) -> str:
        shown = await self.ask_scheduler("snapshot", SnapshotPage(limit=0), Snapshot)
        if shown.paused is not None:
            raise Rejected(f"paused: {shown.paused}; go on with: iris cluster resume")
        return f"{shown.total_hosts} host(s), {shown.running} gang(s) run, {shown.waiting} wait"

    async def _autoscaler(self) -> str:
        status = await FleetClient.of(self).autoscaler()
        if status.settings is None:
            return "only watches: there are no scale groups"
        wrong = [f"paused: {status.paused}; go on with: iris autoscaler resume"] if status.paused is not None else []
        wrong += [f"all slices are given back: {status.closing}"] if status.closing is not None else []
        wrong += [f"zone {zone} could not be listed: {why}" for zone, why in sorted(status.unreachable.items())]
        if wrong:
            raise Rejected("; ".join(wrong))
        last = f"{format_duration(datetime.now(UTC) - status.evaluated_at)} ago" if status.evaluated_at else "never"
        return f"{len(status.slices)} slice(s) of {len(status.groups)} group(s); evaluated {last}"

    async def _hosts(self) -> str:
        rows = await self.workers()
        silent = [row.host for row in rows if row.state is WorkerState.SILENT]
        if silent:
            more = f" and {len(silent) - NAMED} more" if len(silent) > NAMED else ""
            raise NotFound(f"{len(silent)} of {len(rows)} do not report: {', '.join(silent[:NAMED])}{more}")
        return f"{len(rows)} report" + (
            f", {closed} closed" if (closed := sum(row.state is WorkerState.CLOSED for row in rows)) else ""
        )

    async def _store(self) -> str:
        try:
            await Store(self.cluster.store).folders("logs")
        except STORE_ERRORS as error:
            raise NotFound(f"{self.cluster.store} cannot be listed: {first_line(error)}") from None
        return f"{self.cluster.store} can be listed"


async def checked(name: str, look: Callable[[], Awaitable[str]]) -> Check:
    """Runs one check and returns its result."""
    began = time.monotonic()
    try:
        said, ok = await look(), True
    except IrisError as error:
        said, ok = str(error), False
    return Check(name=name, ok=ok, took=time.monotonic() - began, said=said)


def local_log(record: ClusterRecord, part: str, tail: int) -> list[str]:
    """Returns the last lines of the log of one part of a local cluster.

    Raises:
        NotFound: there is no log of that part.
    """
    directory = cluster_dir(record.name) / "logs"
    file = directory / f"{part}.log"
    if not file.is_file():
        there_are = ", ".join(sorted(path.stem for path in directory.glob("*.log"))) or "none"
        raise NotFound(f"cluster {record.name} has no log of {part!r}; there are logs of: {there_are}")
    return file.read_text(errors="replace").splitlines()[-tail:] if tail else []
