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
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from iris import names
from iris.activities.environment import Accelerators
from iris.activities.exec import Execs
from iris.activities.profile import Profiles
from iris.activities.runtimes import cgroups
from iris.activities.runtimes.engine import clear_strays
from iris.activities.runtimes.images import Token
from iris.activities.tasks import Tasks
from iris.activities.workbench import Workbench
from iris.client.connection import connect
from iris.constraints import Attribute
from iris.errors import Rejected, Unreachable
from iris.faults import FAULTS, Fault
from iris.hosts import Host
from iris.resources import Device
from iris.store import Store
from iris.worker_agents import life
from iris.worker_agents.agent_log import shipping_own_log
from iris.worker_agents.metadata import of_this_machine
from iris.worker_agents.notice import watch_for_preemption
from iris.worker_agents.probe import describe_host, find_accelerators, probe
from iris.worker_agents.process import rest_memory, stop_event
from iris.worker_agents.standing import Standing

logger = logging.getLogger(__name__)

#: Between looks at whether the cluster still counts this host in.
CHECK_EVERY = timedelta(seconds=20)
#: Before the first of them, by which its report should have been read.
CHECK_FIRST = timedelta(seconds=5)
#: Between two tries while the service is away.
RETRY_EVERY = timedelta(seconds=2)
#: So long the end of its programs waits for the cluster to hear that the host goes: none of them should be sent here again.
SIGN_OFF_FIRST = timedelta(seconds=1)
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
    # Starts and ends of programs must not wait for what takes long in a thread, such as an image that is being pulled.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(STARTS_AT_ONCE + 32))
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
                registry_token: Token = metadata.access_token if metadata is not None else lambda: None
                await _live_and_live_again(store, options, accelerators, registry_token, asked)


async def _live_and_live_again(
    store: Store, options: AgentOptions, accelerators: Accelerators, registry_token: Token, asked: "Asked"
) -> None:
    lived = False
    while not asked.to_end.is_set():
        begun = life.of(options.directory)
        host = _this_host(options, accelerators, begun or life.begin(options.directory))
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
        incarnation = _Incarnation(client, store, options, accelerators, registry_token, host, asked)
        if begun is not None and await incarnation.is_over():
            life.end(options.directory)
            continue
        await incarnation.live()


def _this_host(options: AgentOptions, accelerators: Accelerators, incarnation: str) -> Host:
    """This machine as a host."""
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
        incarnation=incarnation,
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
        self.to_make_way = self.to_make_way or not self.to_end.is_set()
        self.to_end.set()


class _Incarnation:
    """One life of the agent."""

    def __init__(
        self,
        client: Client,
        store: Store,
        options: AgentOptions,
        accelerators: Accelerators,
        registry_token: Token,
        host: Host,
        asked: "Asked",
    ) -> None:
        self._client = client
        self._cluster = options.cluster
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
            registry_token=registry_token,
        )
        self._tasks = Tasks(bench)
        self._execs = Execs(store, self._tasks)
        self._profiles = Profiles(store, self._tasks)
        self._standing = Standing(client, options.cluster, host, options.token, options.slice_size)

    async def is_over(self) -> bool:
        """Whether this life, which another agent has begun, has been given up meanwhile."""
        return await self._standing.is_over()

    async def live(self) -> None:
        """Serve the host's queue until this life of the host is over, or this agent.

        Raises:
            Rejected: nobody wants this host (any more); nothing runs here then.
        """
        try:
            await self._serve()
        except Rejected as error:
            life.end(self._dir)
            await self._tasks.abandon(str(error))
            raise

    async def _serve(self) -> None:
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
                life.end(self._dir)  # first: should this agent be killed before it is done, the next one does not go on with it
                signing_off = asyncio.create_task(self._standing.sign_off(reason))
                # A service that is away does not take the programs' grace from them.
                await asyncio.wait({signing_off}, timeout=SIGN_OFF_FIRST.total_seconds())
                await self._tasks.close(reason)
                await signing_off

    async def _report_until_heard(self) -> None:
        while not self._stop.is_set():
            try:
                await self._standing.report()
                return
            except RPCError as error:
                if self._token is not None and error.status is RPCStatusCode.NOT_FOUND:
                    raise Rejected(f"nobody wants slice {self._host.slice_id}, for which this machine was made") from None
                logger.warning("host %s could not report, trying again: %s", self._host.id, error)
                await _pause(self._stop, RETRY_EVERY)

    async def _watch(self) -> str:
        """Wait for the stop, or for the cluster to give this incarnation up; then why it did."""
        while not self._stop.is_set():
            await _pause(self._stop, CHECK_EVERY if self._standing.expected else CHECK_FIRST)
            if self._stop.is_set():
                return ""
            if reason := await self._standing.given_up():
                return reason
        return ""


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
        for fault in await asyncio.gather(task, return_exceptions=True):
            if isinstance(fault, Exception):
                logger.error("what went on beside has ended early", exc_info=fault)


@contextlib.contextmanager
def _only_agent(options: AgentOptions) -> Iterator[None]:
    """Two agents in one directory would take each other's attempts for leftovers."""
    with (options.directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Rejected(f"an agent for host {options.host_id} runs on this machine already") from None
        yield
