"""A cluster to try workflows in: real workflows, outbox and notifier on a test server, and hosts
whose programs are scripted.

On the time-skipping server (`time_skipping_cluster`) ten days pass in a moment, under these rules:

1. The clock jumps only inside `later`, and exactly as far; else it runs as real time does. (The
   SDK's own way, to let it jump while somebody waits for a result, lets it jump on after that
   result: years, until the scheduler's workflow times out.)
2. It does not jump while any activity is pending: programs end at once, or hold the clock until the
   test lets them end.
3. It cannot list or count, so the activities that need that are played by `Notifier` and `Watch`
   below.
4. A timer that fires, or an activity that ends, while its workflow is about to cancel it wedges
   that workflow or the clock (temporalio/sdk-java#2606 and #3088): such races are tried on the dev
   server. Where a busy machine brings one about, `tests/conftest.py` runs the test again.
5. A child that ends after its parent was terminated stops the clock for good; so may what is
   terminated while it does something.

`dev_server_cluster` is the same cluster on Temporal's dev server, in real time, for what the other
one cannot do.
"""

import asyncio
import contextlib
import gc
import inspect
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from temporalio import activity, workflow
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import SearchAttributeKey, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from iris.activities.control import notifier as notices
from iris.activities.control import outbox
from iris.activities.control.child_jobs import ChildJobs
from iris.activities.control.job_dependencies import JobDependencies
from iris.activities.control.job_tasks import JobTasks
from iris.activities.control.recovery import RecoveryQueries
from iris.activities.control.webhooks import WebhookCalls
from iris.autoscaling.liveness import Silent
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.plugin import IrisPlugin
from iris.messages.autoscaler import AutoscalerStart, FleetReport
from iris.messages.job import Attempts
from iris.messages.scheduler import (
    Amend,
    Answer,
    Ask,
    Batch,
    EndedRecords,
    Envelope,
    EvictionNotices,
    Message,
    Notices,
    Reason,
    Reasons,
    Release,
    SchedulerStart,
    Signalled,
    Snapshot,
    SnapshotPage,
)
from iris.messages.slice import HostReady, SliceInput
from iris.messages.task import RunTask, TaskProgress
from iris.messages.wire import ClusterName, HostLost, Keys, RepeatedCheck
from iris.model import names
from iris.model.host.constraints import TPU_NAME, TPU_WORKER_ID
from iris.model.host.hosts import Host
from iris.model.host.idle_gpus import IdleReport
from iris.model.host.resources import Resources
from iris.model.job.attempts import AttemptRecord, TaskOutcome
from iris.model.job.children import Parent
from iris.model.job.requests import Placement
from iris.model.job.spec import Coscheduling, Hold, JobSpec
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.rules import Rules
from iris.model.slice.status import SliceState, SliceStatus
from iris.model.states import TaskState
from iris.retrying import retry
from iris.scheduling.placement.preemption import Eviction
from iris.usage.records import AttemptUse, Record, SliceUse
from iris.worker_agents.control_plane.search_attributes import search_attribute_types
from iris.workflows import policies
from iris.workflows.autoscaler.autoscaler import AutoscalerWorkflow
from iris.workflows.jobs.array_part import ArrayPartWorkflow
from iris.workflows.jobs.job import JobWorkflow
from iris.workflows.jobs.notification import NotificationWorkflow
from iris.workflows.jobs.scheduled_job import ScheduledJobWorkflow
from iris.workflows.jobs.task import TaskWorkflow
from iris.workflows.scheduler.scheduler import SchedulerWorkflow
from iris.workflows.search_attributes import keywords
from iris.workflows.slices.slice import SliceWorkflow
from tests.builders import a_host, a_spec, some

WORKFLOWS = (
    JobWorkflow,
    TaskWorkflow,
    ArrayPartWorkflow,
    SliceWorkflow,
    ScheduledJobWorkflow,
    NotificationWorkflow,
    SchedulerWorkflow,
    AutoscalerWorkflow,
)

