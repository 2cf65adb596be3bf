"""The host agent: one Temporal worker on each machine, which serves `run_task` from its own queue.
It only makes outgoing connections.

An *incarnation* of the host ends when the agent is stopped, when the machine stops, or when the
cluster gives the host up. In the last case, the agent kills everything that runs here and reports
again as a new incarnation. Thus a slice that lost one of its hosts becomes whole again: the other
hosts notice that it ended, and report again.

If an agent dies, nothing ends: the next agent has the same incarnation and continues with the
running programs. SIGHUP asks an agent to hand over to another in the same manner, for instance for
an upgrade. SIGTERM and SIGINT end the incarnation.
"""

import asyncio
import contextlib
import functools
import logging
import shutil
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    PollerBehaviorSimpleMaximum,
    Worker,
)

from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.attempt.run_task import Tasks
from iris.activities.host.environment.secret_values import HostSecrets, SealedValues, SecretManager
from iris.activities.host.machine.accelerators import Accelerators
from iris.activities.host.machine.gpu_health import GpuHealth
from iris.activities.host.machine.ping import Ping
from iris.activities.host.runtimes.container.engine import clear_host
from iris.activities.host.runtimes.container.images import Token
from iris.activities.host.runtimes.process import cgroups
from iris.activities.host.runtimes.process.job_users import JobUsers
from iris.activities.host.runtimes.shim import shim
from iris.activities.host.sessions.exec import Execs
from iris.activities.host.sessions.port_forward import PortForwards
from iris.activities.host.sessions.profile import Profiles
from iris.client.access.proof_checks import proof_checks
from iris.client.access.proofs import key_of
from iris.client.access.selection import host_tokens, tokens_of
from iris.client.connect.clusters import read_record
from iris.client.connect.connection import connect, make_runtime
from iris.client.connect.deployment import deployment
from iris.client.connect.paths import has_identity, identity_path, state_dir
from iris.concurrency import beside, pause
from iris.metrics import declared
from iris.metrics.kinds import Part
from iris.metrics.serve import keep_gauges, serving_metrics
from iris.model import names
from iris.model.errors import Rejected, Unreachable
from iris.model.host.faults import FAULTS
from iris.model.host.gpus import offered
from iris.model.host.hosts import Host
from iris.platforms import gcp
from iris.processes.process import locked, rest_memory, stop_event
from iris.storage.files import make_private
from iris.storage.object_store import Store
from iris.tracing.context import HEADER, TraceContext, decode, received
from iris.worker_agents.host import gpu_record
from iris.worker_agents.host import incarnation as incarnations
from iris.worker_agents.host.agent_log import shipping_own_log
from iris.worker_agents.host.agent_options import AgentOptions
from iris.worker_agents.host.job_access import device_groups, job_users
from iris.worker_agents.host.membership import Membership
from iris.worker_agents.host.metadata import Metadata, of_this_machine, watch_for_preemption
from iris.worker_agents.host.own_sessions import OwnSessions
from iris.worker_agents.host.probe import describe_host, find_accelerators, gpu_attributes, probe

logger = logging.getLogger(__name__)

#: The interval between two checks that the cluster still accepts this incarnation of the host.
CHECK_INTERVAL = timedelta(seconds=20)
#: The interval between checks that the cluster accepts this incarnation of the host, until the
#: slice's workflow has answered one; then `CHECK_INTERVAL`. The slice's workflow needs some time to
#: read the host's report.
FIRST_CHECK_DELAY = timedelta(seconds=5)
#: The interval between two tries while the Temporal service is away.
RETRY_INTERVAL = timedelta(seconds=2)
#: The time for which a stopping host tries to tell the cluster that its incarnation ends, before it
#: ends its programs. Once the cluster knows this, it does not send the same tasks to this host
#: again.
SIGN_OFF_TIMEOUT = timedelta(seconds=1)
#: The interval between two measurements for the host's metrics.
GATHER_INTERVAL = timedelta(seconds=5)
#: The maximum number of attempts that start at the same time. The scheduler limits the number of
#: attempts that run.
MAX_CONCURRENT_STARTS = 100


async def serve(options: AgentOptions) -> None:
    """Runs `serve_host` until SIGTERM or SIGINT, or until SIGHUP, which leaves the running programs
    to the next agent.
    """
    with serving_metrics(Part.AGENT, options.metrics) as sdk_metrics:
        runtime = make_runtime(metrics=sdk_metrics) if sdk_metrics else None
        await serve_host(options, prepare_process(hosts=1), runtime)


