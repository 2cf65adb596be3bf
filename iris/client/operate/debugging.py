"""Checks the parts of a cluster and reads their logs, to find faults."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import ListWorkersRequest
from temporalio.service import RPCError, RPCStatusCode

from iris.autoscaling.liveness import SILENCE
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import ClusterRecord, cluster_dir, read_record
from iris.client.connect.connection import RPC_TIMEOUT
from iris.client.connect.rpc import Connection
from iris.client.operate.controller import answering_client
from iris.client.operate.local.controller import LocalController, controller_of, gcp_controller
from iris.messages.scheduler import HostView
from iris.model import names
from iris.model.errors import IrisError, NotFound, Rejected, first_line
from iris.model.frozen import Frozen
from iris.model.units import format_duration
from iris.storage.object_store import STORE_ERRORS, Store

#: The most hosts that one check names.
NAMED = 5
#: The parts of a local cluster that have a log of their own.
PARTS = ("controller", "supervisor", "temporal")


class Check(Frozen):
    """The result of one health check."""

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


class WorkerRow(Frozen):
    """An agent or a host: the service's last report of it, and the scheduler's state of it."""

    host: str
    #: Empty: the scheduler does not know the host.
    slice: str = ""
    state: WorkerState
    reason: str = ""
    #: The time of the agent's last report, by the agent's own clock; None: the service has no
    #: report.
    reported_at: datetime | None = None
    started_at: datetime | None = None
    running: tuple[str, ...] = ()


PAGE = 1_000


class AgentReport(NamedTuple):
    """The last report of an agent, by the agent's own clock."""

    reported_at: datetime
    started_at: datetime


async def agent_reports(connection: Connection) -> dict[tuple[str, str], AgentReport]:
    """Returns the last report of each agent, by (host, incarnation).

    Raises:
        Rejected, Unreachable: as `worker_reports`.
    """
    found: dict[tuple[str, str], AgentReport] = {}
    async for heartbeat in worker_reports(connection):
        host = names.host_of_queue(connection.record.name, heartbeat.task_queue)
        if host is None:
            continue
        agent = (host, names.incarnation_of(heartbeat.worker_identity))
        report = AgentReport(
            heartbeat.heartbeat_time.ToDatetime(UTC), heartbeat.start_time.ToDatetime(UTC)
        )
        found[agent] = max(report, found.get(agent, report))
    return found