#: Generous: a wedged workflow fails its test instead of stopping the suite. The server's own long
#: poll ends after 20 s.
PATIENCE = timedelta(seconds=90)
LOOK_EVERY = timedelta(milliseconds=20)
BEAT = timedelta(milliseconds=500)
#: The longest sleep in one call to the server. A call is given up after 30 s; a fleet's hour may
#: take that on a loaded machine.
STRIDE = timedelta(minutes=5)
#: The scheduler's look for owners that are gone costs a server some milliseconds; a minute apart,
#: ten days would have 14,400.
SELDOM = timedelta(days=365)
#: How soon a scripted program hears that it is cancelled.
HEARTBEAT_INTERVAL = timedelta(milliseconds=50)
#: How long a query waits for its answer before it is asked again.
QUERY_TIMEOUT = timedelta(seconds=5)
#: How a call ends that the server does not answer.
LOST_SLEEP = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
LOST_QUERY = (
    RPCStatusCode.CANCELLED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    # a workflow task has timed out on a busy machine, and is tried again
    RPCStatusCode.FAILED_PRECONDITION,
)


class ServerBrokeDown(Exception):
    """The time-skipping server does not let time pass any more. `tests/conftest.py` runs the test
    again, on a fresh one.
    """


#: What a host makes of an attempt.
Program = Callable[[RunTask], Awaitable[TaskOutcome]]


# -- programs
# --------------------------------------------------------------------------------------------------


def ended(
    state: TaskState, reason: str = "", exit_code: int | None = None, started: bool = True
) -> TaskOutcome:
    """The outcome of an attempt that ends now, by the server's clock."""
    now = activity.info().started_time
    return TaskOutcome(
        state=state,
        reason=reason,
        exit_code=exit_code,
        started_at=now if started else None,
        finished_at=now if started else None,
    )


async def succeeds(task: RunTask) -> TaskOutcome:
    return ended(TaskState.SUCCEEDED, exit_code=0)


async def fails(task: RunTask) -> TaskOutcome:
    return ended(TaskState.FAILED, reason="exited with code 7", exit_code=7)


async def is_preempted(task: RunTask) -> TaskOutcome:
    return ended(TaskState.PREEMPTED, reason="host was stopped")


async def loses_its_host(task: RunTask) -> TaskOutcome:
    return ended(TaskState.WORKER_FAILED, reason="the agent died")


async def is_killed(task: RunTask) -> TaskOutcome:
    """As a program is that stops when it is asked to."""
    return ended(TaskState.KILLED, reason="cancelled", exit_code=143)


async def is_not_taken(task: RunTask) -> TaskOutcome:
    """As on a host that cannot even begin: the program never starts."""
    raise ApplicationError("[Errno 28] No space left on device", type="OSError", non_retryable=True)


async def is_refused(task: RunTask) -> TaskOutcome:
    """As another agent of the host does: the program never starts."""
    raise ApplicationError(
        "refused the task: this agent belongs to incarnation zeroth of the host",
        type="HostRefused",
        non_retryable=True,
    )


async def is_refused_by_a_leaving_host(task: RunTask) -> TaskOutcome:
    """As an agent does that was stopped."""
    raise ApplicationError(
        "refused the task: host h1 was stopped", type="HostLeaves", non_retryable=True
    )


async def meets_a_fault(task: RunTask) -> TaskOutcome:
    """As a program whose last words are those of a broken accelerator."""
    outcome = ended(TaskState.WORKER_FAILED, reason="its TPU cannot be initialised", exit_code=1)
    return outcome.model_copy(update={"fault": "tpu-broken"})


async def cannot_be_set_up(task: RunTask) -> TaskOutcome:
    """As a task whose package index does not answer: the program never starts."""
    reason = f"set-up failed: `uv pip install six` could not reach a server: try {task.attempt}"
    return ended(TaskState.WORKER_FAILED, reason, started=False).model_copy(
        update={"fault": "network"}
    )


async def hangs(task: RunTask) -> TaskOutcome:
    """Nothing is heard of it again, as when the machine is gone."""
    with contextlib.suppress(asyncio.CancelledError):  # the end of the test
        await asyncio.Event().wait()
    return ended(TaskState.WORKER_FAILED)


def in_turn(*programs: Program) -> Program:
    """The n-th attempt of each task does as the n-th program; further ones as the last."""

    async def run(task: RunTask) -> TaskOutcome:
        return await programs[min(task.attempt, len(programs)) - 1](task)

    return run


