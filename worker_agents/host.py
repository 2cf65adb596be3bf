"""The host agent: one Temporal worker on each machine, serving `run_task` from its own queue. It dials out; nothing dials in.

A life of the host is one *incarnation*. It ends when the agent is stopped, when the machine is, or when the cluster has given the
host up: then everything that runs here is killed, and the agent reports again as a new incarnation. So a slice that has lost one
of its hosts becomes whole again by itself: the others find out that it has ended, and report anew.

An agent that dies ends nothing: the next one has the same incarnation and goes on with what runs. SIGHUP asks an agent to make
way for another in just that manner, for an upgrade for instance; SIGTERM and SIGINT end the life of the host.
"""

import asyncio
import contextlib
import fcntl
import logging
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from iris import names
from iris.activities.environment import Accelerators
from iris.activities.exec import Execs
from iris.activities.profile import Profiles
from iris.activities.runtimes import cgroups
from iris.activities.runtimes.engine import clear_strays
from iris.activities.tasks import Tasks
from iris.activities.workbench import Workbench
from iris.client.connection import connect
from iris.constraints import Attribute
from iris.errors import Rejected, Unreachable
from iris.faults import FAULTS, Fault
from iris.hosts import Host
from iris.resources import Device
from iris.slices import SliceState, SliceStatus
from iris.store import Store
from iris.worker_agents import life
from iris.worker_agents.agent_log import shipping_own_log
from iris.worker_agents.metadata import of_this_machine
from iris.worker_agents.notice import watch_for_preemption
from iris.worker_agents.probe import describe_host, find_accelerators, probe
from iris.worker_agents.process import rest_memory, stop_event
from iris.workflows.attributes import keywords
from iris.workflows.fleet_messages import HostReady, SliceInput
from iris.workflows.messages import HostLost
from iris.workflows.slice import SliceWorkflow

logger = logging.getLogger(__name__)

#: Between looks at whether the cluster still counts this host in.
CHECK_EVERY = timedelta(seconds=20)
#: Before the first of them, by which its report should have been read.
CHECK_FIRST = timedelta(seconds=5)
RPC_TIMEOUT = timedelta(seconds=10)
#: How long a machine waits for somebody to look after its slice again, whose workflow was terminated.
ADOPTION_PATIENCE = timedelta(minutes=10)
#: Between two tries while the service is away.
RETRY_EVERY = timedelta(seconds=2)
#: Attempts that are being started at once; how many run is the scheduler's business.
STARTS_AT_ONCE = 100


class AgentOptions(BaseModel):
    """What an agent is told."""

    model_config = ConfigDict(frozen=True)

    #: Of the Temporal service.
    address: str
    namespace: str
    cluster: str
    store: str
    host_id: str
    #: None: the host is a slice by itself.
    slice_id: str | None = None
    #: Of the slice's request, on a machine that was made for it. None: the machine was brought, and makes the slice itself.
    token: str | None = None
    #: How many hosts the slice has.
    slice_size: int = 1
    #: Where other hosts reach this one; None: the agent finds out.
    host_address: str | None = None
    directory: Path
    #: Where bundles and environments are kept between attempts; None: in the directory. Hosts on one machine may share it.
    cache_dir: Path | None = None
    #: The container image of tasks that name none; None: they are processes.
    image: str | None = None
    #: In every task's environment, unless its job sets them.
    env_vars: dict[str, str] = Field(default_factory=dict)
    #: The host only pretends to be a machine: what the real one has is not its own.
    simulated: bool = False
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    device: Device | None = None
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    accept_cpu_jobs: bool = False
    #: What is recognised beside Iris' own.
    faults: tuple[Fault, ...] = ()


async def serve(options: AgentOptions) -> None:
    """Be this host until SIGTERM or SIGINT; until SIGHUP, and leave what runs to the next agent.

    Raises:
        Rejected: another agent is this host already, or nobody wants it (any more).
        Unreachable: the cluster does not answer when the agent starts; later it tries again until it does.
    """
    (options.directory / "attempts").mkdir(parents=True, exist_ok=True)
    asked = Asked(stop_event())
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.make_way)
    rest_memory()
    store = Store(options.store)
    with _only_agent(options):
        async with shipping_own_log(store, options.cluster, options.host_id, options.directory):
            metadata = None if options.simulated else of_this_machine()
            accelerators = Accelerators() if options.simulated else await find_accelerators(metadata)
            if why := cgroups.why_not():
                logger.warning("%s", why)
            if not options.simulated and life.of(options.directory) is None:
                # Containers of a host that has lost its directory; those of attempts that are known are looked after by these.
                await clear_strays(options.cluster, options.host_id, ())
            async with contextlib.AsyncExitStack() as beside:
                if metadata is not None:
                    await beside.enter_async_context(_beside(watch_for_preemption(metadata, asked.end)))
                await _live_and_live_again(store, options, accelerators, asked)