async def worker_reports(connection: Connection) -> AsyncIterator[WorkerHeartbeat]:
    """Yields the last report of each worker of the namespace. Those that ended without saying so
    stay for some minutes.

    Raises:
        Rejected: the service has no such list.
        Unreachable: the service does not answer.
    """
    request = ListWorkersRequest(namespace=connection.client.namespace, page_size=PAGE)
    while True:
        with connection.rpc_errors():
            try:
                response = await connection.client.workflow_service.list_workers(
                    request, timeout=RPC_TIMEOUT
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.UNIMPLEMENTED:
                    raise
                raise Rejected(
                    f"the Temporal service at {connection.record.address} has no list of workers"
                ) from None
        for info in response.workers_info:
            yield info.worker_heartbeat
        if not response.next_page_token:
            return
        request.next_page_token = response.next_page_token


def _agent(view: HostView) -> tuple[str, str]:
    return view.host.id, view.host.incarnation


class Diagnostics:
    """Health checks of one cluster."""

    def __init__(self, client: AsyncIrisClient) -> None:
        self._client = client
        self._connection = client.connection
        self._cluster = client.record

    async def workers(self) -> list[WorkerRow]:
        """Lists every host and every agent, by host id.

        Raises:
            Unreachable: the service or the scheduler does not answer.
        """
        reports = await agent_reports(self._connection)
        now = datetime.now(UTC)
        rows = {
            view.host.id: await self._row(view, reports.pop(_agent(view), None), now)
            for view in await self._client.hosts.list()
        }
        for (host, _), report in reports.items():
            if host not in rows and now - report.reported_at <= SILENCE:
                reason = "it reports, but its slice does not take work yet, or no longer does"
                rows[host] = WorkerRow(
                    host=host, state=WorkerState.UNKNOWN, reason=reason, **report._asdict()
                )
        return [row for _, row in sorted(rows.items())]

    async def health(self) -> list[Check]:
        """Runs all health checks of a cluster whose service answers. Each check is independent of
        the others.
        """
        return [
            await run_check("control plane", self._control_plane),
            await run_check("scheduler", self._scheduler),
            await run_check("autoscaler", self._autoscaler),
            await run_check("hosts", self._hosts),
            await run_check("store", self._store),
        ]

    # -- private
    # ----------------------------------------------------------------------------------------------

    async def _row(self, view: HostView, report: AgentReport | None, now: datetime) -> WorkerRow:
        """Builds the row of a host that the scheduler knows.

        An agent's first report takes ten seconds. Until then the host is alive if it polls its task
        queue.
        """
        state, reason = (
            (WorkerState.CLOSED, view.closed) if view.closed else (WorkerState.TAKES_WORK, "")
        )
        if report is None and not await self._client.hosts.polls(view.host):
            state, reason = WorkerState.SILENT, "it has never reported, and polls no task queue"
        if report is not None and now - report.reported_at > SILENCE:
            state, reason = (
                WorkerState.SILENT,
                f"last reported {format_duration(now - report.reported_at)} ago, by its own clock",
            )
        times = report._asdict() if report is not None else {}
        host = view.host
        return WorkerRow(
            host=host.id,
            slice=host.slice_id,
            state=state,
            reason=reason,
            running=view.running,
            **times,
        )

    async def _control_plane(self) -> str:
        """Checks that a process polls each of the control plane's three task queues."""
        name, counts = self._cluster.name, []
        for queue in (
            names.control_queue(name),
            names.planner_queue(name),
            names.patient_queue(name),
        ):
            # The worker of the last one runs activities only.
            pollers = await self._connection.pollers(
                queue, activities=queue == names.patient_queue(name)
            )
            if not pollers:
                raise NotFound(f"no process polls task queue {queue}; see: iris debug logs")
            counts.append(len(pollers))
        return f"{max(counts)} process(es) poll its task queues"

    async def _scheduler(self) -> str:
        status = await self._client.cluster.status()
        if status.paused is not None:
            raise Rejected(f"paused: {status.paused}; resume with: iris cluster resume")
        return f"{status.total_hosts} host(s), {status.running} gang(s) run, {status.waiting} wait"

    async def _autoscaler(self) -> str:
        status = await self._client.autoscaler.status()
        created = {each.id for each in status.slices}
        problems = [each.problem(created) for each in status.missing[:NAMED]]
        if len(status.missing) > NAMED:
            problems.append(
                f"{len(status.missing) - NAMED} more hosts are missing; see: iris cluster status"
            )
        problems += (
            [f"paused: {status.paused}; resume with: iris autoscaler resume"]
            if status.paused is not None
            else []
        )
        problems += (
            [f"all slices are being deleted: {status.closing}"]
            if status.closing is not None
            else []
        )
        problems += [
            f"zone {zone} could not be listed: {why}"
            for zone, why in sorted(status.unreachable.items())
        ]
        if problems:
            raise Rejected("; ".join(problems))
        if status.settings is None:
            return "no scale groups, so it creates and deletes nothing"
        last = (
            f"{format_duration(datetime.now(UTC) - status.evaluated_at)} ago"
            if status.evaluated_at
            else "never"
        )
        return f"{len(status.slices)} slice(s) of {len(status.groups)} group(s); evaluated {last}"

    async def _hosts(self) -> str:
        rows = await self.workers()
        silent = [row.host for row in rows if row.state is WorkerState.SILENT]
        if silent:
            more = f" and {len(silent) - NAMED} more" if len(silent) > NAMED else ""
            raise NotFound(
                f"{len(silent)} of {len(rows)} do not report: {', '.join(silent[:NAMED])}{more}"
            )
        return f"{len(rows)} report" + (
            f", {closed} closed"
            if (closed := sum(row.state is WorkerState.CLOSED for row in rows))
            else ""
        )

    async def _store(self) -> str:
        try:
            await Store(self._cluster.store).folders("logs")
        except STORE_ERRORS as error:
            raise NotFound(f"{self._cluster.store} cannot be listed: {first_line(error)}") from None
        return f"{self._cluster.store} can be listed"


async def run_check(name: str, check: Callable[[], Awaitable[str]]) -> Check:
    """Runs one check and returns its result."""
    began = time.monotonic()
    try:
        said, ok = await check(), True
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
        existing = ", ".join(sorted(path.stem for path in directory.glob("*.log"))) or "none"
        raise NotFound(
            f"cluster {record.name} has no log of {part!r}; there are logs of: {existing}"
        )
    return file.read_text(errors="replace").splitlines()[-tail:] if tail else []


class MachineSeen(Frozen):
    """A control plane's machine, as its platform reports it."""

    name: str
    zone: str
    project: str
    #: Google's status, such as RUNNING.
    status: str
    #: The address in its network.
    address: str = ""


class Discovery(Frozen):
    """A cluster's location and state."""

    cluster: str
    platform: str
    #: Whether the control plane's process or machine runs; None: unknown from here.
    running: bool | None = None
    #: Whether the scheduler and the autoscaler answer.
    healthy: bool = False
    #: `host:port` of its Temporal service, as this machine reaches it; empty: it cannot be reached.
    address: str = ""
    namespace: str = ""
    store: str = ""
    ui: str = ""
    #: The control plane's machine on Google Cloud; None: there is none.
    machine: MachineSeen | None = None


def discovery(cluster: ClusterRef) -> Discovery:
    """Returns the cluster's location and whether it answers. Opens a tunnel to a running cluster
    that needs one.
    """
    if cluster.platform == "address":
        return asyncio.run(_at_address(cluster))
    machine = None
    if cluster.platform == "local":
        status = LocalController.of(cluster.name).status()
    elif cluster.platform == "manual":
        status = controller_of(cluster).status()
    else:
        controller = gcp_controller(cluster, "its location is not known here")
        status = controller.status()
        seen, project = asyncio.run(controller.seen()), cluster.controller_vm("").project
        if seen is not None:
            machine = MachineSeen(
                project=project, **seen.model_dump(include={"name", "zone", "status", "address"})
            )
    record = read_record(cluster.name)
    known = (
        record.model_dump(include={"namespace", "store", "ui"})
        if record is not None and status.running
        else {}
    )
    running = {"running": status.running, "healthy": status.healthy, "address": status.address}
    return Discovery(
        cluster=cluster.name, platform=cluster.platform, machine=machine, **running, **known
    )


async def _at_address(cluster: ClusterRef) -> Discovery:
    record = (await AsyncIrisClient.connect(cluster)).record
    known = record.model_dump(include={"address", "namespace", "store", "ui"})
    return Discovery(
        cluster=record.name,
        platform="address",
        healthy=await answering_client(cluster.name) is not None,
        **known,
    )