def by_index(*programs: Program) -> Program:
    """Task i of a job does as the i-th program; further ones as the last."""

    async def run(task: RunTask) -> TaskOutcome:
        return await programs[min(task.index, len(programs) - 1)](task)

    return run


def by_job(programs: dict[str, Program], others: Program = succeeds) -> Program:
    """The tasks of the job of this name do as its program."""

    async def run(task: RunTask) -> TaskOutcome:
        return await programs.get(task.job.rpartition("/")[2], others)(task)

    return run


class Held:
    """A program that runs until the test lets it go or it is cancelled. The clock stands still
    meanwhile.
    """

    def __init__(self, then: Program = succeeds, on_cancel: Program = is_killed) -> None:
        self._then = then
        self._on_cancel = on_cancel
        self._go = asyncio.Event()
        #: Whether it has heard that it is cancelled.
        self.cancelled = False

    def let_go(self) -> None:
        self._go.set()

    async def __call__(self, task: RunTask) -> TaskOutcome:
        try:
            while not self._go.is_set():
                activity.heartbeat()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._go.wait(), HEARTBEAT_INTERVAL.total_seconds())
        except asyncio.CancelledError:
            self.cancelled = True
            return await self._on_cancel(task)
        return await self._then(task)


class FakeHost:
    """An agent whose attempts are scripted. It takes whatever its queue has, whichever incarnation
    it was meant for.
    """

    def __init__(self, host: Host, program: Program) -> None:
        self.host = host
        self.program = program
        #: Every attempt that reached it, in order.
        self.taken: list[RunTask] = []

    @activity.defn
    async def run_task(self, task: RunTask) -> TaskOutcome:
        self.taken.append(task)
        return await self.program(task)


# -- activities of the control plane
# -------------------------------------------------------------------------------------------


class Gate:
    """Open, unless a test closes it to hold up what would pass."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        #: How many have come to the gate.
        self.seen = 0

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        self.seen += 1
        await self._open.wait()


class Outbox(outbox.Outbox):
    """The real one, behind gates for what is asked and what is given back."""

    def __init__(self, client: Client, cluster: str, notifier: notices.Notifier) -> None:
        super().__init__(client, cluster, notifier, lambda request: self.holds.get(request.user))
        #: The holds of new jobs, by user.
        self.holds: dict[str, Hold] = {}
        self.asks = Gate()
        self.releases = Gate()
        self.amends = Gate()
        #: How many changes of requests have been answered.
        self.amended = 0

    @activity.defn
    async def exchange(self, envelope: Envelope) -> Answer:
        if isinstance(envelope.message, Ask):
            await self.asks.passed()
        if isinstance(envelope.message, Release):
            await self.releases.passed()
        if isinstance(envelope.message, Amend):
            await self.amends.passed()
        answer = await super().exchange(envelope)
        self.amended += isinstance(envelope.message, Amend)
        return answer


class Notifier(notices.Notifier):
    """The real ones, unless a test keeps them away."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        #: While it is set they get nowhere. The clock still jumps: a failed activity that waits for
        #: its next try is not pending.
        self.away = False
        #: Placements that they were given to tell, as often as they were given them.
        self.given: list[Placement] = []
        #: The same of evictions, and of new reasons for waiting.
        self.evictions: list[Eviction] = []
        self.reasons: list[Reason] = []

    @activity.defn
    async def signal_placed(self, notices: Notices) -> Signalled:
        self.given.extend(notices.placements)
        if self.away:
            raise ApplicationError("the notifier is away")
        return await super().signal_placed(notices)

    async def pass_on(self, placements: Sequence[Placement]) -> tuple[str, ...]:
        self.given.extend(placements)
        if self.away:
            return tuple(each.key for each in placements)
        return await super().pass_on(placements)

    @activity.defn
    async def signal_evicted(self, notices: EvictionNotices) -> Signalled:
        self.evictions.extend(notices.evictions)
        if self.away:
            raise ApplicationError("the notifier is away")
        return await super().signal_evicted(notices)

    @activity.defn
    async def signal_reasons(self, reasons: Reasons) -> None:
        self.reasons.extend(reasons.reasons)
        if self.away:
            raise ApplicationError("the notifier is away")
        await super().signal_reasons(reasons)


