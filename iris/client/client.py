"""The client: submit, look, wait, cancel. It needs only the Temporal service; a job's details also need a control plane."""

import asyncio
import contextlib
import difflib
import os
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Self, TypeVar
from urllib.parse import quote

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from iris import details, names
from iris.client.clusters import ClusterRecord, local_cluster
from iris.client.connection import connect
from iris.client.discovery import discover
from iris.client.identity import current_user
from iris.client.views import Explanation, JobRow, LogSource, Submitted, attribute, overruled, state_of, story
from iris.errors import NotFound, Rejected, Unreachable, WaitTimeout
from iris.jobs import JobSpec, JobStatus
from iris.placement import Refusal, RefusalCode
from iris.states import TaskState
from iris.units import format_duration
from iris.workflows.attributes import keywords
from iris.workflows.job import JobWorkflow
from iris.workflows.messages import HostView, JobInput, Snapshot, SnapshotPage

#: How long a question to a workflow may take before the control plane counts as away.
ASK_TIMEOUT = timedelta(seconds=10)
#: How long whoever waited for a job's end waits for a control plane to tell it.
END_PATIENCE = timedelta(seconds=60)
T = TypeVar("T")
_GONE = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.FAILED_PRECONDITION)


class IrisClient:
    """One cluster, as its users see it."""

    def __init__(self, client: Client, cluster: ClusterRecord) -> None:
        self._client = client
        self.cluster = cluster

    @classmethod
    async def connect(cls, cluster: str | None = None) -> Self:
        """The cluster of that name or address (`HOST:PORT`, or `HOST:PORT/NAME` where several share a service), or the local one.

        Raises:
            Unreachable: it does not run or does not answer.
            NotFound: there are several and none was named, or the service has no such cluster.
        """
        cluster = cluster or os.environ.get(names.ENV_CLUSTER) or None
        if cluster is None or ":" not in cluster:
            record = local_cluster(cluster)
            return cls(await connect(record.address, record.namespace, quiet=True), record)
        address, _, name = cluster.partition("/")
        client = await connect(address, os.environ.get("TEMPORAL_NAMESPACE", "default"), quiet=True)
        return cls(client, await discover(client, address, name or None))

    async def submit(self, spec: JobSpec) -> Submitted:
        """Start the job.

        Raises:
            Rejected: a live job has its name.
        """
        workflow_id = names.job_workflow(self.cluster.name, spec.id)
        async with _reaching(self.cluster):
            try:
                handle = await self._client.start_workflow(
                    JobWorkflow.run,
                    JobInput(cluster=self.cluster.name, spec=spec),
                    id=workflow_id,
                    task_queue=names.control_queue(self.cluster.name),
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    memo={names.MEMO_COMMAND: details.summary(spec), names.MEMO_TASKS: spec.replicas},
                    search_attributes=keywords(
                        {
                            names.SA_CLUSTER: self.cluster.name,
                            names.SA_KIND: names.KIND_JOB,
                            names.SA_USER: spec.user,
                            names.SA_PRIORITY: spec.band,
                        }
                    ),
                    static_summary=details.summary(spec),
                )
            except WorkflowAlreadyStartedError:
                raise Rejected(
                    f"job {spec.id} is live already; look at it with `iris status {spec.id}`, "
                    f"end it with `iris cancel {spec.id}`, or give this one another name with -n"
                ) from None
        run_id = handle.first_execution_run_id or ""
        return Submitted(id=spec.id, workflow_id=workflow_id, run_id=run_id, ui=self._ui(workflow_id, run_id))

    async def status(self, job: str, run_id: str | None = None) -> JobStatus:
        """The job as it is now. A waiting task's reason is the scheduler's present one.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        status, _ = await self._status_and_refusal(job, run_id)
        return status

    async def explain(self, job: str) -> Explanation:
        """Why the job is where it is.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        status, refusal = await self._status_and_refusal(job, None)
        if refusal is not None:
            code, message, needed, free = refusal.code.value, refusal.message, refusal.needed, refusal.free
        else:
            code, message, needed, free = status.state.value, status.reason or story(status), {}, {}
        return Explanation(id=status.id, state=status.state, code=code, message=message, needed=needed, free=free)

    async def jobs(self, *, live_only: bool = False, limit: int = 50) -> list[JobRow]:
        """The cluster's jobs, the newest first."""
        query = f"{self._of(names.KIND_JOB)} AND ExecutionStatus != 'ContinuedAsNew'"
        if live_only:
            query += " AND ExecutionStatus = 'Running'"
        rows = []
        async with _reaching(self.cluster):
            async for execution in self._client.list_workflows(query, limit=limit):
                memo = await execution.memo()
                rows.append(
                    JobRow(
                        id=names.job_of_workflow(execution.id),
                        state=state_of(execution),
                        user=attribute(execution, names.SA_USER),
                        submitted_at=execution.start_time,
                        command=str(memo.get(names.MEMO_COMMAND, "")),
                    )
                )
        return rows

    async def cancel(self, job: str, reason: str = "") -> None:
        """Ask for the job's end; it is KILLED once its processes are dead.

        Raises:
            NotFound: there is no such job.
            Rejected: it has ended already.
        """
        described = await self._describe(job)
        if described.status is not WorkflowExecutionStatus.RUNNING:
            raise Rejected(f"job {job} has ended already ({state_of(described)})")
        async with _reaching(self.cluster):
            await self._handle(job).cancel(reason=reason or f"cancelled by {current_user()}")

    async def wait(self, job: str, run_id: str | None = None, timeout: timedelta | None = None) -> JobStatus:
        """The job's status once it has ended.

        Raises:
            WaitTimeout: the time is over; the job goes on.
            NotFound: there is no such job.
        """
        try:
            async with asyncio.timeout(timeout.total_seconds() if timeout is not None else None):
                await self.ended(job, run_id)
        except TimeoutError:
            raise WaitTimeout(f"job {job} has not ended within {format_duration(timeout or timedelta())}; it goes on") from None
        return await self.end(job, run_id)

    async def end(self, job: str, run_id: str | None = None) -> JobStatus:
        """The status of a job that has ended; a control plane that is just being started again is waited for.

        Raises:
            Unreachable: none answered for a minute.
        """
        deadline = time.monotonic() + END_PATIENCE.total_seconds()
        while True:
            try:
                return await self.status(job, run_id)
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(1)

    async def ended(self, job: str, run_id: str | None = None) -> None:
        """Return once the job has ended, well or badly, however often the service is away meanwhile.

        Raises:
            NotFound: there is no such job.
            Unreachable: the cluster is a local one and has been stopped.
        """
        while True:
            try:
                await self._handle(job, run_id).result()
                return
            except WorkflowFailureError:
                return
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise await self._not_found(job) from None
                if self.cluster.supervisor is not None and not self.cluster.alive():
                    raise Unreachable(f"cluster {self.cluster.name} was stopped before job {job} had ended") from None
                await asyncio.sleep(1)

    async def hosts(self) -> list[HostView]:
        """The hosts by their ids, with what is free on them and what they run."""
        hosts: list[HostView] = []
        while True:
            page = await self._ask_scheduler("snapshot", SnapshotPage(offset=len(hosts)), Snapshot)
            hosts.extend(page.hosts)
            if not page.hosts or len(hosts) >= page.total_hosts:
                return sorted(hosts, key=lambda view: view.host.id)

    async def log_source(self, job: str) -> LogSource:
        """Where the job's logs are; asks only the service, so it works while no control plane answers.

        Raises:
            NotFound: there is no such job.
        """
        described = await self._describe(job)
        first_run = described.raw_description.workflow_execution_info.first_run_id or described.run_id or ""
        return LogSource(run_id=first_run, tasks=int((await described.memo()).get(names.MEMO_TASKS, 1)))

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _handle(self, job: str, run_id: str | None = None) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(names.job_workflow(self.cluster.name, job), run_id=run_id)

    def _of(self, kind: str) -> str:
        return f"{names.SA_CLUSTER} = '{self.cluster.name}' AND {names.SA_KIND} = '{kind}'"

    def _ui(self, workflow_id: str, run_id: str) -> str:
        if not self.cluster.ui:
            return ""
        return f"{self.cluster.ui}/namespaces/{self.cluster.namespace}/workflows/{quote(workflow_id, safe='')}/{run_id}"

    async def _describe(self, job: str, run_id: str | None = None) -> WorkflowExecutionDescription:
        """The job's latest run; or, where a later job has taken the name, the run that was meant."""
        async with _reaching(self.cluster):
            try:
                described = await self._handle(job).describe()
                if run_id is not None and described.raw_description.workflow_execution_info.first_run_id != run_id:
                    described = await self._handle(job, run_id).describe()
                return described
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise await self._not_found(job) from None
                raise

    async def _status_and_refusal(self, job: str, run_id: str | None) -> tuple[JobStatus, Refusal | None]:
        described = await self._describe(job, run_id)
        status = await self._query(self._handle(job, described.run_id), "status", None, JobStatus)
        if described.status is not WorkflowExecutionStatus.RUNNING:
            return overruled(status, state_of(described)), None
        waiting = next((task for task in status.tasks if task.state is TaskState.PENDING and task.key), None)
        if waiting is None or waiting.key is None:
            return status, None
        refusal = await self._ask_scheduler("explain", waiting.key, Refusal)
        if refusal.code is RefusalCode.UNKNOWN:
            return status, None
        tasks = [task.model_copy(update={"reason": refusal.message}) if task is waiting else task for task in status.tasks]
        reason = refusal.message if len(tasks) == 1 else f"task {waiting.index}: {refusal.message}"
        return status.model_copy(update={"tasks": tuple(tasks), "reason": reason}), refusal

    async def _ask_scheduler(self, query: str, argument: Any, result: type[T]) -> T:
        return await self._query(
            self._client.get_workflow_handle(names.scheduler_workflow(self.cluster.name)), query, argument, result
        )

    async def _query(self, handle: WorkflowHandle[Any, Any], query: str, argument: Any, result: type[T]) -> T:
        arguments = [] if argument is None else [argument]
        async with _reaching(self.cluster):
            try:
                answer: T = await handle.query(query, args=arguments, result_type=result, rpc_timeout=ASK_TIMEOUT)
                return answer
            except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
                raise Unreachable(f"the control plane of cluster {self.cluster.name} could not answer: {error}") from None
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise Unreachable(
                        f"the control plane of cluster {self.cluster.name} has not started: {error.message}"
                    ) from None
                raise

    async def _not_found(self, job: str) -> NotFound:
        known = [row.id for row in await self.jobs(limit=500)]
        near = difflib.get_close_matches(job, known, n=3, cutoff=0.6)
        near += [other for other in known if other.partition("/")[2] == job.partition("/")[2] and other not in near]
        hint = f"did you mean {', '.join(near)}?" if near else "`iris jobs --all` lists them"
        return NotFound(f"there is no job {job}; {hint}")


@contextlib.asynccontextmanager
async def _reaching(cluster: ClusterRecord) -> AsyncIterator[None]:
    """Turn what a client's library says of an absent service into what a user can act on."""
    try:
        yield
    except RPCError as error:
        if error.status in _GONE:
            raise Unreachable(f"cluster {cluster.name} at {cluster.address} does not answer: {error.message}") from None
        raise