async def _live_and_live_again(store: Store, options: AgentOptions, accelerators: Accelerators, asked: "Asked") -> None:
    lived = False
    while not asked.to_end.is_set():
        host = _this_host(options, accelerators)
        identity = names.worker_identity(host.id, host.incarnation)
        try:
            client = await connect(options.address, options.namespace, identity=identity)
        except Unreachable as error:
            if not lived:
                raise
            logger.warning("%s; trying again", error)
            await _pause(asked.to_end, RETRY_EVERY)
            continue
        lived = True
        await _Incarnation(client, store, options, accelerators, host, asked).live()


def _this_host(options: AgentOptions, accelerators: Accelerators) -> Host:
    """This machine as a host: in the life that an agent before this one has begun, or in a new one."""
    resources = probe(
        options.directory,
        cpu=options.cpu_millis,
        memory=options.memory_bytes,
        disk=options.disk_bytes,
        device=options.device or accelerators.device,
    )
    return describe_host(
        options.host_id,
        resources,
        {**accelerators.attributes, **options.attributes},
        incarnation=life.of(options.directory) or life.begin(options.directory),
        slice_id=options.slice_id,
        address=options.host_address,
        accept_cpu_jobs=options.accept_cpu_jobs,
    )


class Asked:
    """What this agent is asked to do: to end, and how."""

    def __init__(self, to_end: asyncio.Event) -> None:
        self.to_end = to_end
        #: Its successor goes on with what runs.
        self.to_make_way = False
        #: Why this life of the host ends; empty: because somebody wants it so.
        self.reason = ""

    def end(self, reason: str) -> None:
        """End this life of the host, for this reason."""
        self.reason = self.reason or reason
        self.to_end.set()

    def make_way(self) -> None:
        """End, but nothing that runs here: another agent goes on with it."""
        self.to_make_way = not self.to_end.is_set()
        self.to_end.set()