def prepare_process(hosts: int) -> "StopRequest":
    """Prepares this process to serve this many hosts. Returns the request to end, which signals
    make.
    """
    loop = asyncio.get_running_loop()
    # The start and end of programs must not wait for slow work in a thread, such as the pull of an
    # image.
    loop.set_default_executor(ThreadPoolExecutor(hosts * (MAX_CONCURRENT_STARTS + 32)))
    stop_request = StopRequest(stop_event())
    loop.add_signal_handler(signal.SIGHUP, stop_request.hand_over)
    rest_memory()
    return stop_request


async def serve_host(
    options: AgentOptions, stop_request: "StopRequest", runtime: Runtime | None = None
) -> None:
    """Runs the agent of a host until the request to end. A hand-over leaves the running programs to
    the next agent.

    Args:
        runtime: the SDK's runtime that serves metrics; None if the process serves none.

    Raises:
        Rejected: another agent already runs for this host, the cluster does not want the host (any
            more), or its tasks cannot run as other users.
        Unreachable: the cluster does not answer when the agent starts. Later, the agent retries
            until it answers.
    """
    for directory in (options.directory, options.directory / "attempts", _cache_dir(options)):
        make_private(directory)
    store = Store(options.store)
    # Two agents would take each other's attempts for orphans.
    with locked(
        options.directory, f"an agent for host {options.host_id} runs on this machine already"
    ):
        async with shipping_own_log(store, options.cluster, options.host_id, options.directory):
            metadata = None if options.simulated else of_this_machine()
            if why := cgroups.why_not():
                logger.warning("%s", why)
            if not options.simulated and incarnations.of(options.directory) is None:
                # Removes the containers of a host that lost its directory. Known attempts take care
                # of their own containers.
                await clear_host(options.cluster, options.host_id)
            users = job_users(options.tasks.run_as, options.jobs_dir, simulated=options.simulated)
            async with contextlib.AsyncExitStack() as stack:
                if metadata is not None:
                    await stack.enter_async_context(
                        beside(watch_for_preemption(metadata, stop_request.end))
                    )
                registry_token: Token = (
                    metadata.access_token if metadata is not None else lambda: None
                )
                await _serve_incarnations(
                    store, options, metadata, users, registry_token, stop_request, runtime
                )


async def _serve_incarnations(
    store: Store,
    options: AgentOptions,
    metadata: Metadata | None,
    users: JobUsers | None,
    registry_token: Token,
    stop_request: "StopRequest",
    runtime: Runtime | None,
) -> None:
    found: Accelerators | None = None
    connected = False
    while not stop_request.event.is_set():
        begun = incarnations.of(options.directory)
        current = begun or incarnations.begin(options.directory)
        if found is None or begun is None:  # they may differ from those of the incarnation before
            found = Accelerators() if options.simulated else await find_accelerators(metadata)
        gpus = gpu_record.gpus_of(options.directory, current, found, options.device)
        accelerators = gpu_record.with_gpus(found, gpus)
        host = _this_host(options, accelerators, users, current)
        identity = names.worker_identity(host.id, host.incarnation)
        try:
            with tokens_of(host_tokens(host.id, options.slice_key, options.delegation)):
                client = await connect(
                    options.address, options.namespace, identity=identity, runtime=runtime
                )
        except (Unreachable, Rejected) as error:
            if not connected:
                raise
            logger.warning("%s; trying again", error)
            await pause(stop_request.event, RETRY_INTERVAL)
            continue
        connected = True
        health = gpu_record.health_of(options.directory, gpus, options.device)
        host = host.model_copy(update={"fault": health.fault})
        incarnation = _Incarnation(
            client, store, options, accelerators, health, users, registry_token, host, stop_request
        )
        if begun is not None and await incarnation.is_over():
            incarnations.end(options.directory)
            health.close()
            continue
        await incarnation.run()


def _cache_dir(options: AgentOptions) -> Path:
    return options.cache_dir or options.directory / "cache"


def _this_host(
    options: AgentOptions, accelerators: Accelerators, users: JobUsers | None, incarnation: str
) -> Host:
    """Returns this machine as a host."""
    resources = probe(
        *(options.directory, users.directory if users is not None else options.directory),
        cpu=options.cpu_millis,
        memory=options.memory_bytes,
        disk=options.disk_bytes,
        device=options.device or accelerators.device,
    )
    gpus = gpu_attributes(offered(accelerators.gpus, resources.device))
    return describe_host(
        options.host_id,
        resources,
        {**accelerators.attributes, **gpus, **options.attributes},
        incarnation=incarnation,
        slice_id=options.slice_id,
        address=options.host_address,
        accept_cpu_jobs=options.accept_cpu_jobs,
    )


