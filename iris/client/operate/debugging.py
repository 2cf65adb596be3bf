"""Checks the parts of a cluster and reads their logs, to find faults."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum

from iris.autoscaling.liveness import SILENCE
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord, cluster_dir
from iris.client.operate.worker_reports import AgentReport, agent_reports
from iris.messages.scheduler import HostView
from iris.model import names
from iris.model.errors import IrisError, NotFound, Rejected, first_line
from iris.model.frozen import Frozen
from iris.model.units import format_duration
from iris.storage.object_store import STORE_ERRORS, Store

#: The maximum number of hosts that the message of one health check names.
NAMED = 5
#: The parts of a local cluster that have their own log.
PARTS = ("controller", "supervisor", "temporal")


class Check(Frozen):
    """The result of one health check."""

    name: str
    ok: bool
    #: The duration of the check, in seconds.
    took: float
    #: The text of the result: what the check found, or the problem.
    said: str


class WorkerState(StrEnum):
    """The state of a host and its agent."""

    TAKES_WORK = "TAKES_WORK"
    CLOSED = "CLOSED"  # the scheduler places nothing new on it
    SILENT = "SILENT"  # the scheduler relies on it, but it does not report
    UNKNOWN = "UNKNOWN"  # it reports, but the scheduler does not know it yet, or no longer


class WorkerRow(Frozen):
    """A host and its agent: the last report that the service has of the agent, and the scheduler's
    state of the host.
    """

    host: str
    #: The host's slice; empty if the scheduler does not know the host.
    slice: str = ""
    state: WorkerState
    reason: str = ""
    #: The time of the agent's last report, by the agent's own clock; None if the service has no
    #: report.
    reported_at: datetime | None = None
    started_at: datetime | None = None
    running: tuple[str, ...] = ()


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
                    host=host, state=WorkerState.UNKNOWN, reason=reason, **report.times
                )
        return [row for _, row in sorted(rows.items())]

    async def health(self) -> list[Check]:
        """Runs all health checks of a cluster whose service answers. Each check is independent of
        the others. They run at the same time, except for the two that query the scheduler: the
        service keeps few queries of a workflow that does not answer.
        """

        async def of_scheduler() -> tuple[Check, Check]:
            return (
                await run_check("scheduler", self._scheduler),
                await run_check("hosts", self._hosts),
            )

        control_plane, (scheduler, hosts), autoscaler, store = await asyncio.gather(
            run_check("control plane", self._control_plane),
            of_scheduler(),
            run_check("autoscaler", self._autoscaler),
            run_check("store", self._store),
        )
        return [control_plane, scheduler, autoscaler, hosts, store]

    # -- private
    # ----------------------------------------------------------------------------------------------

    async def _row(self, view: HostView, report: AgentReport | None, now: datetime) -> WorkerRow:
        """Builds the row of a host that the scheduler knows.

        An agent's first report takes ten seconds. Until then, a host counts as alive if it polls
        its task queue.
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
        times = report.times if report is not None else {}
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
                f"{len(silent)} of {len(rows)} hosts do not report:"
                f" {', '.join(silent[:NAMED])}{more}"
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