class Unreachable:
    """A client to which the server answers that one workflow takes no signals, as it does when a
    limit is reached.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.owner = ""

    def get_workflow_handle(self, workflow_id: str) -> Any:
        if workflow_id == self.owner:
            raise RPCError(
                "exceeded workflow execution limit for signal events",
                RPCStatusCode.INVALID_ARGUMENT,
                b"",
            )
        return self._client.get_workflow_handle(workflow_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class BlindNotifier(Notifier):
    """To them nobody is ever gone: finding that out needs a list of workflows."""

    @activity.defn
    async def check_jobs(self, check: RepeatedCheck) -> Keys:
        return Keys()


class BlindChildJobs(ChildJobs):
    """To them no job has lost its parent: that needs a list of workflows, too."""

    @activity.defn
    async def cancel_orphans(self, check: RepeatedCheck) -> None:
        pass


class Watch:
    """What the autoscaler sees: these reports one after the other, then that all is well."""

    def __init__(self) -> None:
        self.reports: deque[FleetReport] = deque()
        self.looks = 0

    def sees(self, *reports: tuple[Silent, ...]) -> None:
        self.reports.extend(FleetReport(silent=silent) for silent in reports)

    def holds(self, hosts: int, looks: int) -> None:
        """So many hosts are silent in the next looks, too many to be given up."""
        self.reports.extend([FleetReport(held=hosts)] * looks)

    @activity.defn
    async def observe_fleet(self, ref: ClusterName) -> FleetReport:
        self.looks += 1
        return self.reports.popleft() if self.reports else FleetReport()


class UseKeeper:
    """A store for records of use, in memory."""

    def __init__(self) -> None:
        #: The records that were stored, as often as they were.
        self.stored: list[Record] = []
        #: While it is set, nothing can be stored.
        self.away = False

    @activity.defn
    async def store_uses(self, ended: EndedRecords) -> None:
        if self.away:
            raise ApplicationError("the store is away")
        self.stored.extend(ended.records)

    @property
    def attempts(self) -> dict[str, AttemptUse]:
        """The attempts that were stored, by the task or gang with its attempt: `ada/a:0@1`."""
        return {
            use.id.rpartition("/")[0]: use for use in self.stored if isinstance(use, AttemptUse)
        }

    @property
    def slices(self) -> dict[str, SliceUse]:
        """The slices that were stored, by id."""
        return {use.id: use for use in self.stored if isinstance(use, SliceUse)}


# -- the cluster
# --------------------------------------------------------------------------------------------------


@workflow.defn
class StartSlice:
    """Starts a slice with a request, as the autoscaler does: a slice refuses one of a client."""

    @workflow.init
    def __init__(self, start: SliceInput) -> None:
        self._run_id = ""

    @workflow.run
    async def run(self, start: SliceInput) -> None:
        # Until the slice ends, as the autoscaler is there: the time-skipping server breaks down if
        # a child ends after its parent.
        assert start.request is not None
        child = await workflow.start_child_workflow(
            SliceWorkflow.run,
            start,
            id=names.slice_workflow(start.cluster, start.id),
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            search_attributes=keywords(
                {
                    names.SA_CLUSTER: start.cluster,
                    names.SA_KIND: names.KIND_SLICE,
                    names.SA_STATE: SliceState.REQUESTED,
                    names.SA_GROUP: start.request.group.name,
                }
            ),
        )
        self._run_id = child.first_execution_run_id or ""
        with contextlib.suppress(FailureError):
            await child

    @workflow.update
    async def started(self) -> str:
        """Returns the id of the slice's first run."""
        await workflow.wait_condition(lambda: bool(self._run_id))
        return self._run_id