class StopRequest:
    """The request to this agent to stop, and its reason."""

    def __init__(self, event: asyncio.Event) -> None:
        self.event = event
        #: True if another agent continues with the running programs.
        self.hands_over = False
        #: The reason for the end of this incarnation; empty if the agent was requested to stop.
        self.reason = ""

    def end(self, reason: str) -> None:
        """Ends this incarnation of the host, for this reason."""
        self.reason = self.reason or reason
        self.event.set()

    def hand_over(self) -> None:
        """Ends the agent but none of the running programs, with which another agent continues."""
        self.hands_over = self.hands_over or not self.event.is_set()
        self.event.set()


class _Incarnation:
    """One incarnation of the host, as long as this agent serves it."""

    def __init__(
        self,
        client: Client,
        store: Store,
        options: AgentOptions,
        accelerators: Accelerators,
        health: GpuHealth,
        users: JobUsers | None,
        registry_token: Token,
        host: Host,
        stop_request: "StopRequest",
    ) -> None:
        self._client = client
        self._cluster = options.cluster
        self._created = options.slice_key is not None
        self._host = host
        self._stop_request = stop_request
        self._stop = stop_request.event
        self._dir = options.directory
        self._health = health
        self._gpu_check = options.gpu_check
        self._serves_metrics = bool(options.metrics.port)
        self._task_dirs = {"agent": options.directory}
        if users is not None:
            self._task_dirs["jobs"] = users.directory
        own = [*_own(options), *filter(None, (store.directory,))]
        context = HostContext(
            client=client,
            store=store,
            cluster=options.cluster,
            host=host,
            directory=options.directory,
            cache_dir=_cache_dir(options),
            umask=options.umask,
            job_users=users,
            device_groups=_groups(users, accelerators),
            image=options.image,
            require_digests=options.tasks.require_digests,
            mounts=options.tasks.mounts,
            own=own,
            env_vars=options.tasks.env_vars,
            limits=options.tasks.limits,
            faults=(*FAULTS, *options.faults),
            accelerators=accelerators,
            gpu_health=health,
            contact_env=contact_env(options.address, options.namespace, options.cluster),
            registry_token=registry_token,
            secrets=_secrets(options, own, store),
            message_key=key_of(client),
        )
        self._log = context.logger(logger)
        self._tasks = Tasks(context)
        self._execs = Execs(store, self._tasks)
        self._forwards = PortForwards(store, self._tasks)
        self._profiles = Profiles(store, self._tasks)
        self._ping = Ping(host)
        self._membership = Membership(
            client, options.cluster, host, options.slice_key, options.slice_size, options.directory
        )

    async def is_over(self) -> bool:
        """Returns True if the cluster has given up this incarnation, which an earlier agent
        began.
        """
        return await self._membership.is_over()

    async def run(self) -> None:
        """Serves the host's queue until this incarnation or this agent ends.

        Raises:
            Rejected: the cluster does not want this host (any more). Nothing runs here then.
        """
        try:
            await self._serve()
        except Rejected as error:
            incarnations.end(self._dir)
            await self._tasks.kill_all(str(error))
            raise
        finally:
            self._health.close()

    async def _serve(self) -> None:
        await self._tasks.take_over()
        worker = Worker(
            self._client,
            task_queue=names.host_queue(self._cluster, self._host.id),
            deployment_config=deployment(),
            interceptors=[*proof_checks(self._client), TraceHeader(), OwnSessions(self._cluster)],
            activities=[
                *(self._tasks.run_task, self._execs.exec_task, self._forwards.forward_ports),
                *(self._profiles.profile_task, self._ping.ping),
            ],
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
            max_concurrent_activities=MAX_CONCURRENT_STARTS,
        )
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(worker)
            await stack.enter_async_context(beside(self._tasks.measure()))
            await stack.enter_async_context(beside(self._tasks.measure_gpus()))
            await stack.enter_async_context(beside(self._tasks.limit_disk()))
            if self._serves_metrics:
                gather = functools.partial(
                    gather_gauges, self._tasks, self._health, self._task_dirs
                )
                await stack.enter_async_context(beside(keep_gauges(gather, GATHER_INTERVAL)))
            await self._report_until_accepted()
            self._tasks.report_lost()
            host = self._host
            self._log.info(
                "host %s (%s) has reported to its slice: %s",
                host.id,
                host.incarnation,
                host.resources,
            )
            async with beside(self._health.watch(self._gpu_check, self._report_fault)):
                given_up = await self._watch()
            if given_up:
                self._log.warning("the host begins a new incarnation: %s", given_up)
                incarnations.end(self._dir)
                await self._tasks.kill_all(given_up)
            elif self._stop_request.hands_over:
                self._log.info("the agent hands the running attempts over to another agent")
                await self._tasks.hand_over()
            else:
                reason = self._stop_request.reason or f"host {self._host.id} was stopped"
                # First, so that after a kill of this agent the next one does not continue this
                # incarnation.
                incarnations.end(self._dir)
                signing_off = asyncio.create_task(self._membership.sign_off(reason))
                # An unreachable service must not use up the programs' grace.
                await asyncio.wait({signing_off}, timeout=SIGN_OFF_TIMEOUT.total_seconds())
                await self._tasks.preempt_all(reason)
                await signing_off

    async def _report_until_accepted(self) -> None:
        while not self._stop.is_set():
            try:
                await self._membership.report()
                return
            except RPCError as error:
                if self._created and error.status is RPCStatusCode.NOT_FOUND:
                    raise Rejected(
                        f"slice {self._host.slice_id}, for which this machine was created, does not"
                        " exist"
                    ) from None
                self._log.warning("the host could not report to its slice, trying again: %s", error)
                await pause(self._stop, RETRY_INTERVAL)

    async def _report_fault(self) -> None:
        """Reports the host with the fault that its GPUs have now, or without one."""
        fault = self._health.fault
        if fault:
            self._log.warning("the host is quarantined: %s", fault)
        else:
            self._log.info("the host has no fault any more")
        self._membership.host_has(fault)
        await self._report_until_accepted()

    async def _watch(self) -> str:
        """Waits for the stop, or until the cluster gives this incarnation up. Returns the reason
        for the latter.
        """
        was_accepted = False
        while not self._stop.is_set():
            await pause(
                self._stop, CHECK_INTERVAL if self._membership.expected else FIRST_CHECK_DELAY
            )
            if self._stop.is_set():
                return ""
            if reason := await self._membership.given_up():
                return reason
            if self._health.completed:
                return "the GPUs that were missing are there now"
            if self._membership.accepted and not was_accepted:
                was_accepted = True
                self._log.info("the slice has accepted the host, which takes work now")
        return ""