class _Incarnation:
    """One life of the agent."""

    def __init__(
        self,
        client: Client,
        store: Store,
        options: AgentOptions,
        accelerators: Accelerators,
        host: Host,
        asked: "Asked",
    ) -> None:
        self._client = client
        self._cluster = options.cluster
        self._slice_size = options.slice_size
        self._token = options.token
        self._host = host
        self._asked = asked
        self._stop = asked.to_end
        self._dir = options.directory
        bench = Workbench(
            client=client,
            store=store,
            cluster=options.cluster,
            host=host,
            directory=options.directory,
            cache_dir=options.cache_dir or options.directory / "cache",
            image=options.image,
            env_vars=options.env_vars,
            faults=(*FAULTS, *options.faults),
            accelerators=accelerators,
        )
        self._tasks = Tasks(bench)
        self._execs = Execs(store, self._tasks)
        self._profiles = Profiles(store, self._tasks)
        #: The slice must know this incarnation by now; before, its report may still lie in the slice's inbox.
        self._expected = False
        #: When the slice's workflow was first seen to have been terminated, by this process's clock.
        self._orphaned_since: float | None = None

    async def live(self) -> None:
        await self._tasks.take_over()
        worker = Worker(
            self._client,
            task_queue=names.host_queue(self._cluster, self._host.id),
            activities=[self._tasks.run_task, self._execs.exec_task, self._profiles.profile_task],
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
            max_concurrent_activities=STARTS_AT_ONCE,
        )
        async with worker, _beside(self._tasks.measure()):
            await self._report_until_heard()
            self._tasks.bury()
            logger.info("host %s (%s) takes work: %s", self._host.id, self._host.incarnation, self._host.resources)
            given_up = await self._watch()
            if given_up:
                logger.warning("host %s begins a new life: %s", self._host.id, given_up)
                life.end(self._dir)
                await self._tasks.abandon(given_up)
            elif self._asked.to_make_way:
                logger.info("host %s makes way for another agent", self._host.id)
                await self._tasks.leave("its agent makes way for another")
            else:
                reason = self._asked.reason or f"host {self._host.id} was stopped"
                await self._sign_off(reason)
                await self._tasks.close(reason)
                life.end(self._dir)

    async def _report_until_heard(self) -> None:
        while not self._stop.is_set():
            try:
                await self._report()
                return
            except RPCError as error:
                if self._token is not None and error.status is RPCStatusCode.NOT_FOUND:
                    raise Rejected(f"nobody wants slice {self._host.slice_id}, for which this machine was made") from None
                logger.warning("host %s could not report, trying again: %s", self._host.id, error)
                await _pause(self._stop, RETRY_EVERY)

    async def _report(self) -> None:
        """Tell the slice that this host is ready; a machine that was brought starts its slice's workflow if there is none."""
        if self._token is not None:
            ready = HostReady(host=self._host, token=self._token)
            await self._slice().signal("host_ready", ready, rpc_timeout=RPC_TIMEOUT)
            return
        alone = self._slice_size == 1
        await self._client.start_workflow(
            SliceWorkflow.run,
            SliceInput(cluster=self._cluster, id=self._host.slice_id, size=self._slice_size),
            id=names.slice_workflow(self._cluster, self._host.slice_id),
            task_queue=names.control_queue(self._cluster),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            search_attributes=keywords(
                {names.SA_CLUSTER: self._cluster, names.SA_KIND: names.KIND_SLICE, names.SA_STATE: SliceState.REQUESTED}
            ),
            static_summary=f"host {self._host.id}, which joined by itself"
            if alone
            else f"{self._slice_size} hosts, which joined by themselves",
            start_signal="host_ready",
            start_signal_args=[HostReady(host=self._host)],
        )

    async def _sign_off(self, reason: str) -> None:
        """Be taken out at once, not when the silence is noticed."""
        lost = HostLost(host_id=self._host.id, incarnation=self._host.incarnation, reason=reason, left=True)
        with contextlib.suppress(RPCError):
            await self._slice().signal("host_lost", lost, rpc_timeout=RPC_TIMEOUT)

    async def _watch(self) -> str:
        """Wait for the stop, or for the cluster to give this incarnation up; then why it did."""
        while not self._stop.is_set():
            await _pause(self._stop, CHECK_EVERY if self._expected else CHECK_FIRST)
            if self._stop.is_set():
                return ""
            if reason := await self._given_up():
                return reason
        return ""

    async def _given_up(self) -> str:
        """Why the cluster has given this incarnation up; empty: it has not, or does not answer.

        Raises:
            Rejected: this agent is to stop.
        """
        try:
            described = await self._slice().describe(rpc_timeout=RPC_TIMEOUT)
            if described.status is not WorkflowExecutionStatus.RUNNING:
                return self._ended(described.status)
            self._orphaned_since = None
            status = await self._slice().query("status", result_type=SliceStatus, rpc_timeout=RPC_TIMEOUT)
            if self._token is not None and all(host.id != self._host.id for host in status.hosts):
                return await self._report_again(status)
        except RPCError as error:
            return self._ended(None) if error.status is RPCStatusCode.NOT_FOUND else ""
        except WorkflowQueryFailedError:
            return ""
        return self._replaced(status)

    def _ended(self, how: WorkflowExecutionStatus | None) -> str:
        """What the end of its slice means: a machine that was brought begins anew; one that was made is not wanted any more."""
        if self._token is None:
            return "its slice is unknown" if how is None else "its slice has ended"
        now = time.monotonic()
        self._orphaned_since = self._orphaned_since or now
        if how is WorkflowExecutionStatus.TERMINATED and now - self._orphaned_since < ADOPTION_PATIENCE.total_seconds():
            return ""  # somebody did that by hand: the autoscaler finds the machines, and what runs here runs on
        raise Rejected(f"slice {self._host.slice_id}, for which this machine was made, has ended")

    async def _report_again(self, status: SliceStatus) -> str:
        """Its slice does not know this host: the report was lost, or the slice's workflow is another one by now."""
        if self._host.id in status.refused:
            raise Rejected(f"slice {self._host.slice_id} does not take this machine for one of its own")
        await self._report()
        return ""

    def _replaced(self, status: SliceStatus) -> str:
        """Why this incarnation is over, by what its slice says; empty: it is not.

        Raises:
            Rejected: it has a successor, which is not of this agent.
        """
        expected, self._expected = self._expected, True
        known = next((host.incarnation for host in status.hosts if host.id == self._host.id), None)
        if known == self._host.incarnation or not expected:
            return ""
        if known is None:
            return "its slice has ended, and begun anew without it"
        raise Rejected(f"another agent has taken over host {self._host.id} (incarnation {known}); this one stops")

    def _slice(self) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(names.slice_workflow(self._cluster, self._host.slice_id))


async def _pause(stop: asyncio.Event, time: timedelta) -> None:
    """Wait so long, but not beyond the stop."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), time.total_seconds())


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """It goes on meanwhile."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.contextmanager
def _only_agent(options: AgentOptions) -> Iterator[None]:
    """Two agents in one directory would take each other's attempts for leftovers."""
    with (options.directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Rejected(f"an agent for host {options.host_id} runs on this machine already") from None
        yield