class Cluster:
    """One cluster, its users and its hosts. Use as a context; leaving it ends the workers, not the
    workflows.
    """

    def __init__(
        self, env: WorkflowEnvironment, name: str = "trial", notifier: type[Notifier] = Notifier
    ) -> None:
        self.name = name
        self.client = env.client
        self._env = env
        self.users = AsyncIrisClient(
            env.client,
            ClusterRecord(name=name, address="trial:7233", namespace="default", store="", ui=""),
        )
        self.notifier = notifier(env.client)
        self.outbox = Outbox(env.client, name, self.notifier)
        self.job_tasks = JobTasks(env.client)
        self.child_jobs = (BlindChildJobs if issubclass(notifier, BlindNotifier) else ChildJobs)(
            env.client
        )
        self.watch = Watch()
        self.uses = UseKeeper()
        self.hosts: dict[str, FakeHost] = {}
        #: The workers that serve, in the order in which they began.
        self._workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        # The time-skipping server can add them and not list them, so `register_search_attributes`
        # is not for it.
        await self.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=self.client.namespace,
                search_attributes=search_attribute_types(),
            )
        )
        await self.serve()
        await self.start_scheduler(SchedulerStart(cluster=self.name))
        return self

    async def serve(self) -> None:
        """What a control plane does for as long as it lives: take work from its queues."""
        await self._work(
            names.control_queue(self.name),
            workflows=[
                JobWorkflow,
                TaskWorkflow,
                ArrayPartWorkflow,
                SliceWorkflow,
                ScheduledJobWorkflow,
                NotificationWorkflow,
                StartSlice,
            ],
            activities=[
                self.outbox.exchange,
                self.notifier.signal_placed,
                self.notifier.signal_evicted,
                self.notifier.signal_reasons,
                self.notifier.check_jobs,
                *self.on_machines(),
            ],
        )
        dependencies = JobDependencies(self.client)
        waiting = [
            self.outbox.exchange,
            self.job_tasks.override_tasks,
            self.job_tasks.await_earlier_tasks,
            self.job_tasks.await_earlier_part,
            self.child_jobs.register_child,
            self.child_jobs.cancel_children,
            self.child_jobs.cancel_orphans,
            dependencies.find_ends,
            dependencies.signal_dependents,
            self.uses.store_uses,
            WebhookCalls(local=True).call_webhook,
        ]
        await self._work(names.patient_queue(self.name), activities=waiting)
        await self._work(
            names.planner_queue(self.name), workflows=[SchedulerWorkflow, AutoscalerWorkflow]
        )

    def on_machines(self) -> list[Callable[..., Any]]:
        """The activities that see hosts and slices: there are no machines here that could be asked
        for.
        """
        return [self.watch.observe_fleet, RecoveryQueries(self.client).query_page]

    async def start_scheduler(self, start: SchedulerStart) -> None:
        """As a control plane does when there is none."""
        await self.client.start_workflow(
            SchedulerWorkflow.run,
            start,
            id=names.scheduler_workflow(self.name),
            task_queue=names.planner_queue(self.name),
            search_attributes=keywords(
                {names.SA_CLUSTER: self.name, names.SA_KIND: names.KIND_SCHEDULER}
            ),
        )

    async def stop_serving(self) -> None:
        """End the workers of the control plane and of the hosts: no query is answered from now
        on.

        The one of the jobs ends first. It would wait for three seconds for an exchange that the
        scheduler does not answer any more, as that of a program which ends with its host.
        """
        async with asyncio.timeout(PATIENCE.total_seconds()), contextlib.AsyncExitStack() as ends:
            for worker in reversed(self._workers):
                ends.push_async_exit(worker)
            self._workers.clear()

    async def __aexit__(self, *_: object) -> None:
        await self.stop_serving()
        # A worker that ends drops the workflows in its memory without evicting them. Collected
        # later, on the thread of another test's workflow, their `finally` blocks would give that
        # one's history a command that is not its own.
        await asyncio.to_thread(gc.collect)

    async def _work(self, queue: str, **settings: Any) -> None:
        worker = Worker(
            self.client,
            task_queue=queue,
            max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
            **settings,
        )
        self._workers.append(await worker.__aenter__())

    async def start_autoscaler(self, *suspects: Silent) -> WorkflowHandle[Any, Any]:
        """Without it nobody looks at the fleet; with it no clock jumps further than its next
        look.
        """
        return await self.client.start_workflow(
            AutoscalerWorkflow.run,
            AutoscalerStart(cluster=self.name, suspects=suspects),
            id=names.autoscaler_workflow(self.name),
            task_queue=names.planner_queue(self.name),
            search_attributes=keywords(
                {names.SA_CLUSTER: self.name, names.SA_KIND: names.KIND_AUTOSCALER}
            ),
        )

    async def rests(self, handle: WorkflowHandle[Any, Any]) -> bool:
        """Whether nothing is under way in the workflow: an activity that waits for its next try is
        not. (Its state does not say so on the time-skipping server.)
        """
        described = (await handle.describe()).raw_description
        return not described.HasField("pending_workflow_task") and all(
            each.last_attempt_complete_time.ToNanoseconds() > each.last_started_time.ToNanoseconds()
            for each in described.pending_activities
        )

    # Time.

    async def later(self, time: timedelta) -> None:
        """Wait so long, and a beat longer; what is due in between happens. (Timers are due after
        round times; what a test does just then would meet one that fires: rule 4.) A time that is
        over, as a busy machine makes it, is no wait.
        """
        time = max(time, timedelta())
        strides = [STRIDE] * (time // STRIDE)
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                for stride in (*strides, time % STRIDE + BEAT):
                    await self._env.sleep(stride)
        except RPCError as error:
            if error.status not in LOST_SLEEP:
                raise
            raise ServerBrokeDown(str(error)) from error

    async def now(self) -> datetime:
        return await self._env.get_current_time()

    async def result(self, handle: WorkflowHandle[Any, Any]) -> Any:
        """The workflow's result.

        Raises:
            WorkflowFailureError: it did not end well.
            TimeoutError: it does not end.
        """
        async with asyncio.timeout(PATIENCE.total_seconds()):
            return await handle.result()

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait until the condition holds; it may be a coroutine function.

        Raises:
            TimeoutError: it does not come to hold. The location in the test says which.
        """
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while True:
                answer = holds()
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(LOOK_EVERY.total_seconds())

    # Hosts.

    async def join(
        self,
        host_id: str = "h1",
        offers: Resources | None = None,
        program: Program = succeeds,
        **changes: Any,
    ) -> FakeHost:
        """A host's agent reports; a known host begins a new incarnation and keeps its program."""
        host = a_host(host_id, offers=offers, **changes)
        await self._agent(host, program)
        await self.report(host)
        await self.until(lambda: self.offers(host))
        # Answered when its workflow task is over; a workflow that is terminated before stops the
        # server's clock.
        await self.slice_status(host)
        return self.hosts[host_id]

    async def join_slice(
        self,
        name: str = "s1",
        size: int = 2,
        program: Program = succeeds,
        incarnation: str = "first",
        **changes: Any,
    ) -> list[FakeHost]:
        """The agents of a slice's hosts report, the last worker first; known hosts begin a new
        incarnation.
        """
        hosts = [
            a_host(
                f"{name}-w{worker}",
                slice_id=name,
                incarnation=incarnation,
                address=f"10.0.0.{worker}",
                attributes={TPU_NAME: name, TPU_WORKER_ID: worker},
                **changes,
            )
            for worker in range(size)
        ]
        for host in reversed(hosts):
            await self._agent(host, program)
            await self.report(host, size)
        await self.until(lambda: self.offers(*hosts))
        await self.slice_status(hosts[0])
        return [self.hosts[host.id] for host in hosts]

    async def _agent(self, host: Host, program: Program) -> None:
        if host.id in self.hosts:
            self.hosts[host.id].host = host
        else:
            self.hosts[host.id] = FakeHost(host, program)
            await self._work(
                names.host_queue(self.name, host.id), activities=[self.hosts[host.id].run_task]
            )

    async def report(self, host: Host, size: int = 1) -> None:
        """As an agent does that is ready: its slice's workflow is told, and started if there is
        none.
        """
        await self.client.start_workflow(
            SliceWorkflow.run,
            SliceInput(cluster=self.name, id=host.slice_id, size=size),
            id=names.slice_workflow(self.name, host.slice_id),
            task_queue=names.control_queue(self.name),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            search_attributes=keywords(
                {
                    names.SA_CLUSTER: self.name,
                    names.SA_KIND: names.KIND_SLICE,
                    names.SA_STATE: SliceState.REQUESTED,
                }
            ),
            start_signal="host_ready",
            start_signal_args=[HostReady(host=host)],
        )

    async def offers(self, *hosts: Host) -> bool:
        """Whether the scheduler counts on this incarnation of each host."""
        known = [view.host for view in (await self.snapshot()).hosts]
        return all(host in known for host in hosts)

    async def lose(self, host: Host, reason: str = "host was unplugged") -> None:
        """The host's slice is told that it is gone."""
        lost = HostLost(host_id=host.id, incarnation=host.incarnation, reason=reason)
        await self.slice(host).signal("host_lost", lost)

    def slice(self, host: Host) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(names.slice_workflow(self.name, host.slice_id))

    async def slice_status(self, host: Host) -> SliceStatus:
        return await ask(self.slice(host), "status", SliceStatus)

    async def announce(
        self,
        task: RunTask,
        state: TaskState = TaskState.RUNNING,
        doing: str = "",
        idle: IdleReport | None = None,
    ) -> None:
        """As an agent does for a program that has run, or has been prepared, for a second."""
        progress = TaskProgress(
            key=task.key, state=state, at=datetime.now(UTC), reason=doing, idle=idle
        )
        await self.client.get_workflow_handle(task.owner).signal("task_progress", progress)

    # The scheduler.

    @property
    def scheduler(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(names.scheduler_workflow(self.name))

    @property
    def autoscaler(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(names.autoscaler_workflow(self.name))

    async def snapshot(self) -> Snapshot:
        return await ask(self.scheduler, "snapshot", Snapshot, SnapshotPage())

    async def deliver(self, *messages: Message) -> None:
        await self.scheduler.signal("deliver", Batch(messages=messages))

    async def free(self, host_id: str = "h1") -> dict[str, int]:
        """What the scheduler thinks is free on the host."""
        return next(view.free for view in (await self.snapshot()).hosts if view.host.id == host_id)

    async def nothing_held(self) -> bool:
        """Nobody waits, nobody holds anything, and every host has all that it offers."""
        shown = await self.snapshot()
        whole = all(
            view.free == view.host.resources.amounts() and not view.running for view in shown.hosts
        )
        return whole and shown.waiting == 0 and shown.running == 0

    async def rules(self, **changes: Any) -> None:
        """An operator gives the scheduler these rules; else victims are evicted after two
        minutes.
        """
        await self.users.cluster.set_rules(Rules(**changes))

    # Jobs.

    async def submit(self, name: str = "train", **asked: Any) -> str:
        """The id of a new job."""
        spec: JobSpec = a_spec(name=name, **asked)
        return (await self.users.jobs.submit(spec)).id

    async def cancel(self, job: str, reason: str = "") -> None:
        await self.job(job).cancel(reason=reason)

    async def gang(self, name: str = "train", tasks: int = 2, groups: int = 1, **asked: Any) -> str:
        """The id of a new job whose tasks go together, each on a host of its own."""
        together = Coscheduling(group_by=TPU_NAME, groups=groups)
        return await self.submit(
            name,
            **({"replicas": tasks, "coscheduling": together, "resources": some(cpu=4)} | asked),
        )

    async def attempts(self, handle: WorkflowHandle[Any, Any]) -> tuple[AttemptRecord, ...]:
        """What became of every attempt of a job or a task."""
        return (await ask(handle, "attempts", Attempts)).attempts

    def job(self, job: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(names.job_workflow(self.name, job))

    def task(self, job: str, index: int) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(
            names.task_workflow(self.name, names.task_id(job, index))
        )

    async def status(self, job: str) -> JobStatus:
        return await ask(self.job(job), "status", JobStatus)

    async def only_task(self, job: str) -> TaskStatus:
        """The one task of a job of one."""
        (task,) = (await self.status(job)).tasks
        return task

    async def placed(self, job: str, placement: Placement) -> None:
        await self.job(job).signal("placed", placement)

    async def waits(self, job: str, attempt: int = 0) -> None:
        """Return once every task of the job waits for a host, with the scheduler's reason, after
        that many attempts.
        """
        await self.until(lambda: self._waits(job, attempt))

    async def _waits(self, job: str, attempt: int) -> bool:
        status = await self.status(job)
        waiting = [
            task
            for task in status.tasks
            if task.state is TaskState.PENDING and task.attempt == attempt
        ]
        requests = {task.key for task in status.tasks}  # the tasks of a gang have one together
        return (
            bool(status.reason)
            and len(waiting) == len(status.tasks)
            and len(requests) <= (await self.snapshot()).waiting
        )

    async def end(self, job: str, within: timedelta = timedelta(0)) -> JobStatus:
        """The job's status after its end; one that must wait for something due needs that time to
        pass.
        """
        await self.later(within)
        with contextlib.suppress(WorkflowFailureError):
            await self.result(self.job(job))
        return await self.status(job)

    async def failure(self, job: str, within: timedelta = timedelta(0)) -> ApplicationError:
        """With what the job's workflow failed, after its end."""
        await self.later(within)
        try:
            await self.result(self.job(job))
        except WorkflowFailureError as error:
            if isinstance(error.cause, ApplicationError):
                return error.cause
        raise AssertionError(f"the workflow of {job} did not fail")

    async def shown_end(self, handle: WorkflowHandle[Any, Any]) -> str:
        """The status that Temporal's own lists show."""
        status = (await handle.describe()).status
        return status.name if status is not None else ""

    async def shown_state(self, handle: WorkflowHandle[Any, Any]) -> str | None:
        """The state by which Temporal's lists and `iris jobs` show the workflow."""
        return (await handle.describe()).typed_search_attributes.get(
            SearchAttributeKey.for_keyword(names.SA_STATE)
        )

    async def page(self, handle: WorkflowHandle[Any, Any]) -> str:
        """What Temporal's Web UI shows of the workflow."""
        metadata = await ask(handle, "__temporal_workflow_metadata", WorkflowMetadata)
        return metadata.current_details


async def child(cluster: Cluster, parent: str, name: str = "child", **given: Any) -> str:
    """The id of a job that the program of the parent submits; by default each does the same."""
    described = await cluster.job(parent).describe()
    run_id = described.raw_description.workflow_execution_info.first_run_id
    settings = {"task": 0, "attempt": 1, "work": "train", "current_run": described.run_id} | given
    return await cluster.submit(name, parent=Parent(job=parent, run_id=run_id, **settings))


C = TypeVar("C", bound=Cluster)
T = TypeVar("T")


def _is_lost(error: Exception) -> bool:
    """Whether a query is asked again. The time-skipping server also asks a worker while it is about
    to complete a workflow task: the history does not fit the worker's memory then. (Tests
    of slices end with a replay of their histories, which finds what really is not deterministic.)
    """
    if isinstance(error, WorkflowQueryFailedError):
        return "TMPRL1100" in str(error)
    return isinstance(error, RPCError) and error.status in LOST_QUERY


async def ask(handle: WorkflowHandle[Any, Any], query: str, result: type[T], *arguments: Any) -> T:
    """What a workflow answers. Asked again after a while: a query that meets the end of a run is
    never answered.
    """

    @retry(
        _is_lost,
        every=LOOK_EVERY,
        timeout=PATIENCE,
    )
    async def answer() -> T:
        answered: T = await handle.query(
            query, args=arguments, result_type=result, rpc_timeout=QUERY_TIMEOUT
        )
        return answered

    return await answer()


@contextlib.asynccontextmanager
async def time_skipping_cluster(
    kind: Callable[..., C] = Cluster,  # type: ignore[assignment]
    notifier: type[Notifier] = BlindNotifier,
) -> AsyncIterator[C]:
    """A cluster on a fresh time-skipping server: a workflow that is wedged stops the clock for all,
    so none is shared.
    """
    server = Path(sys.executable).with_name("temporal-test-server")
    env = await WorkflowEnvironment.start_time_skipping(
        plugins=[IrisPlugin()],
        identity="trial",
        test_server_existing_path=str(server),
        test_server_startup_timeout=PATIENCE,
    )
    usual, policies.CHECK_JOBS_EVERY = policies.CHECK_JOBS_EVERY, SELDOM
    try:
        async with env, kind(env, notifier=notifier) as cluster:
            yield cluster
    finally:
        policies.CHECK_JOBS_EVERY = usual


@contextlib.asynccontextmanager
async def dev_server_cluster(
    *settings: str,
    kind: Callable[..., C] = Cluster,  # type: ignore[assignment]
    notifier: type[Notifier] = Notifier,
) -> AsyncIterator[C]:
    """A cluster on a fresh dev server with these dynamic settings (`key=value`)."""
    server = Path(sys.executable).with_name("temporal")
    env = await WorkflowEnvironment.start_local(
        plugins=[IrisPlugin()],
        identity="trial",
        dev_server_existing_path=str(server),
        dev_server_extra_args=[
            word for setting in settings for word in ("--dynamic-config-value", setting)
        ],
        dev_server_startup_timeout=PATIENCE,
    )
    async with env, kind(env, notifier=notifier) as cluster:
        yield cluster