async def gather_gauges(tasks: Tasks, health: GpuHealth, directories: Mapping[str, Path]) -> None:
    """Shows the present values of the host's gauges.

    Args:
        directories: the directories with the files of tasks, by their names in the metrics.
    """
    loads = tasks.loads()
    states = Counter(load.state for load in loads)
    declared.ATTEMPTS.show({(state,): count for state, count in states.items()})
    declared.LOG_BACKLOG.show_one(sum(load.log_backlog for load in loads))
    leases = [load.lease - shim.now() for load in loads if load.lease is not None]
    declared.LEASE_LEFT.show({(): min(leases)} if leases else {})
    disks = await asyncio.to_thread(
        lambda: {name: shutil.disk_usage(path) for name, path in directories.items()}
    )
    declared.DISK_FREE.show({(name,): disk.free for name, disk in disks.items()})
    declared.DISK_SIZE.show({(name,): disk.total for name, disk in disks.items()})
    declared.GPU_FAULT.show({(): bool(health.fault)} if health.watches else {})


def _groups(users: JobUsers | None, accelerators: Accelerators) -> Sequence[int]:
    """Returns the groups that jobs with users of their own need for the host's devices."""
    return () if users is None or accelerators.device is None else device_groups()


def _own(options: AgentOptions) -> tuple[Path, ...]:
    """Returns the agent's directories and files, which no job gets."""
    return (
        options.directory,
        _cache_dir(options),
        options.jobs_dir,
        *filter(None, (options.key_file,)),
        *((identity_path(),) if has_identity() else ()),
    )


def _secrets(options: AgentOptions, own: Sequence[Path], store: Store) -> HostSecrets:
    """Returns the secrets that jobs may use."""

    @functools.cache
    def manager() -> SecretManager:
        return gcp.secret_manager.GoogleSecrets(
            options.tasks.secrets_project, options.tasks.secrets_endpoint
        )

    return HostSecrets(
        options.tasks.secrets, manager, own=own, sealed=SealedValues(options.cluster, store)
    )


def contact_env(address: str, namespace: str, cluster: str) -> dict[str, str]:
    """Returns the variables by which `iris` in a program finds the cluster. They hold no
    credentials.

    Args:
        address: that of the cluster's Temporal service, as this agent reaches it.
    """
    contact = {names.ENV_ADDRESS: f"{address}/{cluster}"}
    if namespace != "default":
        contact[names.ENV_NAMESPACE] = namespace
    record = read_record(cluster)
    if record is not None and record.supervisor is not None and record.address == address:
        # The path finds a cluster of this machine, also if its user has moved the directory.
        contact[names.ENV_STATE_DIR] = str(state_dir())
    return contact


class TraceHeader(Interceptor):
    """Reads the trace of an attempt from the header of its activity, for the program's variable
    `TRACEPARENT`. An activity without this header runs unchanged.
    """

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return _TracedActivities(next)


class _TracedActivities(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if (header := input.headers.get(HEADER)) is not None:
            received.set(str(TraceContext.parse(decode(header.data).get("traceparent")) or ""))
        return await super().execute_activity(input)
